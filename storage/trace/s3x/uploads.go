package s3x

import (
	"context"
	"fmt"
	"iter"

	"github.com/minio/minio-go/v7"

	"github.com/oomfleet/oomfleet/proto"
	"github.com/oomfleet/oomfleet/storage/trace"
)

// Unfinished implements trace.Uploads: multipart uploads in the bucket that
// nobody completed or aborted. This driver makes none, but tools that copy
// traces do, and stores charge for their parts for ever.
func (d *Driver) Unfinished(ctx context.Context) iter.Seq2[trace.Upload, error] {
	return func(yield func(trace.Upload, error) bool) {
		var key, id string // where the last page ended
		sized := 0
		for {
			page, err := d.core.ListMultipartUploads(ctx, d.config.Bucket, "", key, id, "", 0)
			if err != nil {
				yield(trace.Upload{}, fmt.Errorf("list uploads: %w", d.classify(err)))
				return
			}
			for _, u := range page.Uploads {
				upload := trace.Upload{Key: u.Key, ID: u.UploadID, Begun: u.Initiated}
				if sized++; sized <= mostSized {
					upload.Size = d.arrived(ctx, upload)
				}
				if !yield(upload, nil) {
					return
				}
			}
			if !page.IsTruncated || page.NextKeyMarker == key && page.NextUploadIDMarker == id {
				return
			}
			key, id = page.NextKeyMarker, page.NextUploadIDMarker
		}
	}
}

// mostSized is for how many uploads the store is asked how much of them it has:
// each takes a request of its own.
const mostSized = 256

// arrived is how much of an upload has arrived, which a list of uploads does not
// say. It is for people alone: 0 where the store does not tell, since the keys may
// not list parts or the upload has ended meanwhile.
func (d *Driver) arrived(ctx context.Context, u trace.Upload) (size proto.Bytes) {
	for marker := 0; ; {
		page, err := d.core.ListObjectParts(ctx, d.config.Bucket, u.Key, u.ID, marker, 0)
		if err != nil {
			return 0
		}
		for _, part := range page.ObjectParts {
			size += proto.Bytes(part.Size)
		}
		if !page.IsTruncated || page.NextPartNumberMarker <= marker {
			return size
		}
		marker = page.NextPartNumberMarker
	}
}

// Abort implements trace.Uploads. It ends this one upload: the client's own
// RemoveIncompleteUpload would end all of the key, fresh ones among them.
func (d *Driver) Abort(ctx context.Context, u trace.Upload) error {
	err := d.core.AbortMultipartUpload(ctx, d.config.Bucket, u.Key, u.ID)
	if err != nil && minio.ToErrorResponse(err).Code != "NoSuchUpload" {
		return fmt.Errorf("abort upload: %w", d.classify(err))
	}
	return nil
}

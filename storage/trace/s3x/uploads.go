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
		for {
			page, err := d.core.ListMultipartUploads(ctx, d.config.Bucket, "", key, id, "", 0)
			if err != nil {
				yield(trace.Upload{}, fmt.Errorf("list uploads: %w", d.classify(err)))
				return
			}
			for _, u := range page.Uploads {
				if !yield(trace.Upload{Key: u.Key, ID: u.UploadID, Size: proto.Bytes(u.Size), Begun: u.Initiated}, nil) {
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

// Abort implements trace.Uploads. It ends this one upload: the client's own
// RemoveIncompleteUpload would end all of the key, fresh ones among them.
func (d *Driver) Abort(ctx context.Context, u trace.Upload) error {
	err := d.core.AbortMultipartUpload(ctx, d.config.Bucket, u.Key, u.ID)
	if err != nil && minio.ToErrorResponse(err).Code != "NoSuchUpload" {
		return fmt.Errorf("abort upload: %w", d.classify(err))
	}
	return nil
}

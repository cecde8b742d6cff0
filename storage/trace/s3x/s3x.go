// Package s3x is the trace store's driver over S3, by minio-go. It owns one
// bucket and the connections to it.
//
// Every object travels in one request with a known size and a CRC32C that the
// store checks; its SHA-256 lies beside it as metadata. The driver refuses to
// guess: it streams nothing of unknown length, uses no multipart upload (the
// client drops conditions there, and traces are small), and says which option
// to change when a store will not have us.
//
// Start reading at Config, then Open and Driver.Put.
package s3x

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"strings"

	"github.com/minio/minio-go/v7"
	"github.com/oomfleet/oomfleet/proto"
	"github.com/oomfleet/oomfleet/storage/trace"
)

// digestKey is the object's metadata (x-amz-meta-sha256) that holds its digest.
const digestKey = "Sha256"

// Driver keeps objects in a bucket. It implements trace.Driver and is safe for
// concurrent use.
type Driver struct {
	config    Config
	core      *minio.Core
	transport *http.Transport
}

// New returns a driver; it checks the configuration and connects to nothing.
// The bucket must exist, or be made with EnsureBucket.
func New(config Config) (*Driver, error) {
	core, transport, err := config.client()
	if err != nil {
		return nil, fmt.Errorf("trace store on s3: %w: %w", trace.ErrRefused, err)
	}
	return &Driver{config: config, core: core, transport: transport}, nil
}

// Open is New and EnsureBucket.
func Open(ctx context.Context, config Config) (*Driver, error) {
	d, err := New(config)
	if err != nil {
		return nil, err
	}
	if err := d.EnsureBucket(ctx); err != nil {
		d.Close()
		return nil, err
	}
	return d, nil
}

// EnsureBucket makes the bucket unless it is there. It fails with
// trace.ErrRefused or trace.ErrClockSkew; any other error may pass.
func (d *Driver) EnsureBucket(ctx context.Context) error {
	there, err := d.core.BucketExists(ctx, d.config.Bucket)
	if there {
		return nil
	}
	var answer minio.ErrorResponse
	if err != nil && !errors.As(err, &answer) {
		return fmt.Errorf("trace store at %s: %w", d.config, d.classify(err))
	}
	// Also when asking was forbidden: the answer to a HEAD has no body that
	// says why, the answer to this has.
	err = d.core.MakeBucket(ctx, d.config.Bucket, minio.MakeBucketOptions{Region: d.config.Region})
	if err != nil && minio.ToErrorResponse(err).Code != "BucketAlreadyOwnedByYou" {
		return fmt.Errorf("trace store at %s: make bucket: %w", d.config, d.classify(err))
	}
	return nil
}

// Close ends idle connections. The driver stays usable.
func (d *Driver) Close() { d.transport.CloseIdleConnections() }

// String names the store without its secret.
func (d *Driver) String() string { return d.config.String() }

// Put implements trace.Driver. S3 shows an object when its upload is complete,
// so a reader never sees a part.
func (d *Driver) Put(ctx context.Context, key string, body io.ReadSeeker, info trace.Info) error {
	if err := checkPut(key, body, info.Size); err != nil {
		return fmt.Errorf("put %s: %w", key, err)
	}
	options := minio.PutObjectOptions{
		UserMetadata:     map[string]string{digestKey: string(info.SHA256)},
		ContentType:      contentType(key),
		DisableMultipart: true,
		// The client signs either each chunk of the body or none. Over plain
		// HTTP some servers mistake signed chunks with a checksum behind them
		// for a wrong checksum; the checksum alone guards the content.
		DisableContentSha256: true,
		Checksum:             minio.ChecksumCRC32C,
	}
	if d.config.Checksum == ChecksumMD5 {
		options.Checksum, options.SendContentMd5 = minio.ChecksumNone, true
	}
	stored, err := d.core.Client.PutObject(ctx, d.config.Bucket, key, body, int64(info.Size), options)
	if err != nil {
		return fmt.Errorf("put %s: %w", key, d.classify(err))
	}
	if stored.Size != int64(info.Size) {
		return fmt.Errorf("put %s: %w: %d of %d bytes were taken", key, trace.ErrCorrupt, stored.Size, int64(info.Size))
	}
	return nil
}

// checkPut holds the body against its announced size before anything is sent:
// the client would cut a longer body short and report success.
func checkPut(key string, body io.Seeker, size proto.Bytes) error {
	if !trace.ValidKey(key) {
		return fmt.Errorf("%q is not a key of the trace store", key)
	}
	start, err := body.Seek(0, io.SeekCurrent)
	if err != nil {
		return err
	}
	end, err := body.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	if end-start != int64(size) {
		return fmt.Errorf("the body has %d bytes, %d were announced", end-start, int64(size))
	}
	_, err = body.Seek(start, io.SeekStart)
	return err
}

func contentType(key string) string {
	switch {
	case strings.HasSuffix(key, ".json"):
		return "application/json"
	case strings.HasSuffix(key, ".parquet"):
		return "application/vnd.apache.parquet"
	}
	return "application/octet-stream"
}

// Open implements trace.Driver.
func (d *Driver) Open(ctx context.Context, key string) (io.ReadCloser, trace.Info, error) {
	if !trace.ValidKey(key) {
		return nil, trace.Info{}, fmt.Errorf("open: %q is not a key of the trace store", key)
	}
	body, object, _, err := d.core.GetObject(ctx, d.config.Bucket, key, minio.GetObjectOptions{})
	if err != nil {
		return nil, trace.Info{}, fmt.Errorf("open %s: %w", key, d.classify(err))
	}
	return body, infoOf(object), nil
}

// Stat implements trace.Driver.
func (d *Driver) Stat(ctx context.Context, key string) (trace.Info, error) {
	if !trace.ValidKey(key) {
		return trace.Info{}, fmt.Errorf("stat: %q is not a key of the trace store", key)
	}
	object, err := d.core.StatObject(ctx, d.config.Bucket, key, minio.StatObjectOptions{})
	if err == nil {
		return infoOf(object), nil
	}
	if code := minio.ToErrorResponse(err).StatusCode; code == http.StatusForbidden || code == http.StatusBadRequest {
		// A HEAD has no body that says why (the clock? which option?): ask again.
		body, info, errOpen := d.Open(ctx, key)
		if errOpen != nil {
			return trace.Info{}, fmt.Errorf("stat: %w", errOpen)
		}
		return info, body.Close()
	}
	return trace.Info{}, fmt.Errorf("stat %s: %w", key, d.classify(err))
}

// Delete implements trace.Driver.
func (d *Driver) Delete(ctx context.Context, key string) error {
	if !trace.ValidKey(key) {
		return fmt.Errorf("delete: %q is not a key of the trace store", key)
	}
	err := d.core.RemoveObject(ctx, d.config.Bucket, key, minio.RemoveObjectOptions{})
	if err != nil && minio.ToErrorResponse(err).Code != minio.NoSuchKey {
		return fmt.Errorf("delete %s: %w", key, d.classify(err))
	}
	return nil
}

// List implements trace.Driver. Listings do not carry digests.
func (d *Driver) List(ctx context.Context, prefix string) iter.Seq2[trace.Object, error] {
	return func(yield func(trace.Object, error) bool) {
		options := minio.ListObjectsOptions{Prefix: prefix, Recursive: true}
		for object := range d.core.ListObjectsIter(ctx, d.config.Bucket, options) {
			if object.Err != nil {
				yield(trace.Object{}, fmt.Errorf("list %s: %w", prefix, d.classify(object.Err)))
				return
			}
			row := trace.Object{Key: object.Key, Info: trace.Info{Size: proto.Bytes(object.Size), Modified: object.LastModified}}
			if trace.ValidKey(object.Key) && !yield(row, nil) {
				return
			}
		}
		if err := ctx.Err(); err != nil { // the client ends such a listing in silence
			yield(trace.Object{}, fmt.Errorf("list %s: %w", prefix, err))
		}
	}
}

func infoOf(object minio.ObjectInfo) trace.Info {
	return trace.Info{
		Size:     proto.Bytes(object.Size),
		SHA256:   proto.Digest(object.UserMetadata[digestKey]),
		Modified: object.LastModified,
	}
}

package s3x_test

import (
	"bytes"
	"slices"
	"testing"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/oomfleet/oomfleet/internal/s3server/s3servertest"
	"github.com/oomfleet/oomfleet/storage/trace"
)

// TestOrphanedUploads: multipart uploads of other tools that were never ended
// are found, with what has arrived of them, and ended one by one.
func TestOrphanedUploads(t *testing.T) {
	server := s3servertest.Start(t, s3servertest.Options{})
	const bucket = "traces"
	store := trace.NewStore(open(t, config(server, bucket)))
	core, err := minio.NewCore(server.Addr, &minio.Options{Creds: credentials.NewStaticV4(s3servertest.AccessKey, s3servertest.SecretKey, "")})
	if err != nil {
		t.Fatal(err)
	}
	begin := func(key string) string {
		id, err := core.NewMultipartUpload(t.Context(), bucket, key, minio.PutObjectOptions{})
		if err != nil {
			t.Fatal(err)
		}
		part := bytes.Repeat([]byte("x"), 5<<20)
		if _, err := core.PutObjectPart(t.Context(), bucket, key, id, 1, bytes.NewReader(part), int64(len(part)), minio.PutObjectPartOptions{}); err != nil {
			t.Fatal(err)
		}
		return id
	}
	begin("traces/one.parquet")
	two := []string{begin("traces/two.parquet"), begin("traces/two.parquet")} // of one key
	uploads := func() (found []trace.StoredObject) {
		t.Helper()
		for o, err := range store.Objects(t.Context()) {
			if err != nil {
				t.Fatal(err)
			}
			if o.Kind != trace.KindUpload || o.Size != 5<<20 || time.Since(o.Modified).Abs() > time.Minute {
				t.Errorf("%+v", o)
			}
			found = append(found, o)
		}
		return found
	}
	found := uploads()
	if len(found) != 3 {
		t.Fatalf("%d uploads, want 3: %+v", len(found), found)
	}
	for _, o := range found {
		if o.Key == "traces/one.parquet" {
			for range 2 { // the second time it is gone
				if err := store.Remove(t.Context(), o); err != nil {
					t.Error(err)
				}
			}
		}
	}
	left := uploads()
	if len(left) != 2 || slices.ContainsFunc(left, func(o trace.StoredObject) bool { return o.Key != "traces/two.parquet" }) {
		t.Fatalf("left %+v", left)
	}
	// Ending one leaves the other, which can go on.
	if err := store.Remove(t.Context(), left[0]); err != nil {
		t.Error(err)
	}
	alive := 0
	for _, id := range two {
		parts, err := core.ListObjectParts(t.Context(), bucket, "traces/two.parquet", id, 0, 10)
		switch {
		case err == nil && len(parts.ObjectParts) == 1:
			alive++
		case minio.ToErrorResponse(err).Code != "NoSuchUpload":
			t.Errorf("%d parts, %v", len(parts.ObjectParts), err)
		}
	}
	if rest := uploads(); alive != 1 || len(rest) != 1 {
		t.Errorf("%d uploads are alive, %d are listed", alive, len(rest))
	}
}

package trace_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/oomfleet/oomfleet/storage/trace"
	"github.com/oomfleet/oomfleet/storage/trace/dir"
	"github.com/oomfleet/oomfleet/storage/trace/tracetest"
)

// TestPutRefreshes: putting what lies there for long makes it young again, so
// that it is not taken for what nobody refers to.
func TestPutRefreshes(t *testing.T) {
	root := t.TempDir()
	d, err := dir.New(root)
	if err != nil {
		t.Fatal(err)
	}
	store := trace.NewStore(d).WithClock(time.Now)
	events, meta := tracetest.Sample(1)
	ref, err := store.PutTrace(t.Context(), events, meta)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(root, "traces", string(ref.Digest)+".parquet")
	age := func(by time.Duration) time.Time {
		t.Helper()
		was := time.Now().Add(-by)
		if err := os.Chtimes(path, was, was); err != nil {
			t.Fatal(err)
		}
		if _, err := store.PutTrace(t.Context(), events, meta); err != nil {
			t.Fatal(err)
		}
		st, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		return st.ModTime()
	}
	if at := age(trace.RefreshAfter / 2); time.Since(at) < trace.RefreshAfter/2 {
		t.Errorf("a young object was written again, at %s", at)
	}
	if at := age(2 * trace.RefreshAfter); time.Since(at) > time.Minute {
		t.Errorf("an old object is still of %s", at)
	}
}

// TestUnfinishedWritesAreFound: of a folder, by name and age, and only there.
func TestUnfinishedWritesAreFound(t *testing.T) {
	root := t.TempDir()
	d, err := dir.New(root)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(root, ".tmp", "put-123")
	if err := os.WriteFile(path, []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	store := trace.NewStore(d)
	n := 0
	for o, err := range store.Objects(t.Context()) {
		if n++; err != nil || o.Kind != trace.KindUpload || o.Size != 4 {
			t.Errorf("%+v, %v", o, err)
		}
		if err := store.Remove(t.Context(), o); err != nil {
			t.Error(err)
		}
	}
	if _, err := os.Stat(path); n != 1 || !os.IsNotExist(err) {
		t.Errorf("%d found, then %v", n, err)
	}
	for _, id := range []string{"", "../traces/x", "a/b"} {
		if err := d.Abort(t.Context(), trace.Upload{ID: id}); err == nil {
			t.Errorf("%q is taken for a write", id)
		}
	}
}

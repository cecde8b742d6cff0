package dir

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"os"
	"path/filepath"

	"github.com/oomfleet/oomfleet/proto"
	"github.com/oomfleet/oomfleet/storage/trace"
)

// Unfinished implements trace.Uploads: temporary files, of writes under way and
// of processes that died in one.
func (d *Driver) Unfinished(ctx context.Context) iter.Seq2[trace.Upload, error] {
	return func(yield func(trace.Upload, error) bool) {
		entries, err := os.ReadDir(d.path(tempDir))
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			yield(trace.Upload{}, fmt.Errorf("list unfinished writes: %w", classify(err)))
			return
		}
		for _, entry := range entries {
			st, err := entry.Info()
			if err != nil {
				continue // it has ended
			}
			if !yield(trace.Upload{ID: entry.Name(), Size: proto.Bytes(st.Size()), Begun: st.ModTime()}, nil) {
				return
			}
		}
	}
}

// Abort implements trace.Uploads.
func (d *Driver) Abort(_ context.Context, u trace.Upload) error {
	if u.ID == "" || u.ID != filepath.Base(u.ID) {
		return fmt.Errorf("abort write: %q is not the name of one", u.ID)
	}
	if err := os.Remove(d.path(tempDir, u.ID)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("abort write: %w", classify(err))
	}
	return nil
}

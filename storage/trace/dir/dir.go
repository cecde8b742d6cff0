// Package dir is the trace store's driver over a folder of this machine. It
// owns everything below its root; an object's key is its path there.
//
// An object appears whole or not at all: it is written to a temporary file,
// flushed to the disk, and renamed. The driver refuses to keep anything beside
// the content (no digests, no metadata), so any file tool can copy a store.
//
// Start reading at New, then Driver.Put.
package dir

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/oomfleet/oomfleet/proto"
	"github.com/oomfleet/oomfleet/storage/trace"
)

// tempDir holds unfinished writes. Its name is no valid step of a key.
const tempDir = ".tmp"

// staleAfter is the age from which an unfinished write belongs to a process
// that died; no write of a trace takes anywhere near as long.
const staleAfter = 24 * time.Hour

// Driver keeps objects as files. It implements trace.Driver and is safe for
// concurrent use, also by several processes on one root.
type Driver struct {
	root string
}

// New returns a driver over root and makes the folder. What processes that died
// a day ago left unfinished is removed. It fails with trace.ErrRefused when the
// folder cannot be made or written.
func New(root string) (*Driver, error) {
	abs, err := filepath.Abs(root)
	if err != nil {
		return nil, fmt.Errorf("open trace folder %s: %w", root, err)
	}
	d := &Driver{root: abs}
	if err := os.MkdirAll(d.path(tempDir), 0o755); err != nil {
		if errors.Is(err, fs.ErrNotExist) { // it cannot be made: nothing that could be missing
			err = fmt.Errorf("%w: %w", fs.ErrPermission, err)
		}
		return nil, fmt.Errorf("open trace folder %s: %w", abs, classify(err))
	}
	unfinished, err := os.ReadDir(d.path(tempDir))
	if err != nil {
		return nil, fmt.Errorf("open trace folder %s: %w", abs, classify(err))
	}
	for _, entry := range unfinished {
		if st, err := entry.Info(); err == nil && time.Since(st.ModTime()) > staleAfter {
			if err := os.Remove(d.path(tempDir, entry.Name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return nil, fmt.Errorf("open trace folder %s: %w", abs, classify(err))
			}
		}
	}
	return d, nil
}

func (d *Driver) path(steps ...string) string {
	return filepath.Join(append([]string{d.root}, steps...)...)
}

// file is the path of an object. Keys are checked here as well as above: a path
// that leaves the root must be impossible, whoever calls.
func (d *Driver) file(key string) (string, error) {
	if !trace.ValidKey(key) {
		return "", fmt.Errorf("%q is not a key of the trace store", key)
	}
	return d.path(filepath.FromSlash(key)), nil
}

// Put implements trace.Driver.
func (d *Driver) Put(ctx context.Context, key string, body io.ReadSeeker, info trace.Info) error {
	path, err := d.file(key)
	if err == nil {
		err = ctx.Err()
	}
	if err == nil {
		err = d.write(path, body, info.Size)
	}
	if errors.Is(err, fs.ErrNotExist) { // nothing that was asked for is missing
		err = fmt.Errorf("%w: folder %s has gone: %w", trace.ErrRefused, d.root, err)
		return fmt.Errorf("put %s: %w", key, err)
	}
	if err != nil {
		return fmt.Errorf("put %s: %w", key, classify(err))
	}
	return nil
}

// write makes the object in three steps: temporary file, flush, rename. The
// folder is flushed last, so that the new name survives a power cut.
func (d *Driver) write(path string, body io.Reader, size proto.Bytes) (err error) {
	temp, err := os.CreateTemp(d.path(tempDir), "put-*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(temp.Name()))
		}
	}()
	// One byte more than announced tells a body that is too long.
	n, err := io.Copy(temp, io.LimitReader(body, int64(size)+1))
	if err == nil && n != int64(size) {
		err = fmt.Errorf("the body is not the %d bytes that were announced", int64(size))
	}
	if err == nil {
		err = temp.Sync()
	}
	if err == nil {
		err = temp.Chmod(0o644)
	}
	if err = errors.Join(err, temp.Close()); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	if err := os.Rename(temp.Name(), path); err != nil {
		return err
	}
	return flush(filepath.Dir(path))
}

func flush(folder string) error {
	f, err := os.Open(folder)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// Open implements trace.Driver.
func (d *Driver) Open(ctx context.Context, key string) (io.ReadCloser, trace.Info, error) {
	path, err := d.file(key)
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return nil, trace.Info{}, fmt.Errorf("open %s: %w", key, err)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, trace.Info{}, fmt.Errorf("open %s: %w", key, classify(err))
	}
	st, err := f.Stat()
	if err == nil && !st.Mode().IsRegular() {
		err = fs.ErrNotExist
	}
	if err != nil {
		return nil, trace.Info{}, fmt.Errorf("open %s: %w", key, errors.Join(classify(err), f.Close()))
	}
	return f, infoOf(st), nil
}

// Stat implements trace.Driver.
func (d *Driver) Stat(ctx context.Context, key string) (trace.Info, error) {
	path, err := d.file(key)
	if err == nil {
		err = ctx.Err()
	}
	var st fs.FileInfo
	if err == nil {
		st, err = os.Stat(path)
	}
	if err == nil && !st.Mode().IsRegular() {
		err = fs.ErrNotExist
	}
	if err != nil {
		return trace.Info{}, fmt.Errorf("stat %s: %w", key, classify(err))
	}
	return infoOf(st), nil
}

// Delete implements trace.Driver.
func (d *Driver) Delete(ctx context.Context, key string) error {
	path, err := d.file(key)
	if err == nil {
		err = ctx.Err()
	}
	if err == nil {
		err = os.Remove(path)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("delete %s: %w", key, classify(err))
	}
	return nil
}

// List implements trace.Driver. An object that disappears during the listing is
// left out.
func (d *Driver) List(ctx context.Context, prefix string) iter.Seq2[trace.Object, error] {
	return func(yield func(trace.Object, error) bool) {
		// Only the folder part of the prefix can be opened; the rest filters.
		start := d.path(filepath.FromSlash(prefix[:strings.LastIndexByte(prefix, '/')+1]))
		err := filepath.WalkDir(start, func(path string, entry fs.DirEntry, err error) error {
			if err == nil {
				err = ctx.Err()
			}
			if errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			if err != nil || entry.IsDir() {
				return err
			}
			relative, err := filepath.Rel(d.root, path)
			if err != nil {
				return err
			}
			key := filepath.ToSlash(relative)
			if !trace.ValidKey(key) || !strings.HasPrefix(key, prefix) {
				return nil
			}
			st, err := entry.Info()
			if errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			if err != nil {
				return err
			}
			if !yield(trace.Object{Key: key, Info: infoOf(st)}, nil) {
				return fs.SkipAll
			}
			return nil
		})
		if err != nil {
			yield(trace.Object{}, fmt.Errorf("list %s: %w", prefix, classify(err)))
		}
	}
}

func infoOf(st fs.FileInfo) trace.Info {
	return trace.Info{Size: proto.Bytes(st.Size()), Modified: st.ModTime()}
}

// classify puts the sentinel in front of a file system's error.
func classify(err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%w: %w", trace.ErrNotFound, err)
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT), errors.Is(err, syscall.EFBIG):
		return fmt.Errorf("%w: %w", trace.ErrFull, err)
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS), errors.Is(err, syscall.ENOTDIR):
		return fmt.Errorf("%w: the option that names the folder must name one that we may write: %w", trace.ErrRefused, err)
	}
	return err
}

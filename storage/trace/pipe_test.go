package trace

import (
	"errors"
	"path/filepath"
	"syscall"
	"testing"
)

// TestReadFileOfAPipe: a pipe is refused at once; opening it would wait for its
// writer.
func TestReadFileOfAPipe(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := ReadFile(path); !errors.Is(err, ErrFormat) {
		t.Errorf("got %v, want ErrFormat", err)
	}
}

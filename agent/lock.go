package agent

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// errInUse is returned for a work folder that another agent works in.
var errInUse = errors.New("is in use by another agent")

// lockFolder keeps a second agent out of a work folder, which would deliver and
// tidy away what the first one writes, and in most cases work on its card. The
// kernel ends the lock with the process. A folder that cannot be locked (a full
// disk, some network file systems) is another error.
func lockFolder(dir string) (*os.File, error) {
	path := filepath.Join(dir, "lock")
	lock, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock the agent's work folder: %w", err)
	}
	switch err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); {
	case err == nil:
		return lock, nil
	case errors.Is(err, syscall.EWOULDBLOCK):
		lock.Close() //nolint:errcheck // nothing was written
		return nil, fmt.Errorf("work folder %s %w: end that one, or give this one a card and a --work-dir of its own", dir, errInUse)
	default:
		lock.Close() //nolint:errcheck // nothing was written
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
}

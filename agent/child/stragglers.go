package child

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// endStragglers kills what a run left behind: every process below the guard
// that is younger than the run's own, unless it belongs to something older than
// the run other than the runner (an MPS daemon, whose server starts late). It
// returns once they are gone, or an error when that cannot be had.
func endStragglers(t *tree, began uint64, within time.Duration) error {
	deadline := time.Now().Add(within)
	for {
		left, err := stragglers(t, began)
		if err != nil || len(left) == 0 {
			return err
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%d processes of the run are still there %v after they were killed", len(left), within)
		}
		for _, p := range left {
			if err := endProcess(p.pid, time.Until(deadline)); err != nil {
				return err
			}
		}
	}
}

func stragglers(t *tree, began uint64) ([]process, error) {
	guard := t.cmd.Process.Pid
	all, err := descendants(guard)
	if err != nil {
		return nil, err
	}
	byPID := make(map[int]process, len(all))
	for _, p := range all {
		byPID[p.pid] = p
	}
	var left []process
	for _, p := range all {
		if p.pid == t.hello.PID || p.zombie {
			continue
		}
		if began == 0 {
			return nil, errors.New("the run's start is not known")
		}
		ofOlder := false
		for at := p; at.pid != 0 && at.pid != t.hello.PID; at = byPID[at.parent] {
			ofOlder = ofOlder || at.started < began
		}
		if !ofOlder {
			left = append(left, p)
		}
	}
	return left, nil
}

// endProcess kills one process and waits until it is gone.
func endProcess(pid int, within time.Duration) error {
	fd, err := unix.PidfdOpen(pid, 0)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("open process %d: %w", pid, err)
	}
	defer unix.Close(fd) //nolint:errcheck // read only
	if err := unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("kill process %d: %w", pid, err)
	}
	for {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(max(within, 0)/time.Millisecond))
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return fmt.Errorf("wait for process %d: %w", pid, err)
		case n == 0:
			return fmt.Errorf("process %d is still there %v after it was killed", pid, within)
		default:
			return nil
		}
	}
}

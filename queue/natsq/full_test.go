package natsq_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/oomfleet/oomfleet/proto"
	"github.com/oomfleet/oomfleet/queue"
	"github.com/oomfleet/oomfleet/queue/natsq"
	"github.com/oomfleet/oomfleet/queue/queuetest"
)

// room lets a server write that many bytes into each file: with 0 it finds what
// it would find on a full disk.
func (c *child) room(bytes uint64) {
	c.t.Helper()
	if err := unix.Prlimit(c.cmd.Process.Pid, unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: bytes, Max: unix.RLIM_INFINITY}, nil); err != nil {
		c.t.Fatal(err)
	}
}

// TestServerDiskFull: what the server cannot write is refused with words that say
// so, whether the server answers with others or not at all, and is taken once it
// can, for results after a start of the server.
func TestServerDiskFull(t *testing.T) {
	t.Parallel() // the server does not answer for ackLimit
	srv := startChild(t)
	q := open(t, natsq.Config{URL: srv.url})
	ctx := within(t, patience)
	var tasks []proto.Task
	for i := range 6 {
		tasks = append(tasks, queuetest.NewTask("1", i, proto.Fence(7+i)))
	}
	if n, err := q.Publish(ctx, tasks[:2]); n != 2 || err != nil {
		t.Fatal(n, err)
	}
	if err := errors.Join(q.Room(ctx), q.Room(ctx)); err != nil {
		t.Errorf("with room: %v", err)
	}
	srv.room(0)
	if err := q.Room(ctx); !errors.Is(err, queue.ErrNoRoom) {
		t.Errorf("room: %v", err)
	}
	n, err := q.Publish(ctx, tasks[2:])
	if n != 0 || !errors.Is(err, queue.ErrNoRoom) || !strings.Contains(err.Error(), "takes nothing more (its disk or its limit is full?): ") {
		t.Errorf("tasks: %d, %v", n, err)
	}
	result := queuetest.NewResult(tasks[0], "gpu-1")
	err = q.Report(ctx, result)
	if !errors.Is(err, queue.ErrNoRoom) || !strings.Contains(err.Error(), srv.url) {
		t.Errorf("result: %v", err)
	}
	srv.room(unix.RLIM_INFINITY)
	if n, err := q.Publish(ctx, tasks); n != len(tasks) || err != nil {
		t.Errorf("with room again: %d, %v", n, err)
	}
	if waiting, err := q.Waiting(ctx); len(waiting) != len(tasks) || err != nil || q.Room(ctx) != nil {
		t.Errorf("%d tasks wait, %v", len(waiting), err)
	}
	srv.kill()
	srv.start()
	if err := again(ctx, func(ctx context.Context) error { return q.Report(ctx, result) }); err != nil {
		t.Errorf("with room again, and started again: %v", err)
	}
}

package memq_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/oomfleet/oomfleet/proto"
	"github.com/oomfleet/oomfleet/queue"
	"github.com/oomfleet/oomfleet/queue/memq"
	"github.com/oomfleet/oomfleet/queue/queuetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestConformance runs in virtual time, so its leases take none.
func TestConformance(t *testing.T) {
	queuetest.Run(t, queuetest.Suite{Wrap: synctest.Test, Start: func(t *testing.T, l queuetest.Limits) func() queue.Queue {
		first := newQueue(t, memq.Config{Lease: l.Lease, ReportLease: l.ReportLease, MaxTasks: l.MaxTasks, MaxMessage: l.MaxMessage})
		return func() queue.Queue { return first.Client() }
	}})
}

func newQueue(t *testing.T, cfg memq.Config) *memq.Queue {
	t.Helper()
	q, err := memq.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return q
}

// TestManualClock: with a clock of its own a queue stands still until told.
func TestManualClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clock := memq.NewManual(time.Unix(0, 0))
		q := newQueue(t, memq.Config{Lease: time.Hour, Clock: clock})
		task := queuetest.NewTask("1", 1, 7)
		if _, err := q.Publish(t.Context(), []proto.Task{task}); err != nil {
			t.Fatal(err)
		}
		d, err := q.Next(t.Context(), task.Pool())
		if err != nil {
			t.Fatal(err)
		}
		clock.Advance(59 * time.Minute)
		if err := d.Extend(t.Context()); err != nil {
			t.Fatal(err)
		}
		got := make(chan error, 1)
		go func() { _, err := q.Next(t.Context(), task.Pool()); got <- err }()
		synctest.Wait()
		clock.Advance(59 * time.Minute)
		synctest.Wait()
		select {
		case err := <-got:
			t.Fatalf("delivered within its lease: %v", err)
		default:
		}
		clock.Advance(time.Minute)
		if err := <-got; err != nil {
			t.Fatal(err)
		}
	})
}

func TestNewRefuses(t *testing.T) {
	if _, err := memq.New(memq.Config{Lease: -1}); err == nil {
		t.Fatal("no error")
	}
}

// TestNextWhileRemoved: a task that is removed at the moment of its delivery is
// delivered whole or not at all. The race detector sees more than the decoding.
func TestNextWhileRemoved(t *testing.T) {
	q := newQueue(t, memq.Config{})
	tasks := queuetest.Tasks("1", 500)
	pool := tasks[0].Pool()
	if _, err := q.Publish(t.Context(), tasks); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		defer cancel()
		for _, task := range tasks {
			if err := q.Remove(ctx, pool, []proto.TaskID{task.ID}); err != nil {
				t.Error(err)
			}
		}
	})
	wg.Go(func() {
		for {
			d, err := q.Next(ctx, pool)
			if err != nil {
				return
			}
			if _, err := d.Task(); err != nil {
				t.Error(err)
			}
		}
	})
	wg.Wait()
}

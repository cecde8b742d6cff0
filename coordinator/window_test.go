package coordinator

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/oomfleet/oomfleet/proto"
	"github.com/oomfleet/oomfleet/queue"
	"github.com/oomfleet/oomfleet/queue/memq"
	"github.com/oomfleet/oomfleet/storage/registry"
)

// unserved is a matrix of n cells under a driver that no agent has, each with a
// recording of its own.
func unserved(n int) string {
	text := strings.Replace(source("[64]"), driver, "999.1", 1)
	var batches []string
	for i := range n {
		batches = append(batches, fmt.Sprint(i+1))
	}
	return text + "  batch: [" + strings.Join(batches, ", ") + "]\nsearch: {strategy: bisect}\n"
}

// TestNobodyStarves: a sweep that nobody serves is larger than the queue. The
// queue keeps room for others, and theirs settles.
func TestNobodyStarves(t *testing.T) {
	f := newFleet(t)
	q, err := memq.New(memq.Config{ReportLease: 300 * time.Millisecond, MaxTasks: 60})
	if err != nil {
		t.Fatal(err)
	}
	f.queue, f.cfg.TasksPerPool = q, 40
	c, stop := f.start()
	huge, err := c.Submit(f.ctx, SubmitRequest{Source: unserved(300), Origin: proto.OriginMeasured})
	if err != nil {
		t.Fatal(err)
	}
	f.wait("all tasks of the huge sweep", func(v registry.View) bool { return openOf(v, "999.1") == 300 })
	f.agents(2, f.honest)
	f.check(f.settled(f.submit(c, lengths)))
	waiting, err := f.queue.Waiting(f.ctx)
	if err != nil || len(waiting) != 40 {
		t.Errorf("%d tasks wait in the queue, %v, want a window of 40", len(waiting), err)
	}
	f.counted(map[string]float64{"oomfleet_tasks_held": 260})
	// An agent comes. Everything is done although little of it is in the queue
	// at once, and a leader that follows knows what was held back.
	stop()
	c, stop = f.start()
	most := f.serve("999.1")
	if r := f.settled(huge.Matrix.ID); r.Counts.Settled() != 300 || r.Counts.Failed != 0 {
		t.Errorf("%+v", r.Counts)
	}
	if n := most(); n > 40 {
		t.Errorf("%d tasks were in the queue at once", n)
	}
	f.counted(map[string]float64{"oomfleet_tasks_held": 0})
	stop()
}

// openOf counts the open tasks under a driver.
func openOf(v registry.View, driver string) (n int) {
	for _, rec := range v.Records {
		if rec.Cell.Driver == driver {
			n += len(rec.Open)
		}
	}
	return n
}

// serve is an agent of another driver; most is the most tasks that it ever saw
// waiting.
func (f *fleet) serve(driver string) (most func() int) {
	var mu sync.Mutex // guards seen
	seen := 0
	f.background(func(ctx context.Context) error {
		for ctx.Err() == nil {
			d, err := f.queue.Next(ctx, proto.PoolOf(proto.OriginMeasured, gpu, driver))
			if err != nil {
				return nil // ctx has ended
			}
			waiting, err := f.queue.Waiting(ctx)
			if err != nil {
				return nil
			}
			mu.Lock()
			seen = max(seen, len(waiting))
			mu.Unlock()
			err = f.honest(ctx, d, "late-comer")
			if errors.Is(err, queue.ErrFull) { // of reports: the intake is slower
				err = d.Retry(ctx, time.Millisecond)
			}
			if err != nil && ctx.Err() == nil {
				return err
			}
		}
		return nil
	})
	return func() int {
		mu.Lock()
		defer mu.Unlock()
		return seen
	}
}

// TestCancelledBacklogIsForgotten: what is held back and cancelled is never
// published.
func TestCancelledBacklogIsForgotten(t *testing.T) {
	f := newFleet(t)
	f.cfg.TasksPerPool = 10
	published := make(chan []proto.Task, 1000)
	f.queue = &spied{f.queue, published}
	c, stop := f.start()
	reply, err := c.Submit(f.ctx, SubmitRequest{Source: unserved(50), Origin: proto.OriginMeasured})
	if err != nil {
		t.Fatal(err)
	}
	f.wait("all tasks", func(v registry.View) bool { return openOf(v, "999.1") == 50 })
	if _, err := c.Cancel(f.ctx, reply.Matrix.ID); err != nil {
		t.Fatal(err)
	}
	f.check(f.settled(f.submitServed(c)))
	stop()
	close(published)
	n := 0
	for tasks := range published {
		for _, task := range tasks {
			if task.Cell.Driver == "999.1" {
				n++
			}
		}
	}
	if n != 10 {
		t.Errorf("%d tasks of the cancelled sweep were published, want the window of 10", n)
	}
	f.counted(map[string]float64{"oomfleet_tasks_held": 0})
}

// submitServed submits a small matrix that agents serve.
func (f *fleet) submitServed(c *Coordinator) proto.MatrixID {
	f.agents(2, f.honest)
	return f.submit(c, lengths)
}

// TestWindowGrowsWithAgents: many agents have more waiting for them.
func TestWindowGrowsWithAgents(t *testing.T) {
	f := newFleet(t)
	f.cfg.TasksPerPool = 10
	c, stop := f.start()
	stop()
	pool := stack.Pool(proto.OriginMeasured)
	if n := c.windowOf(pool); n != 10 {
		t.Errorf("a window of %d without agents", n)
	}
	var agents []proto.AgentInfo
	for i := range 25 {
		agents = append(agents, proto.AgentInfo{ID: proto.AgentID(fmt.Sprint(i)), Origin: proto.OriginMeasured, Stack: stack})
	}
	c.roster.set(agents, time.Time{})
	if n := c.windowOf(pool); n != 100 {
		t.Errorf("a window of %d for 25 agents", n)
	}
	if n := c.windowOf("other"); n != 10 {
		t.Errorf("a window of %d for another pool", n)
	}
}

package agent

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/oomfleet/oomfleet/proto"
	"github.com/oomfleet/oomfleet/queue"
)

// errCancelled is the cause with which a run ends whose task nobody wants any
// more.
var errCancelled = errors.New("its task was cancelled")

// current is the run in progress, for whoever may end it.
type current struct {
	mu   sync.Mutex // guards the rest
	task proto.Task
	end  context.CancelCauseFunc // nil for none
}

// begin makes a task the one in progress; its context ends by stop as well. end
// must be called.
func (c *current) begin(ctx context.Context, task proto.Task) (run context.Context, end func()) {
	run, cancel := context.WithCancelCause(ctx)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.task, c.end = task, cancel
	return run, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.end = nil
		cancel(nil)
	}
}

// stop ends the run in progress if this is what was said of it.
func (c *current) stop(said proto.Control) (task proto.TaskID, stopped bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.end == nil || !said.Stops(c.task) {
		return "", false
	}
	c.end(errCancelled)
	return c.task.ID, true
}

// listen hears what coordinators tell this agent's pool, until the returned
// function is called, which joins.
func (a *Agent) listen(ctx context.Context, id proto.AgentID, pool proto.Pool) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() { // joined by stop
		defer close(done)
		for ctx.Err() == nil {
			err := a.deps.Queue.Listen(ctx, pool, func(c proto.Control) { a.heard(id, c) })
			if err == nil || errors.Is(err, queue.ErrClosed) {
				return
			}
			// Work goes on: a cancelled run then ends by itself, and its result
			// is counted as late.
			a.log.Warn("coordinators cannot be heard, trying again", "error", err)
			wait(ctx, a.cfg.LongestPause)
		}
	}()
	return func() {
		cancel()
		<-done
	}
}

// drainLimit is for how long a run may go on where a coordinator that asks an
// agent to drain says nothing else.
const drainLimit = 10 * time.Minute

func (a *Agent) heard(id proto.AgentID, c proto.Control) {
	if task, stopped := a.running.stop(c); stopped {
		a.log.Info("run is ended, its task was cancelled", "task", task)
	}
	if c.Drains(id) {
		within := time.Duration(c.DrainSeconds) * time.Second
		if within <= 0 {
			within = drainLimit
		}
		a.Drain("an operator asked it to", within)
	}
}

// drain is whether the agent is to end, and by when.
type drain struct {
	wake chan struct{} // capacity 1, no data

	mu  sync.Mutex // guards the rest
	why string     // empty for not at all
	by  time.Time
}

// Drain lets the agent take no more work: what it runs may go on for that long,
// is then ended and handed back, and Run returns. The agent announces that it
// drains. It returns at once and may be called from anywhere; of several calls
// the shortest time counts.
func (a *Agent) Drain(why string, within time.Duration) {
	d := &a.drain
	by := time.Now().Add(within)
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.why != "" && !by.Before(d.by) {
		return
	}
	if d.why == "" {
		d.why = why
	}
	d.by = by
	select {
	case d.wake <- struct{}{}:
	default:
	}
}

// awaitDrain carries a drain out: rest ends the wait for work at once, end
// everything when the time is up.
func (a *Agent) awaitDrain(ctx context.Context, rest, end context.CancelFunc) {
	var late <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-late:
			a.log.Warn("the time to drain is up, what runs is handed back")
			end()
			return
		case <-a.drain.wake:
			a.drain.mu.Lock()
			why, left := a.drain.why, time.Until(a.drain.by)
			a.drain.mu.Unlock()
			a.log.Info("draining: no more work is taken", "why", why, "within", left)
			a.self.drain()
			rest()
			timer := time.NewTimer(left)
			defer timer.Stop() // a few at most
			late = timer.C
		}
	}
}

package agent

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/oomfleet/oomfleet/agent/probe"
	"github.com/oomfleet/oomfleet/proto"
	"github.com/oomfleet/oomfleet/queue"
)

// deliver brings a finished run home: outbox, trace store, queue. It tries
// until it has succeeded or ctx ends; the lease is renewed meanwhile. What was
// not delivered stays in the outbox.
func (a *Agent) deliver(ctx context.Context, task proto.Task, r proto.Result, seen probe.Observation, on probe.Description) error {
	p := parcel{Result: r}
	if len(seen.Events) > 0 {
		p.events, p.meta = seen.Events, metaOf(task, on, seen.Evidence)
	}
	if err := a.outbox.put(p); err != nil {
		// Without a disk the run is still delivered, only not across a crash.
		a.log.Error("outbox is not writable, free disk space in the work folder", "error", err)
	}
	pause := a.cfg.Pause / 5
	for {
		err := a.send(ctx, p)
		if err == nil {
			a.outbox.remove(p)
			a.metrics.outbox.Set(float64(a.outbox.count()))
			return nil
		}
		a.metrics.outbox.Set(float64(a.outbox.count()))
		if ctx.Err() != nil {
			return fmt.Errorf("result of %s stays in the outbox: %w", r.Task, err)
		}
		a.metrics.deliveryFailures.Inc()
		a.log.Warn("result cannot be delivered yet, it is kept and tried again", "task", r.Task, "error", err)
		a.self.state(proto.AgentQuarantined, "a finished run waits to be delivered: "+err.Error(), r.Task)
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
		pause = min(2*pause, a.cfg.Presence*4)
	}
}

// send stores the trace and reports the result, once.
func (a *Agent) send(ctx context.Context, p parcel) error {
	if len(p.events) > 0 {
		ref, err := a.deps.Traces.PutTrace(ctx, p.events, p.meta)
		if err != nil {
			return fmt.Errorf("store the trace: %w", err)
		}
		p.Result.Evidence.Trace = &ref
	}
	err := a.deps.Queue.Report(ctx, p.Result)
	if errors.Is(err, queue.ErrTooLarge) {
		// Long texts are all that can make a result large; what they led to
		// is in Outcome and Why.
		e := &p.Result.Evidence
		e.Traceback, e.StderrTail, e.Settings = "", "", nil
		e.Message = e.Message[:min(len(e.Message), 4096)]
		err = a.deps.Queue.Report(ctx, p.Result)
	}
	if err != nil {
		return fmt.Errorf("report the result: %w", err)
	}
	return nil
}

// deliverLeftovers delivers what an agent that died has left in the outbox. The
// registry decides whether it still counts.
func (a *Agent) deliverLeftovers(ctx context.Context) {
	for _, p := range a.outbox.list(a.log) {
		if err := a.send(ctx, p); err != nil {
			a.log.Warn("leftover result stays in the outbox", "task", p.Result.Task, "error", err)
			continue
		}
		a.log.Info("leftover result delivered", "task", p.Result.Task, "outcome", p.Result.Outcome)
		a.outbox.remove(p)
	}
	a.metrics.outbox.Set(float64(a.outbox.count()))
}

package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/oomfleet/oomfleet/agent/outcome"
	"github.com/oomfleet/oomfleet/agent/probe"
	"github.com/oomfleet/oomfleet/proto"
	"github.com/oomfleet/oomfleet/queue"
	"github.com/oomfleet/oomfleet/storage/trace"
)

// handBack bounds the calls that must still be made when the agent ends.
const handBack = 5 * time.Second

// ending is what a delivery comes to. The zero value hands the task back at once.
type ending struct {
	// home says that the result is with the queue: the task is acked.
	home bool
	// delay is how long the task rests before it is delivered again.
	delay time.Duration
	// fault is the agent's own, nil for none.
	fault error
}

// work runs one task from delivery to ack. An error is a fault of the agent's
// own; the task is then with the registry (reported) or back in the queue.
func (a *Agent) work(ctx context.Context, d queue.Delivery, on probe.Description) error {
	task, err := d.Task()
	if err == nil {
		err = task.Validate()
	}
	if err != nil {
		a.log.Error("task dropped", "error", err)
		if err := d.Drop(ctx, err.Error()); err != nil {
			a.log.Warn("bad task will come again", "error", err)
		}
		return nil
	}
	this := run{task.ID, task.Fence}
	if a.reported[this] {
		delete(a.reported, this)
		a.settle(ctx, d, this, ending{home: true})
		return nil
	}
	a.self.state(proto.AgentBusy, "", task.ID)
	stop := a.keepLease(ctx, d)
	end := a.attempt(ctx, task, on)
	stop() // before the last word: a renewal after it would hold back a task that was handed back
	a.settle(ctx, d, this, end)
	return end.fault
}

// attempt runs a task and brings its result home.
func (a *Agent) attempt(ctx context.Context, task proto.Task, on probe.Description) ending {
	log := a.log.With("task", task.ID, "cell", task.CellID, "fence", task.Fence)
	// Asked again now: the wait for this task may have been long.
	fresh, err := a.describe(ctx)
	switch {
	case ctx.Err() != nil:
		return ending{}
	case err != nil:
		return ending{delay: a.cfg.Pause, fault: err}
	case !fresh.Equal(on):
		return ending{} // the next round registers the new stack
	}
	running, end := a.running.begin(ctx, task)
	seen, err := a.observe(running, task, on)
	ended := context.Cause(running)
	end()
	if err != nil {
		seen.Evidence.Fault = err.Error()
	}
	p := parcel{Result: a.result(task, on, seen)}
	if verdict := p.Result.Outcome.Verdict(); ended != nil && verdict != proto.VerdictPass && verdict != proto.VerdictFail {
		// Whatever ended the agent, or the task, may have ended the run too.
		if errors.Is(ended, errCancelled) {
			a.metrics.cancelled.Inc()
			return ending{home: true}
		}
		log.Info("run ended with the agent, task handed back")
		return ending{}
	}
	if len(seen.Events) > 0 && task.Keeps(p.Result.Outcome, p.Result.Evidence.Meters) {
		p.events, p.meta = seen.Events, metaOf(task, on, seen.Evidence)
	}
	a.keep(&p)
	r := p.Result
	log.Info("run finished", "kind", task.Kind, "quota_bytes", int64(task.Quota), "outcome", r.Outcome, "why", r.Why)
	a.metrics.finished(task, r)
	if err := a.deliver(ctx, p); err != nil {
		return ending{delay: a.cfg.Pause, fault: err}
	}
	if r.Outcome == proto.OutcomeAgentFault {
		a.suspect = true
		return ending{home: true, fault: errors.New(r.Why)}
	}
	return ending{home: true}
}

// observe runs the task, unless this agent cannot enforce its quota.
func (a *Agent) observe(ctx context.Context, task proto.Task, on probe.Description) (probe.Observation, error) {
	if kind := task.Cell.QuotaKind; task.Kind == proto.TaskProbe && !slices.Contains(on.QuotaKinds, kind) {
		return probe.Observation{Evidence: proto.Evidence{Exception: "Unsupported", Phase: "start",
			Message: fmt.Sprintf("this agent cannot enforce a %s quota", kind)}}, nil
	}
	return a.deps.Prober.Run(ctx, task)
}

func (a *Agent) result(task proto.Task, on probe.Description, seen probe.Observation) proto.Result {
	r := proto.Result{Task: task.ID, Protocol: proto.Version, Fence: task.Fence, CellID: task.CellID, Origin: on.Origin(), Kind: task.Kind,
		Quota: task.Quota, Agent: IDOf(on.Card.UUID), Stack: on.Stack, Card: on.Card, Evidence: seen.Evidence}
	r.Outcome, r.Why = outcome.Classify(outcome.Run{Task: task, Stack: on.Stack, Evidence: seen.Evidence, BadCell: seen.BadCell})
	return r
}

// settle says the last word on a delivery: ack, or hand back.
func (a *Agent) settle(ctx context.Context, d queue.Delivery, this run, end ending) {
	// Detached: a task must not wait for its lease because the agent ends.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), handBack)
	defer cancel()
	if !end.home {
		if err := d.Retry(ctx, end.delay); err != nil {
			a.log.Warn("task comes back when its lease ends", "task", this.task, "error", err)
		}
		return
	}
	if err := d.Ack(ctx); err != nil {
		a.reported[this] = true
		a.log.Warn("ack failed, the task will come again", "task", this.task, "error", err)
	}
}

// keepLease renews the task's lease, well within it, until stop is called.
func (a *Agent) keepLease(ctx context.Context, d queue.Delivery) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() { // joined by stop
		defer close(done)
		tick := time.NewTicker(max(d.Lease()/4, time.Millisecond))
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				if err := d.Extend(ctx); err != nil && ctx.Err() == nil {
					// The run goes on: results are fenced by the registry.
					a.metrics.leaseFailures.Inc()
					a.log.Warn("lease was not renewed", "error", err)
				}
			}
		}
	}()
	return func() {
		cancel()
		<-done
	}
}

// metaOf is what a trace file says of its run.
func metaOf(task proto.Task, on probe.Description, e proto.Evidence) trace.Meta {
	value := func(b *proto.Bytes) proto.Bytes {
		if b == nil {
			return 0
		}
		return *b
	}
	m := e.Meters
	return trace.Meta{Cell: task.Cell, Stack: on.Stack, Origin: on.Origin(), Settings: e.Settings, PeakAllocated: value(m.PeakAllocated),
		PeakReserved: value(m.PeakReserved), ProcessPeak: value(m.ProcessPeak), Context: value(m.Context), Weights: value(m.Weights),
		DeviceTotal: on.Card.Total, Truncated: e.TraceTruncated}
}

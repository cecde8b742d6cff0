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
	log := a.log.With("task", task.ID, "cell", task.CellID, "fence", task.Fence)
	a.self.state(proto.AgentBusy, "", task.ID)
	stop := a.keepLease(ctx, d)
	defer stop()
	// Asked again now: the wait for this task may have been long.
	fresh, err := a.deps.Prober.Describe(ctx)
	if err == nil && !fresh.Equal(on) {
		return a.giveBack(ctx, d, 0, nil) // the next round registers the new stack
	}
	if err != nil {
		return a.giveBack(ctx, d, a.cfg.Pause, err)
	}
	seen, err := a.observe(ctx, task, on)
	if ctx.Err() != nil {
		log.Info("run ended with the agent, task handed back")
		return a.giveBack(ctx, d, 0, nil)
	}
	if err != nil {
		seen.Evidence.Fault = err.Error()
	}
	result := a.result(task, on, seen)
	log.Info("run finished", "kind", task.Kind, "quota", int64(task.Quota), "outcome", result.Outcome, "why", result.Why)
	a.metrics.finished(task, result)
	if err := a.deliver(ctx, task, result, seen, on); err != nil {
		return a.giveBack(ctx, d, a.cfg.Pause, err)
	}
	if err := d.Ack(ctx); err != nil {
		log.Warn("ack failed, the task may run again", "error", err)
	}
	if result.Outcome == proto.OutcomeAgentFault {
		return errors.New(result.Why)
	}
	return nil
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

// giveBack returns a task to the queue and passes why on.
func (a *Agent) giveBack(ctx context.Context, d queue.Delivery, delay time.Duration, why error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), handBack)
	defer cancel()
	if err := d.Retry(ctx, delay); err != nil {
		a.log.Warn("task comes back when its lease ends", "error", err)
	}
	return why
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

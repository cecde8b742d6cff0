package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/oomfleet/oomfleet/proto"
	"github.com/oomfleet/oomfleet/queue"
	"github.com/oomfleet/oomfleet/storage/trace"
)

// waits is what an agent in quarantine says when the trace store or the queue
// does not take a finished run.
const waits = "a finished run waits to be delivered: "

// keep puts a finished run into the outbox. A run whose events can never be a
// trace becomes a fault of the agent's own: trying to store them would never end.
func (a *Agent) keep(p *parcel) {
	err := a.outbox.put(*p)
	if err != nil && len(p.events) > 0 {
		if bad := trace.Encode(io.Discard, p.events, p.meta); bad != nil {
			p.events = nil
			r := &p.Result
			r.Evidence.Fault = fmt.Sprintf("the runner's trace cannot be written: %v: use the runner that came with this build", bad)
			r.Outcome, r.Why = proto.OutcomeAgentFault, r.Evidence.Fault
			err = a.outbox.put(*p)
		}
	}
	if err != nil {
		// Without a disk the run is still delivered, only not across a crash.
		a.log.Error("outbox is not writable, free disk space in the work folder", "error", err)
	}
	a.metrics.outbox.Set(float64(a.outbox.count()))
}

// deliver brings a finished run home: trace store, then queue. It tries until
// it has succeeded, ctx ends or the queue is closed; the lease is renewed
// meanwhile. What was not delivered stays in the outbox.
func (a *Agent) deliver(ctx context.Context, p parcel) error {
	task := p.Result.Task
	for pause := a.cfg.Pause / 5; ; pause = min(2*pause, a.cfg.Presence*4) {
		err := a.send(ctx, p)
		if err == nil {
			a.outbox.remove(p)
			a.metrics.outbox.Set(float64(a.outbox.count()))
			a.self.state(proto.AgentBusy, "", task)
			return nil
		}
		if ctx.Err() != nil || errors.Is(err, queue.ErrClosed) {
			return fmt.Errorf("deliver the result of %s: %w", task, err)
		}
		a.metrics.deliveryFailures.Inc()
		a.log.Warn("result cannot be delivered yet, it is kept and tried again", "task", task, "error", err)
		a.self.state(proto.AgentQuarantined, waits+err.Error(), task)
		wait(ctx, pause)
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
		err = a.deps.Queue.Report(ctx, trimmed(p.Result))
	}
	if err != nil {
		return fmt.Errorf("report the result: %w", err)
	}
	return nil
}

// trimmed is a result without what can make one large. What those texts led to
// is in Outcome and Why.
func trimmed(r proto.Result) proto.Result {
	const most = 4096 // bytes of one text
	e := &r.Evidence
	e.Traceback, e.Settings, e.Dtypes, e.Meters.Missing = "", nil, nil, nil
	e.StderrTail = "(left out, with traceback, settings and dtypes: the result was larger than the queue takes)"
	for _, text := range []*string{&e.Exception, &e.Message, &e.Fault, &r.Why} {
		if len(*text) > most {
			*text = strings.ToValidUTF8((*text)[:most], "") + " (cut)"
		}
	}
	return r
}

// deliverLeftovers delivers what was left in the outbox when an agent died or
// ended before the store or the queue took it. The registry decides whether it
// still counts. An error means that something could not be delivered yet.
func (a *Agent) deliverLeftovers(ctx context.Context) error {
	defer func() { a.metrics.outbox.Set(float64(a.outbox.count())) }()
	for _, name := range a.outbox.tidy(a.log) {
		p, err := a.outbox.read(name)
		if err != nil {
			a.log.Error("leftover result cannot be read, it is put aside", "name", name, "error", err)
			a.outbox.putAside(name)
			continue
		}
		if err := a.send(ctx, p); err != nil {
			a.metrics.deliveryFailures.Inc()
			return fmt.Errorf("%s%w", waits, err)
		}
		a.log.Info("leftover result delivered", "task", p.Result.Task, "outcome", p.Result.Outcome)
		a.reported[run{p.Result.Task, p.Result.Fence}] = true
		a.outbox.remove(p)
	}
	return nil
}

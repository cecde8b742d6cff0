package coordinator

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/oomfleet/oomfleet/proto"
	"github.com/oomfleet/oomfleet/queue"
	"github.com/oomfleet/oomfleet/storage/registry"
)

// intake commits each report and acks it afterwards, so that a report is only
// lost from the queue once the registry has it. It returns nil when ctx ends,
// and an error that satisfies stepDown.
func (c *Coordinator) intake(ctx context.Context) error {
	for ctx.Err() == nil {
		report, err := c.queue.NextReport(ctx)
		if err == nil {
			err = c.take(ctx, report)
		}
		switch {
		case err == nil || ctx.Err() != nil:
		case stepDown(err):
			return err
		default:
			c.log.Warn("intake was interrupted, it goes on", "error", err)
			pause(ctx, c.cfg.Pause, nil)
		}
	}
	return nil
}

// take commits one report and acks it. A report that no try can commit is
// logged and acked as well, or it would come again for ever.
func (c *Coordinator) take(ctx context.Context, report queue.Report) error {
	var result proto.Result
	err := c.guard(pieceReport, "this log", func() (err error) {
		if result, err = report.Result(); err == nil {
			result = fitForLog(result)
		}
		return err
	})
	if errors.Is(err, queue.ErrForeign) {
		c.metrics.foreign.Inc()
		c.log.Error("report speaks for somebody else, it is kept out: look who holds the sender's credential", "error", err)
		return ack(ctx, report)
	}
	if err != nil {
		c.metrics.unreadable.Inc()
		c.log.Error("report cannot be read, it is dropped", "error", err)
		return ack(ctx, report)
	}
	for {
		err := c.commit(ctx, result)
		switch {
		case err == nil:
			return ack(ctx, report)
		case errors.Is(err, registry.ErrTooLarge):
			c.metrics.unreadable.Inc()
			c.log.Error("result is larger than the registry takes, it is dropped", "task", result.Task, "agent", result.Agent, "error", err)
			return ack(ctx, report)
		case stepDown(err) || ctx.Err() != nil:
			return err // not acked: the next leader gets it
		}
		c.log.Warn("result was not committed, it is proposed again", "task", result.Task, "error", err)
		pause(ctx, c.cfg.Pause, nil)
	}
}

// ackTime bounds an ack that outlives the duties.
const ackTime = 2 * time.Second

// ack is detached from the duties' end: what was committed and not acked comes
// again to the next leader, which counts it as late.
func ack(ctx context.Context, report queue.Report) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), ackTime)
	defer cancel()
	if err := report.Ack(ctx); err != nil {
		return fmt.Errorf("ack report: %w", err)
	}
	return nil
}

// commit offers the result to the registry and counts what came of it.
func (c *Coordinator) commit(ctx context.Context, result proto.Result) error {
	if why := c.foreign(result); why != "" {
		c.metrics.foreign.Inc()
		c.log.Error("result is of another stack than its task, it is kept out", "task", result.Task, "agent", result.Agent, "why", why)
		return nil
	}
	reply, err := c.propose(ctx, registry.Command{TakeResult: &registry.TakeResult{Result: result}})
	if err != nil {
		return fmt.Errorf("commit result of task %s: %w", result.Task, err)
	}
	if !reply.Accepted {
		c.metrics.late.Inc()
		c.log.Info("result came late", "task", result.Task, "agent", result.Agent, "fence", result.Fence, "why", reply.Refused)
		return nil
	}
	c.metrics.results.WithLabelValues(string(result.Outcome)).Inc()
	c.log.Debug("result taken", "task", result.Task, "cell", result.CellID, "agent", result.Agent, "outcome", result.Outcome)
	return nil
}

// foreign says why a result cannot be of an agent that got the task, empty when
// it can: a task goes to agents of its cell's card model and driver alone, and
// the queue lets an agent report under its own stack alone. Not even an outcome
// that teaches nothing is taken from others: it would close the task.
func (c *Coordinator) foreign(r proto.Result) string {
	record := c.registry.View().Records[registry.Key{Origin: r.Origin, Cell: r.CellID}]
	if record == nil || proto.PoolOf(r.Origin, record.Cell.GPU, record.Cell.Driver) == r.Stack.Pool(r.Origin) {
		return ""
	}
	return fmt.Sprintf("the cell is for %s under driver %s, the agent has %s under %s", record.Cell.GPU, record.Cell.Driver, r.Stack.GPU, r.Stack.Driver)
}

// fitForLog keeps of the evidence what the registry keeps of it; output tails
// and tracebacks are in the trace store and have no place in the log. An
// outcome that this build does not know becomes an agent fault: the registry
// would refuse it, and its task would be run again without end.
func fitForLog(r proto.Result) proto.Result {
	e := r.Evidence
	r.Evidence = proto.Evidence{Meters: e.Meters, Seconds: e.Seconds, Trace: e.Trace}
	if !r.Outcome.Known() {
		r.Why = fmt.Sprintf("the agent speaks of an outcome %q that the coordinator does not know; upgrade the coordinator", r.Outcome)
		r.Outcome = proto.OutcomeAgentFault
	}
	if e.TraceTruncated {
		r.Evidence.Trace = nil // a trace that lost its start cannot be replayed
	}
	return r
}

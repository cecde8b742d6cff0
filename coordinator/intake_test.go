package coordinator

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/oomfleet/oomfleet/proto"
	"github.com/oomfleet/oomfleet/queue"
	"github.com/oomfleet/oomfleet/storage/registry"
)

// report is a delivery whose ack is counted.
type report struct {
	result proto.Result
	err    error
	acks   int
}

func (r *report) Result() (proto.Result, error) { return r.result, r.err }

func (r *report) Ack(context.Context) error { r.acks++; return nil }

// issueOne submits one cell and issues its recording by hand.
func issueOne(t *testing.T, f *fleet) (*Coordinator, proto.Task) {
	t.Helper()
	c, err := New(f.cfg, Deps{Registry: f.registry, Queue: f.queue, Traces: f.traces, Metrics: f.metrics})
	if err != nil {
		t.Fatal(err)
	}
	f.submit(c, "[64]")
	d := newDuty(c)
	if err := d.carryOut(f.ctx, f.registry.View()); err != nil {
		t.Fatal(err)
	}
	for _, rec := range f.registry.View().Records {
		return c, rec.Open[0].Task
	}
	panic("unreachable: one cell was submitted")
}

func TestTake(t *testing.T) {
	for _, test := range []struct {
		name   string
		change func(f *fleet, r *report)
		acks   int
		err    error
		runs   int // accepted runs
		metric string
	}{
		{name: "accepted", change: func(*fleet, *report) {}, acks: 1, runs: 1, metric: `oomfleet_results_total{outcome="pass"}`},
		{name: "unreadable", change: func(_ *fleet, r *report) { r.err = errors.New("not JSON") }, acks: 1, metric: "oomfleet_reports_dropped_total"},
		{name: "forged", change: func(_ *fleet, r *report) { r.err = fmt.Errorf("%w: x", queue.ErrForeign) }, acks: 1, metric: "oomfleet_results_foreign_total"},
		{name: "another driver", change: func(_ *fleet, r *report) { r.result.Stack.Driver += ".1" }, acks: 1, metric: "oomfleet_results_foreign_total"},
		{name: "another card", change: func(_ *fleet, r *report) { r.result.Stack.GPU = "NVIDIA A100" }, acks: 1, metric: "oomfleet_results_foreign_total"},
		{name: "another stack, teaching nothing", change: func(_ *fleet, r *report) {
			r.result.Stack.Driver, r.result.Outcome = "1", proto.OutcomeWrongStack
		}, acks: 1, metric: "oomfleet_results_foreign_total"},
		{name: "old fence", change: func(_ *fleet, r *report) { r.result.Fence++ }, acks: 1, metric: "oomfleet_results_late_total"},
		{name: "other protocol", change: func(_ *fleet, r *report) { r.result.Protocol++ }, acks: 1, metric: "oomfleet_results_late_total"},
		{name: "unknown outcome", change: func(_ *fleet, r *report) { r.result.Outcome = "melted" }, acks: 1, runs: 1, metric: `oomfleet_results_total{outcome="agent_fault"}`},
		{name: "too large", change: func(f *fleet, _ *report) {
			f.registry.fail = func(int, registry.Command) error { return registry.ErrTooLarge }
		}, acks: 1, metric: "oomfleet_reports_dropped_total"},
		{name: "not the leader", change: func(f *fleet, _ *report) { f.registry.lead(false) }, err: registry.ErrNotLeader},
		{name: "uncertain", change: func(f *fleet, _ *report) {
			first := f.registry.proposals + 1
			f.registry.fail = func(n int, _ registry.Command) error {
				if n == first {
					return registry.ErrUncertain
				}
				return nil
			}
		}, acks: 1, runs: 1, metric: "oomfleet_results_late_total"}, // committed, then offered again
	} {
		t.Run(test.name, func(t *testing.T) {
			f := newFleet(t)
			c, task := issueOne(t, f)
			r := &report{result: runOf(task, "a")}
			test.change(f, r)
			if err := c.take(f.ctx, r); !errors.Is(err, test.err) {
				t.Errorf("take: %v, want %v", err, test.err)
			}
			if r.acks != test.acks {
				t.Errorf("%d acks, want %d", r.acks, test.acks)
			}
			runs := 0
			for _, rec := range f.registry.View().Records {
				runs += len(rec.Runs)
			}
			if runs != test.runs {
				t.Errorf("%d runs accepted, want %d", runs, test.runs)
			}
			if test.metric != "" {
				f.counted(map[string]float64{test.metric: 1})
			}
		})
	}
}

// TestFitForLog: output tails stay out of the log, what the registry keeps goes
// in, and a trace that lost its start is not offered for replay.
func TestFitForLog(t *testing.T) {
	r := runOf(proto.Task{Kind: proto.TaskRecord, Cell: proto.Cell{SeqLen: 64}}, "a")
	got := fitForLog(r)
	if got.Evidence.StderrTail != "" || got.Evidence.Trace == nil || got.Evidence.Meters.PeakReserved == nil || got.Evidence.Seconds != 1 {
		t.Errorf("evidence %+v", got.Evidence)
	}
	r.Evidence.TraceTruncated = true
	if got := fitForLog(r); got.Evidence.Trace != nil {
		t.Error("a truncated trace is offered")
	}
}

// stuffed is a queue that refuses some publishes, all or nothing.
type stuffed struct {
	queue.Queue
	refuse func(tasks []proto.Task) error
}

func (s *stuffed) Publish(ctx context.Context, tasks []proto.Task) (int, error) {
	if err := s.refuse(tasks); err != nil {
		return 0, err
	}
	return s.Queue.Publish(ctx, tasks)
}

// TestTaskTooLarge: a cell that no message can carry is given up with a reason;
// the others of its batch go their way.
func TestTaskTooLarge(t *testing.T) {
	f := newFleet(t)
	f.queue = &stuffed{f.queue, func(tasks []proto.Task) error {
		if slices.ContainsFunc(tasks, func(t proto.Task) bool { return t.Cell.SeqLen == 66 }) {
			return queue.ErrTooLarge
		}
		return nil
	}}
	c, _ := f.start()
	f.agents(2, f.honest)
	r := f.settled(f.submit(c, "[64, 66, 68]"))
	if r.Counts.Failed != 1 || r.Counts.Certified != 2 {
		t.Fatalf("counts %+v", r.Counts)
	}
	for _, row := range r.Cells {
		if row.State == proto.CellFailed && (row.SeqLen != 66 || row.Reason == "") {
			t.Errorf("L%d failed: %s", row.SeqLen, row.Reason)
		}
	}
}

// TestQueueFull: what the queue has no room for waits in the registry and is
// published by the audit.
func TestQueueFull(t *testing.T) {
	f := newFleet(t)
	var calls atomic.Int64
	f.queue = &stuffed{f.queue, func([]proto.Task) error {
		if calls.Add(1)%3 != 0 {
			return queue.ErrFull
		}
		return nil
	}}
	c, _ := f.start()
	f.agents(2, f.honest)
	f.check(f.settled(f.submit(c, "[64]")))
}

package coordinator

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/oomfleet/oomfleet/allocator"
	"github.com/oomfleet/oomfleet/proto"
	"github.com/oomfleet/oomfleet/storage/registry"
	"github.com/oomfleet/oomfleet/storage/trace"
)

// poisoned is a trace store with one trace that breaks an invariant of whoever
// reads it.
type poisoned struct {
	Traces
	digest proto.Digest
}

func (p *poisoned) GetTrace(ctx context.Context, digest proto.Digest) ([]allocator.Event, trace.Meta, error) {
	if digest == p.digest {
		panic("block 7\nis freed twice")
	}
	return p.Traces.GetTrace(ctx, digest)
}

// TestPoisonedReplay: a recording that replay panics over costs its own cell its
// prediction and nobody else anything, and a later leader does not replay it.
func TestPoisonedReplay(t *testing.T) {
	f := newFleet(t)
	poison := traceRef(64).Digest
	var log bytes.Buffer
	start := func() (*Coordinator, func()) {
		c, err := New(f.cfg, Deps{Registry: f.registry, Queue: f.queue, Traces: &poisoned{f.traces, poison}, Metrics: f.metrics,
			Log: slog.New(slog.NewJSONHandler(&log, nil))})
		if err != nil {
			t.Fatal(err)
		}
		return c, f.background(c.Run)
	}
	c, stop := start()
	f.agents(1, f.honest)
	id := f.submit(c, "[64, 66]")
	r := f.settled(id)
	stop()
	for _, row := range r.Cells {
		want, reason := proto.CellCertified, ""
		if row.SeqLen == 64 {
			want, reason = proto.CellBisected, "internal error: block 7 is freed twice; please report with trace "+string(poison)
		}
		if row.State != want || row.Boundary.Boundary != truthOf(proto.Cell{SeqLen: row.SeqLen}) || !strings.Contains(row.Reason, reason) {
			t.Errorf("L%d settled as %s at %s: %q", row.SeqLen, row.State, row.Boundary.Boundary, row.Reason)
		}
	}
	f.counted(map[string]float64{`oomfleet_job_panics_total{job="replay"}`: 1, `oomfleet_job_panics_total{job="fit"}`: 0})
	if !strings.Contains(log.String(), "guard_test.go") || !strings.Contains(log.String(), `"job":"replay"`) {
		t.Errorf("the log has no stack: %s", log.String())
	}
	if actions := f.duty().planner.Next(f.registry.View()); len(actions.Predict) != 0 {
		t.Errorf("the next leader replays %+v", actions.Predict)
	}
}

// TestPoisonedWork: each other piece of the leader's work gives up with one line
// where it would have ended the process.
func TestPoisonedWork(t *testing.T) {
	t.Run("build", func(t *testing.T) {
		f := newFleet(t)
		d := f.duty()
		d.traces = &poisoned{f.traces, traceRef(66).Digest}
		if err := d.build(f.ctx, buildFrom(64, 66, 68, 72)); err != nil {
			t.Fatal(err)
		}
		p := f.registry.View().Programs[family]
		if p == nil || p.NeedMore || len(p.Inputs) != 4 || !strings.HasPrefix(p.Refused, "internal error: block 7 is freed twice; please report with trace 0") ||
			!strings.HasSuffix(p.Refused, "1 more") {
			t.Errorf("committed %+v", p)
		}
	})
	t.Run("fit", func(t *testing.T) {
		f := newFleet(t)
		// A record without a recording is none that a plan names.
		if err := f.duty().fit(f.ctx, registry.GroupKey{}, []*registry.Record{{}}); err != nil {
			t.Errorf("%v, and the fit would be made again", err)
		}
		if f.registry.index != 0 {
			t.Error("something was committed")
		}
	})
	t.Run("report", func(t *testing.T) {
		f := newFleet(t)
		c, task := issueOne(t, f)
		acks := 0
		if err := c.take(f.ctx, &poisonedReport{&acks}); err != nil || acks != 1 {
			t.Errorf("%v, %d acks", err, acks)
		}
		r := &report{result: runOf(task, "agent-1")}
		if err := c.take(f.ctx, r); err != nil || r.acks != 1 {
			t.Errorf("the next report: %v, %d acks", err, r.acks)
		}
		f.counted(map[string]float64{`oomfleet_job_panics_total{job="report"}`: 1, "oomfleet_reports_dropped_total": 1, `oomfleet_results_total{outcome="pass"}`: 1})
	})
	t.Run("comparison", func(t *testing.T) {
		f := newFleet(t)
		c, err := New(f.cfg, Deps{Registry: f.registry, Queue: f.queue, Traces: f.traces, Metrics: f.metrics})
		if err != nil {
			t.Fatal(err)
		}
		d := newDuty(c)
		s := &registry.Sweep{ID: "s", Cells: []proto.CellID{"gone"}}
		if err := d.compareSweep(f.ctx, registry.View{Sweeps: map[proto.MatrixID]*registry.Sweep{"s": s}}, s); err != nil || !d.rollout.incomparable["s"] {
			t.Errorf("%v, and the comparison would be made again", err)
		}
		f.counted(map[string]float64{`oomfleet_job_panics_total{job="compare"}`: 1})
	})
	t.Run("plan", func(t *testing.T) {
		f := newFleet(t)
		d := f.duty()
		v := registry.View{Records: map[registry.Key]*registry.Record{{}: nil}}
		if err := d.carryOut(f.ctx, v); mistake(err) == "" || stepDown(err) {
			t.Errorf("got %v", err)
		}
	})
}

// TestPoisonedPlanRests: a plan that panics is tried again less and less often, the
// rest of the round goes on meanwhile, and the log has its stack once.
func TestPoisonedPlanRests(t *testing.T) {
	f := newFleet(t)
	f.cfg.Pause = longestRest / 3
	var log bytes.Buffer
	c, err := New(f.cfg, Deps{Registry: f.registry, Queue: f.queue, Traces: f.traces, Metrics: f.metrics, Log: slog.New(slog.NewJSONHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	d := newDuty(c)
	poisoned := registry.View{Records: map[registry.Key]*registry.Record{{}: nil}}
	for n, want := range []time.Duration{longestRest / 3, 2 * (longestRest / 3), longestRest, longestRest} {
		d.rest.until = time.Time{} // as if it were over
		if err := d.carryOut(f.ctx, poisoned); mistake(err) == "" {
			t.Fatalf("time %d: %v", n+1, err)
		}
		if d.rest.pause != want || time.Until(d.rest.until) < want/2 {
			t.Errorf("time %d: rests %v, until %v", n+1, d.rest.pause, d.rest.until)
		}
		if err := d.carryOut(f.ctx, poisoned); err != nil {
			t.Errorf("time %d: it was tried again at once: %v", n+1, err)
		}
	}
	f.counted(map[string]float64{`oomfleet_job_panics_total{job="plan"}`: 4})
	if lines, with := strings.Count(log.String(), "panicked"), strings.Count(log.String(), `"stack"`); lines != 4 || with != 1 {
		t.Errorf("%d lines, %d with a stack: %s", lines, with, log.String())
	}
	d.rest.until = time.Time{}
	if err := d.carryOut(f.ctx, f.registry.View()); err != nil || d.rest != (rest{}) {
		t.Errorf("a plan that is well again: %v, %+v", err, d.rest)
	}
}

// TestGuardLetsApplyPanic: a panic of the machine is not caught. It says that the
// replica cannot be trusted any more.
func TestGuardLetsApplyPanic(t *testing.T) {
	for name, do := range map[string]func(f *fleet, d *duty) error{
		"replay": func(f *fleet, d *duty) error { return d.replay(f.ctx, replayFor(64, nil)) },
		"build":  func(f *fleet, d *duty) error { return d.build(f.ctx, buildFrom(64, 66, 68, 72)) },
		"doubt": func(f *fleet, d *duty) error {
			return d.raise(f.ctx, &registry.SetProgram{Family: family})
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFleet(t)
			d := f.duty()
			d.registry = &broken{f.registry}
			defer func() {
				if p := fmt.Sprint(recover()); !strings.Contains(p, "cannot be trusted") {
					t.Errorf("recovered %v", p)
				}
			}()
			t.Errorf("returned %v", do(f, d))
		})
	}
}

// broken is a replica whose machine panics in the caller's goroutine.
type broken struct{ *replicaOfOne }

func (*broken) Propose(context.Context, registry.Command) (registry.Reply, error) {
	panic("local state cannot be trusted")
}

type poisonedReport struct{ acks *int }

func (*poisonedReport) Result() (proto.Result, error) { panic("no such enum") }

func (r *poisonedReport) Ack(context.Context) error { *r.acks++; return nil }

// hostile is a trace store whose traces leave holes of one size, so that each
// that comes free has all of them to pass.
type hostile struct {
	Traces
	holes int
}

func (h *hostile) GetTrace(context.Context, proto.Digest) (events []allocator.Event, meta trace.Meta, err error) {
	for i := range 2 * h.holes {
		events = append(events, allocator.Event{Action: allocator.Alloc, Addr: 1<<40 + uint64(i)*512, Size: 512})
	}
	for i := 0; i < 2*h.holes; i += 2 {
		e := events[i]
		for _, e.Action = range []allocator.Action{allocator.FreeRequested, allocator.FreeCompleted} {
			events = append(events, e)
		}
	}
	return events, meta, nil
}

// TestHostileReplayEnds: what takes a replay minutes, or hours, ends where this
// coordinator leads no more, and says nothing then. The work of a replay has a
// bound too, which allocator's tests hold.
func TestHostileReplayEnds(t *testing.T) {
	f := newFleet(t)
	d := f.duty()
	d.traces = &hostile{f.traces, 40_000}
	for name, do := range map[string]func(ctx context.Context) error{
		"replay": func(ctx context.Context) error { return d.replay(ctx, replayFor(64, nil)) },
		"build":  func(ctx context.Context) error { return d.build(ctx, buildFrom(64, 66, 68, 72)) },
	} {
		t.Run(name, func(t *testing.T) {
			ctx := &endsLater{Context: f.ctx, looks: 3}
			before := f.registry.index
			if err := do(ctx); err == nil || ctx.looks > 0 {
				t.Errorf("%v, %d looks left", err, ctx.looks)
			}
			if f.registry.index != before {
				t.Error("something was committed")
			}
		})
	}
}

// endsLater is cancelled from the n-th look at it on.
type endsLater struct {
	context.Context
	looks int
}

func (c *endsLater) Err() error {
	if c.looks--; c.looks > 0 {
		return nil
	}
	return context.Canceled
}

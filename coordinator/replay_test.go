package coordinator

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/oomfleet/oomfleet/coordinator/plan"
	"github.com/oomfleet/oomfleet/proto"
	"github.com/oomfleet/oomfleet/storage/trace"
)

func replayFor(length int, change func(*plan.Replay)) plan.Replay {
	r := plan.Replay{
		Cell:  proto.Cell{SeqLen: length, QuotaKind: proto.QuotaAllocator, Step: proto.DefaultStep},
		Trace: proto.TraceRef{Digest: proto.Digest(fmt.Sprintf("%064x", length))}, Step: proto.DefaultStep,
	}
	if change != nil {
		change(&r)
	}
	return r
}

var expandable = map[string]string{"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}

func TestPredict(t *testing.T) {
	down := errors.New("connection refused")
	for _, test := range []struct {
		name     string
		change   func(*plan.Replay)
		traces   *recordings
		boundary proto.Bytes
		reserved proto.Bytes
		refused  string
		err      error
	}{
		{name: "allocator", boundary: 64 * proto.MiB},
		{name: "other variables changed the recording, not the model", boundary: 64 * proto.MiB,
			change: func(r *plan.Replay) { r.Cell.Env = map[string]string{"CUBLAS_WORKSPACE_CONFIG": ":0:0"} }},
		{name: "device quota pays the overhead", boundary: 764 * proto.MiB, change: func(r *plan.Replay) {
			r.Cell.QuotaKind, r.Overhead = proto.QuotaDevice, 700*proto.MiB
		}},
		{name: "unknown setting", refused: "not modelled",
			change: func(r *plan.Replay) { r.Cell.Env = map[string]string{"PYTORCH_CUDA_ALLOC_CONF": "foo:1"} }},
		{name: "recorded under settings not modelled", refused: "not modelled",
			change: func(r *plan.Replay) { r.Recorded = map[string]string{"PYTORCH_CUDA_ALLOC_CONF": "foo:1"} }},
		{name: "settings that the recording was not made under", refused: "landed elsewhere",
			change: func(r *plan.Replay) { r.Recorded = expandable }},
		{name: "what if: other settings than the recording's", boundary: 64 * proto.MiB, reserved: 80 * proto.MiB, // four pages of 20 MiB
			change: func(r *plan.Replay) { r.Cell.Env = expandable }},
		{name: "truncated", traces: &recordings{truncated: true}, refused: "start"},
		{name: "gone", traces: &recordings{fail: func(int) error { return trace.ErrNotFound }}, refused: "cannot be read"},
		{name: "corrupt", traces: &recordings{fail: func(int) error { return trace.ErrCorrupt }}, refused: "cannot be read"},
		{name: "store is down", traces: &recordings{fail: func(int) error { return down }}, err: down},
	} {
		t.Run(test.name, func(t *testing.T) {
			f := newFleet(t)
			if test.traces != nil {
				f.traces = test.traces
			}
			c, err := New(f.cfg, Deps{Registry: f.registry, Queue: f.queue, Traces: f.traces})
			if err != nil {
				t.Fatal(err)
			}
			p, err := newDuty(c).predict(f.ctx, replayFor(64, test.change))
			if !errors.Is(err, test.err) {
				t.Fatalf("error %v, want %v", err, test.err)
			}
			if p.Boundary.Boundary != test.boundary {
				t.Errorf("boundary %s, want %s", p.Boundary.Boundary, test.boundary)
			}
			if (p.Refused == "") != (test.refused == "") || !strings.Contains(p.Refused, test.refused) {
				t.Errorf("refused %q, want %q", p.Refused, test.refused)
			}
			if test.reserved > 0 && p.PeakReserved != test.reserved {
				t.Errorf("reserved peak %s, want %s", p.PeakReserved, test.reserved)
			}
			if test.boundary > 0 && (!p.BandsKnown || p.LowestPass != test.boundary || p.NoRetry != test.boundary || p.FailBands == nil) {
				t.Errorf("prediction %+v", p)
			}
		})
	}
}

// TestTraceStoreComesBack: replays wait for the store, cells are not given up.
func TestTraceStoreComesBack(t *testing.T) {
	f := newFleet(t)
	f.traces.fail = func(n int) error {
		if n < 4 {
			return errors.New("connection refused")
		}
		return nil
	}
	c, stop := f.start()
	f.agents(1, f.honest)
	f.check(f.settled(f.submit(c, "[64]")))
	stop()
	f.counted(map[string]float64{`oomfleet_replays_total{result="failed"}`: 3, `oomfleet_replays_total{result="predicted"}`: 1})
}

// TestTooFewRecordings: a group of one length gets no coefficients, and is not
// tried again before it has another recording.
func TestTooFewRecordings(t *testing.T) {
	f := newFleet(t)
	c, stop := f.start()
	f.agents(1, f.honest)
	id := f.submit(c, "[64]")
	f.settled(id)
	stop()
	d := newDuty(c)
	try := func() (begun bool) {
		t.Helper()
		if err := d.carryOut(f.ctx, f.registry.View()); err != nil {
			t.Fatal(err)
		}
		if len(d.fits.busy) == 0 {
			return false
		}
		d.fits.finished(<-d.fits.done)
		return true
	}
	if !try() {
		t.Error("the first fit was not tried")
	}
	if try() {
		t.Error("the same recordings were fitted twice")
	}
	if r := f.settled(id); len(r.Coefficients) != 0 {
		t.Errorf("coefficients from one length: %+v", r.Coefficients)
	}
	c, _ = f.start()
	if r := f.fitted(f.submit(c, "[66]")); r.Coefficients[0].Points != 2 {
		t.Errorf("two lengths give %+v", r.Coefficients)
	}
}

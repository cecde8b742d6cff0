package coordinator

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/oomfleet/oomfleet/allocator"
	"github.com/oomfleet/oomfleet/coordinator/plan"
	"github.com/oomfleet/oomfleet/proto"
	"github.com/oomfleet/oomfleet/queue"
	"github.com/oomfleet/oomfleet/storage/registry"
	"github.com/oomfleet/oomfleet/storage/trace"
)

// traceRef is the recording of one block of so many MiB.
func traceRef(length int) proto.TraceRef {
	return proto.TraceRef{Digest: proto.Digest(fmt.Sprintf("%064x", length))}
}

var family = registry.FamilyKey{Origin: proto.OriginMeasured, Family: "f"}

func buildFrom(lengths ...int) plan.Build {
	b := plan.Build{Family: family}
	for _, l := range lengths {
		b.Inputs = append(b.Inputs, plan.Input{Trace: traceRef(l), SeqLen: l, Batch: 1})
	}
	return b
}

func (f *fleet) duty() *duty {
	f.t.Helper()
	c, err := New(f.cfg, Deps{Registry: f.registry, Queue: f.queue, Traces: f.traces})
	if err != nil {
		f.t.Fatal(err)
	}
	return newDuty(c)
}

func TestBuild(t *testing.T) {
	down := errors.New("connection refused")
	for _, test := range []struct {
		name     string
		build    plan.Build
		traces   *recordings
		refused  string
		needMore bool
		tested   string
		err      error
	}{
		{name: "made", build: buildFrom(64, 66, 68), tested: "untested"},
		{name: "tested", build: buildFrom(64, 66, 68, 72, 80), tested: "left-one-out"},
		{name: "two lengths", build: buildFrom(64, 66), refused: "three lengths", needMore: true},
		{name: "settings that it was not made under", build: func() plan.Build {
			b := buildFrom(64, 66, 68, 72)
			b.Inputs[1].Env = expandable
			return b
		}(), refused: "length 66 at batch 1: the recording holds what the model does not know"},
		{name: "truncated", build: buildFrom(64, 66, 68, 72), traces: &recordings{truncated: true}, refused: "start"},
		{name: "gone", build: buildFrom(64, 66, 68, 72), traces: &recordings{fail: func(int) error { return trace.ErrNotFound }}, refused: "cannot be read"},
		{name: "store is down", build: buildFrom(64, 66, 68, 72), traces: &recordings{fail: func(int) error { return down }}, err: down},
		{name: "store takes nothing", build: buildFrom(64, 66, 68, 72), traces: &recordings{fail: func(n int) error {
			if n > 4 {
				return trace.ErrFull
			}
			return nil
		}}, err: trace.ErrFull},
	} {
		t.Run(test.name, func(t *testing.T) {
			f := newFleet(t)
			if test.traces != nil {
				f.traces = test.traces
			}
			err := f.duty().build(f.ctx, test.build)
			if !errors.Is(err, test.err) {
				t.Fatalf("error %v, want %v", err, test.err)
			}
			p := f.registry.View().Programs[family]
			if test.err != nil {
				if p != nil {
					t.Errorf("%+v was committed", p)
				}
				return
			}
			if p == nil || p.NeedMore != test.needMore || (p.Refused == "") != (test.refused == "") || !strings.Contains(p.Refused, test.refused) || p.Tested != test.tested {
				t.Fatalf("committed %+v", p)
			}
			if len(p.Inputs) != len(test.build.Inputs) {
				t.Errorf("%d inputs", len(p.Inputs))
			}
			if test.refused == "" && (!p.Covers(proto.Cell{SeqLen: 100, Batch: 1}) || p.Covers(proto.Cell{SeqLen: 100, Batch: 2}) || f.traces.programs[p.Digest] == nil) {
				t.Errorf("%+v", p)
			}
		})
	}
}

// blocks is the recording of blocks of these sizes in MiB, one after the other.
func blocks(sizes ...int64) []allocator.Event {
	var events []allocator.Event
	for i, n := range sizes {
		for _, e := range program(n << 20) {
			e.Addr += uint64(i) << 36
			events = append(events, e)
		}
	}
	return events
}

// TestDerive: short recordings that do other things are left out when enough
// others are there to test the rest, and long ones never.
func TestDerive(t *testing.T) {
	like := func(lengths ...int) (rs []allocator.Recording) {
		for _, l := range lengths {
			rs = append(rs, allocator.Recording{SeqLen: l, Batch: 1, Events: blocks(int64(l), 2*int64(l))})
		}
		return rs
	}
	other := func(length int) allocator.Recording {
		return allocator.Recording{SeqLen: length, Batch: 1, Events: blocks(int64(length))}
	}
	odd := func(length int) allocator.Recording {
		return allocator.Recording{SeqLen: length, Batch: 1, Events: blocks(int64(length)+1, 2*int64(length))}
	}
	for _, test := range []struct {
		name       string
		recordings []allocator.Recording
		from       int // 0: none is made
		more       bool
	}{
		{name: "all alike", recordings: like(64, 66, 68, 72), from: 48},
		{name: "the shortest is another program", recordings: append([]allocator.Recording{other(60)}, like(64, 66, 68, 72, 80)...), from: 48},
		{name: "the shortest has another size", recordings: append([]allocator.Recording{odd(60)}, like(64, 66, 68, 72, 80)...), from: 48},
		{name: "one of the others has another size", recordings: slices.Concat(like(60, 64), []allocator.Recording{odd(66)}, like(68, 72, 80)), from: 45},
		{name: "no recording to spare", recordings: append([]allocator.Recording{other(60)}, like(64, 66, 68, 72)...), more: true},
		{name: "the longest is another program", recordings: append(like(60, 64, 66, 68, 72, 80), other(90))},
	} {
		t.Run(test.name, func(t *testing.T) {
			f, more, err := derive(t.Context(), test.recordings)
			if (err == nil) != (test.from > 0) || more != test.more {
				t.Fatalf("%v, more %v", err, more)
			}
			if err == nil && f.Domains()[0].SeqLenFrom != test.from {
				t.Errorf("domain %s", f.Domains()[0])
			}
		})
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := derive(ctx, like(64, 66, 68, 72)); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

// TestPredictByProgram: what a program says of a cell that was never recorded.
func TestPredictByProgram(t *testing.T) {
	f := newFleet(t)
	d := f.duty()
	if err := d.build(f.ctx, buildFrom(64, 66, 68, 72)); err != nil {
		t.Fatal(err)
	}
	digest := f.registry.View().Programs[family].Digest
	predict := func(d *duty, length int, program proto.Digest) (proto.Prediction, error) {
		a, err := d.predict(f.ctx, plan.Replay{Program: program, Step: proto.DefaultStep,
			Cell: proto.Cell{SeqLen: length, Batch: 1, QuotaKind: proto.QuotaAllocator, Step: proto.DefaultStep}})
		return a.Prediction, err
	}
	reads := func() int { return f.traces.reads }
	before := reads()
	for _, length := range []int{98, 120} {
		p, err := predict(d, length, digest)
		if want := proto.Bytes(length) * proto.MiB; err != nil || p.Boundary.Boundary != want || p.PeakReserved != want || p.Refused != "" {
			t.Errorf("L%d: %+v, %v", length, p, err)
		}
	}
	if n := reads() - before; n != 1 {
		t.Errorf("the program was read %d times", n)
	}
	if p, err := predict(d, 1000, digest); err != nil || !strings.Contains(p.Refused, "domain") {
		t.Errorf("outside: %+v, %v", p, err)
	}
	if p, err := predict(d, 98, "gone"); err != nil || !strings.Contains(p.Refused, "cannot be read") {
		t.Errorf("gone: %+v, %v", p, err)
	}
	text, err := f.traces.PutProgram(f.ctx, []byte(`{"version":99}`))
	if err != nil {
		t.Fatal(err)
	}
	if p, err := predict(d, 98, text); err != nil || !strings.Contains(p.Refused, "cannot be read") {
		t.Errorf("of another build: %+v, %v", p, err)
	}
	f.traces.fail = func(int) error { return errors.New("connection refused") }
	if p, err := predict(f.duty(), 98, digest); err == nil || p.Refused != "" {
		t.Errorf("store is down: %+v, %v", p, err)
	}
}

// TestCancelledSweep: a replay ends with the duties and commits nothing.
func TestCancelledSweep(t *testing.T) {
	f := newFleet(t)
	ctx, cancel := context.WithCancelCause(f.ctx)
	cancel(errLeadershipLost)
	if p, err := f.duty().predict(ctx, replayFor(64, nil)); !errors.Is(err, errLeadershipLost) || p.Refused != "" {
		t.Errorf("%+v, %v", p, err)
	}
}

// TestProgramsAreBounded: the oldest is forgotten and read again.
func TestProgramsAreBounded(t *testing.T) {
	f := newFleet(t)
	d := f.duty()
	var digests []proto.Digest
	for i := range keptPrograms + 1 {
		if err := d.build(f.ctx, buildFrom(64, 66, 68, 72+2*i)); err != nil {
			t.Fatal(err)
		}
		p := f.registry.View().Programs[family]
		if p.Digest == "" {
			t.Fatal(p.Refused)
		}
		digests = append(digests, p.Digest)
	}
	for _, digest := range digests {
		if _, err := d.programs.get(f.ctx, digest); err != nil {
			t.Fatal(err)
		}
	}
	if d.programs.known[digests[0]] != nil || d.programs.known[digests[1]] == nil || len(d.programs.known) != keptPrograms {
		t.Errorf("%d programs are kept", len(d.programs.known))
	}
}

// TestDifference: what counts is what is asked of the allocator, in order.
func TestDifference(t *testing.T) {
	moved := blocks(10, 20)
	for i := range moved {
		moved[i].Addr += 1 << 44
	}
	late := blocks(10, 20) // the first block is freed after the second was allocated
	late = append(append(append(append([]allocator.Event{}, late[:2]...), late[4:6]...), late[2:4]...), late[6:]...)
	for _, test := range []struct {
		name string
		seen []allocator.Event
		says string
	}{
		{"same", blocks(10, 20), ""},
		{"elsewhere", moved, ""},
		{"size", blocks(10, 30), "request 2"},
		{"order", late, "request 1 it allocates 20971520 bytes, the program says that it frees block 0"},
		{"shorter", blocks(10), "makes 2 requests, the program says 4"},
		{"longer", blocks(10, 20, 30), "makes 6 requests"},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := difference(blocks(10, 20), test.seen); (got == "") != (test.says == "") || !strings.Contains(got, test.says) {
				t.Errorf("got %q, want %q", got, test.says)
			}
		})
	}
}

// TestStaleProgram: a recording that its program did not foresee makes the
// program stale, before the prediction is committed.
func TestStaleProgram(t *testing.T) {
	f := newFleet(t)
	d := f.duty()
	cell := proto.Cell{SeqLen: 98, Batch: 1, QuotaKind: proto.QuotaAllocator, Step: proto.DefaultStep}
	b := buildFrom(64, 66, 68, 72)
	b.Family = registry.FamilyOf(proto.OriginMeasured, cell)
	if err := d.build(f.ctx, b); err != nil {
		t.Fatal(err)
	}
	now := func() *registry.Program { return f.registry.View().Programs[b.Family] }
	r := plan.Replay{Key: registry.Key{Origin: proto.OriginMeasured, Cell: cell.ID()}, Cell: cell, Step: proto.DefaultStep, Trace: traceRef(98), Check: now().Digest}
	if p, err := d.predict(f.ctx, r); err != nil || p.Boundary.Boundary != 98*proto.MiB || now().Stale != "" {
		t.Fatalf("as foreseen: %+v, %v, stale %q", p, err, now().Stale)
	}
	r.Trace = traceRef(104)
	var proposed []string
	f.registry.fail = func(_ int, c registry.Command) error {
		if c.SetProgram == nil {
			proposed = append(proposed, "prediction")
			return nil
		}
		if proposed = append(proposed, "doubt"); len(proposed) == 1 {
			return errors.New("no quorum")
		}
		return nil
	}
	if err := d.replay(f.ctx, r); err == nil || len(proposed) != 1 {
		t.Errorf("the doubt was not committed, and then %v, %v", proposed, err)
	}
	if err := d.replay(f.ctx, r); err != nil || !slices.Equal(proposed, []string{"doubt", "doubt", "prediction"}) || !strings.Contains(now().Stale, "109051904 bytes") {
		t.Fatalf("otherwise: %v, %v, stale %q", proposed, err, now().Stale)
	}
	if p, err := d.predict(f.ctx, r); err != nil || p.Boundary.Boundary != 104*proto.MiB || p.doubt != nil {
		t.Fatalf("otherwise: %+v, %v", p, err)
	}
	if now().Usable() {
		t.Error("the program is still used")
	}
}

// TestProgramOfAMatrix: recordings are made of the cheapest lengths alone, and
// serve every setting of the allocator.
func TestProgramOfAMatrix(t *testing.T) {
	f := newFleet(t)
	c, stop := f.start()
	f.agents(3, f.honest)
	reply, err := c.Submit(f.ctx, SubmitRequest{Origin: proto.OriginMeasured, Source: source("[64, 66, 68, 72, 74, 76, 78, 82]") + `  env:
    - {}
    - {PYTORCH_CUDA_ALLOC_CONF: "garbage_collection_threshold:0.9"}
`})
	if err != nil {
		t.Fatal(err)
	}
	r := f.settled(reply.Matrix.ID)
	f.check(r)
	from := make(map[proto.PredictedFrom]int)
	for _, row := range r.Cells {
		from[row.PredictedFrom]++
		if (row.PeakReserved > 0) != (row.PredictedFrom == proto.FromRecording) || row.PredictedPeakReserved == 0 {
			t.Errorf("L%d from a %s: peak %s, predicted %s", row.SeqLen, row.PredictedFrom, row.PeakReserved, row.PredictedPeakReserved)
		}
	}
	if from[proto.FromRecording] != 4 || from[proto.FromSettings] != 4 || from[proto.FromProgram] != 8 {
		t.Errorf("predicted from %v", from)
	}
	stop()
	f.counted(map[string]float64{
		`oomfleet_tasks_issued_total{kind="record"}`: 4,
		`oomfleet_tasks_issued_total{kind="probe"}`:  32,
		`oomfleet_builds_total{result="made"}`:       1,
		`oomfleet_builds_total{result="failed"}`:     0,
	})
}

// TestProgramTurnsStale: one length allocates otherwise than the program says.
// Its own recording shows it, and the lengths that were still waiting record.
func TestProgramTurnsStale(t *testing.T) {
	f := newFleet(t)
	c, _ := f.start()
	f.agents(1, func(ctx context.Context, d queue.Delivery, agent proto.AgentID) error {
		task, err := d.Task()
		if err != nil {
			return err
		}
		r := runOf(task, agent)
		if at := proto.Bytes(72) * proto.MiB; task.Cell.SeqLen == 74 { // its program is that of L = 72
			if task.Kind == proto.TaskRecord {
				ref := traceRef(72)
				r.Evidence.Trace = &ref
			} else if r.Outcome = proto.OutcomePass; task.Quota < at {
				r.Outcome = proto.OutcomeOOMQuota
			}
		}
		return errors.Join(f.queue.Report(ctx, r), d.Ack(ctx))
	})
	id := f.submit(c, "[62, 64, 66, 68, 74]")
	r := f.settled(id)
	for _, row := range r.Cells {
		want := proto.Bytes(row.SeqLen) * proto.MiB
		if row.SeqLen == 74 {
			want = 72 * proto.MiB
		}
		if row.State != proto.CellCertified || row.Boundary.Boundary != want {
			t.Errorf("L%d settled as %s at %s (%s)", row.SeqLen, row.State, row.Boundary.Boundary, row.Reason)
		}
	}
	for _, p := range f.registry.View().Programs {
		if !strings.Contains(p.Stale, "L74") {
			t.Errorf("program %+v", p)
		}
	}
}

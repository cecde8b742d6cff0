package coordinator

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/oomfleet/oomfleet/allocator"
	"github.com/oomfleet/oomfleet/coordinator/plan"
	"github.com/oomfleet/oomfleet/proto"
	"github.com/oomfleet/oomfleet/storage/trace"
)

// probes is a trace store of named traces.
type probes struct {
	Traces
	named map[proto.Digest][]allocator.Event
	err   error
}

func (s probes) GetTrace(_ context.Context, digest proto.Digest) ([]allocator.Event, trace.Meta, error) {
	events, ok := s.named[digest]
	switch {
	case s.err != nil:
		return nil, trace.Meta{}, s.err
	case !ok:
		return nil, trace.Meta{}, trace.ErrNotFound
	}
	return slices.Clone(events), trace.Meta{}, nil
}

// script makes events: "a 30" allocates block a of 30 MiB, "-a" frees it and
// "oom 40" refuses 40 MiB.
type script []allocator.Event

func (s script) alloc(block uint64, mib int64) script {
	return append(s, allocator.Event{Action: allocator.Alloc, Addr: block << 32, Size: mib << 20})
}

func (s script) free(block uint64, mib int64) script {
	e := allocator.Event{Action: allocator.FreeRequested, Addr: block << 32, Size: mib << 20}
	done := e
	done.Action = allocator.FreeCompleted
	return append(s, e, done)
}

func (s script) oom(mib int64) script {
	return append(s, allocator.Event{Action: allocator.OOM, Size: mib << 20})
}

// TestTeach: weights of 30 MiB, then two blocks of which one goes before the
// third comes. The boundary is 30 + 40 + 50 MiB.
func TestTeach(t *testing.T) {
	const mib = proto.MiB
	base := script{}.alloc(1, 30).alloc(2, 40).alloc(3, 50).free(2, 40).alloc(4, 40)
	down := errors.New("connection refused")
	for _, test := range []struct {
		name     string
		probe    script
		change   func(*plan.Replay)
		before   script
		err      error
		kind     proto.LessonKind
		boundary proto.Bytes
		refused  bool
		varies   bool
	}{
		{name: "an extra block", probe: script{}.alloc(1, 30).alloc(9, 22).alloc(2, 40).oom(50), kind: proto.LessonExtra, boundary: 142 * mib},
		{name: "a caught refusal", probe: script{}.alloc(1, 30).alloc(2, 40).oom(50).free(2, 40).alloc(2, 20).alloc(3, 50),
			kind: proto.LessonCaught, boundary: 100 * mib, change: passed},
		{name: "caught, where the recording passes at smaller quotas", probe: script{}.alloc(1, 30).alloc(2, 40).oom(50).free(2, 40).alloc(2, 20).alloc(3, 50),
			kind: proto.LessonCaught, boundary: 96 * mib, change: func(r *plan.Replay) {
				passed(r)
				r.Lesson.Said = proto.Boundary{Boundary: 120 * mib, LowestPass: 80 * mib, FailBands: []proto.Band{{From: 90 * mib, To: 94 * mib}, {From: 102 * mib, To: 118 * mib}}}
			}},
		{name: "less than was recorded", probe: script{}.alloc(1, 30).alloc(3, 50), kind: proto.LessonExtra, boundary: 80 * mib, change: passed},
		{name: "the same", probe: base, kind: proto.LessonSame, boundary: 120 * mib, change: passed},
		{name: "another order, of its own recording", probe: script{}.alloc(1, 30).alloc(2, 40).alloc(3, 50).alloc(4, 40).free(2, 40),
			kind: proto.LessonOrder, boundary: 160 * mib, varies: true, change: func(r *plan.Replay) { passed(r); r.Lesson.Own = true }},
		{name: "another order, of what stands in for one", probe: script{}.alloc(1, 30).alloc(2, 40).alloc(3, 50).alloc(4, 40).free(2, 40),
			kind: proto.LessonOrder, boundary: 160 * mib, change: passed},
		{name: "refused in another order, of its own recording", probe: script{}.alloc(1, 30).alloc(2, 40).alloc(3, 50).oom(40), kind: proto.LessonOrder,
			boundary: 160 * mib, varies: true, change: func(r *plan.Replay) { r.Lesson.Own = true }},
		{name: "refused in another order", probe: script{}.alloc(1, 30).alloc(2, 40).alloc(3, 50).oom(40), kind: proto.LessonOrder, refused: true},
		{name: "refused on the way that the lesson before showed", probe: script{}.alloc(1, 30).alloc(2, 20).alloc(9, 22).oom(44), kind: proto.LessonExtra,
			before: script{}.alloc(1, 30).alloc(2, 20).alloc(3, 44), boundary: 116 * mib, change: func(r *plan.Replay) { r.Lesson.Number, r.Lesson.Before = 2, "before" }},
		{name: "another program", probe: script{}.alloc(1, 31).alloc(2, 41).oom(51), refused: true},
		{name: "a trace that lost its start", probe: script{}.free(7, 3).alloc(1, 30).oom(40), refused: true},
		{name: "a trace that does not end as the probe", probe: base, refused: true},
		{name: "settings that are not modelled", probe: script{}.alloc(1, 30).oom(40), refused: true,
			change: func(r *plan.Replay) { r.Cell.Env = map[string]string{"PYTORCH_CUDA_ALLOC_CONF": "foo:1"} }},
		{name: "refused as said, with an extra block", probe: script{}.alloc(1, 30).alloc(9, 22).alloc(2, 40).oom(50), kind: proto.LessonExtra, boundary: 142 * mib, change: foreseen},
		{name: "refused as said, on the same way", probe: script{}.alloc(1, 30).alloc(2, 40).oom(50), kind: proto.LessonSame, boundary: 120 * mib, change: foreseen},
		{name: "refused as said, in another order", probe: script{}.alloc(1, 30).alloc(2, 40).alloc(3, 50).oom(40), kind: proto.LessonOrder, refused: true, change: foreseen},
		{name: "refused as said, another program", probe: script{}.alloc(1, 31).alloc(2, 41).oom(51), boundary: 120 * mib, change: foreseen},
		{name: "the store is down", probe: base, err: down},
	} {
		t.Run(test.name, func(t *testing.T) {
			f := newFleet(t)
			named := map[proto.Digest][]allocator.Event{"base": base, "probe": test.probe}
			if test.before != nil {
				named["before"] = test.before
			}
			c, err := New(f.cfg, Deps{Registry: f.registry, Queue: f.queue, Traces: probes{f.traces, named, test.err}})
			if err != nil {
				t.Fatal(err)
			}
			r := replayFor(64, func(r *plan.Replay) {
				r.Trace.Digest = "probe"
				r.Lesson = plan.Lesson{Number: 1, Trace: "base", Said: proto.Boundary{Boundary: 120 * mib, LowestPass: 120 * mib}, Quota: 120 * mib}
			})
			if test.change != nil {
				test.change(&r)
			}
			p, err := newDuty(c).predict(f.ctx, r)
			if !errors.Is(err, test.err) {
				t.Fatal(err)
			}
			if err != nil {
				return
			}
			if (p.Refused != "") != test.refused || p.Boundary.Boundary != test.boundary || p.Varies != test.varies || p.BandsKnown && p.Varies {
				t.Errorf("%+v, want %s", p, test.boundary)
			}
			if l := p.Lesson; l == nil || l.Kind != test.kind || l.Number != r.Lesson.Number || l.Trace != "base" || l.Said.Boundary != 120*mib {
				t.Errorf("lesson %+v", l)
			}
		})
	}
}

// foreseen makes the lesson that of a probe which was refused below the boundary.
func foreseen(r *plan.Replay) { r.Lesson.Quota = 118 * proto.MiB }

// passed makes the lesson that of a probe which passed.
func passed(r *plan.Replay) { r.Lesson.Passed, r.Lesson.Quota = true, 118*proto.MiB }

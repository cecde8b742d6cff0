package coordinator

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/oomfleet/oomfleet/allocator"
	"github.com/oomfleet/oomfleet/coordinator/plan"
	"github.com/oomfleet/oomfleet/proto"
	"github.com/oomfleet/oomfleet/storage/trace"
)

// teach predicts from the trace of a probe that spoke against a prediction. One
// that was refused as predicted, only elsewhere, leaves what was said standing
// where it shows no other program. Where it shows another order, that of a cell
// which was not recorded, its beginning alone says too little.
func (d *duty) teach(ctx context.Context, r plan.Replay) (proto.Prediction, error) {
	p, err := d.taught(ctx, r)
	l := r.Lesson
	foreseen := l.Number == 1 && !l.Passed && l.Quota == l.Said.Boundary-r.Step
	if err != nil || !foreseen {
		return p, err
	}
	kind := p.Lesson.Kind
	if kind == proto.LessonSame || p.Refused != "" && kind != proto.LessonOrder {
		return proto.Prediction{Boundary: l.Said, Lesson: p.Lesson, Varies: r.Varies}, nil
	}
	return p, nil
}

// taught is the program that a probe's run shows, swept under the cell's settings.
func (d *duty) taught(ctx context.Context, r plan.Replay) (proto.Prediction, error) {
	l, lesson := r.Lesson, lessonOf(r)
	run, why, err := d.capped(ctx, r.Trace.Digest)
	if err != nil || why != "" {
		return proto.Prediction{Lesson: lesson, Refused: why}, err
	}
	if run.Refused == l.Passed {
		return proto.Prediction{Lesson: lesson, Refused: "the probe's trace does not end as the probe did"}, nil
	}
	seen, err := d.shown(ctx, r, run)
	lesson.Kind = seen.kind
	varies := r.Varies || seen.kind == proto.LessonOrder && seen.own
	if err != nil || seen.why != "" {
		return proto.Prediction{Lesson: lesson, Refused: seen.why, Varies: varies}, err
	}
	p, err := sweep(ctx, seen.program, allocator.Settings{}, r)
	p.Lesson, p.Varies = lesson, varies
	if err != nil || p.Refused != "" {
		return p, err
	}
	p.BandsKnown = p.BandsKnown && !varies
	switch {
	case seen.kind == proto.LessonCaught:
		p.Boundary = either(l.Said, p.Boundary, r.Step)
		p.RefusedPeak = 0 // what it held before it was refused first counts too
	case varies && l.Own && l.Number == 1 && l.Said.Boundary > p.Boundary.Boundary:
		// Two runs of the cell, and the other one needs more.
		p.Boundary = l.Said
		p.BandsKnown = false
	}
	return p, nil
}

// lessonOf is the lesson that a replay is, without what it shows; nil for none.
func lessonOf(r plan.Replay) *proto.Lesson {
	l := r.Lesson
	if l.Number == 0 {
		return nil
	}
	return &proto.Lesson{Number: l.Number, Trace: l.Trace, Program: l.Program, Said: l.Said, Quota: l.Quota, Passed: l.Passed}
}

// capped reads the trace of a probe. why says for good why it is of no use.
func (d *duty) capped(ctx context.Context, digest proto.Digest) (run allocator.CappedRun, why string, err error) {
	events, why, err := d.recording(ctx, digest)
	if err != nil || why != "" {
		return run, why, err
	}
	if run, err = allocator.ReadCapped(events); err != nil {
		return run, err.Error(), nil
	}
	return run, "", nil
}

// showing is what a probe's run shows of its program, and what of it is new. own
// is whether it was held against another run of the cell, not against what stands
// in for one. why says for good why it shows no program.
type showing struct {
	program *allocator.Program
	kind    proto.LessonKind
	own     bool
	why     string
}

func (d *duty) shown(ctx context.Context, r plan.Replay, run allocator.CappedRun) (showing, error) {
	if run.Caught && !run.Refused {
		return showing{program: run.Program, kind: proto.LessonCaught}, nil
	}
	set, err := allocator.SettingsFromEnv(r.Cell.AllocatorEnv())
	if err != nil {
		return showing{why: fmt.Sprintf("the allocator's settings are not modelled: %v", err)}, nil
	}
	others, why, err := d.others(ctx, r)
	if err != nil || why != "" {
		return showing{why: why}, err
	}
	var failed []string
	for _, other := range others {
		p, change, err := against(run, other.program, set)
		if err != nil {
			failed = append(failed, err.Error())
			continue
		}
		kind := kindOf(change)
		switch {
		case run.Caught:
			kind = proto.LessonCaught
		case kind == proto.LessonOrder && run.Refused && !other.own:
			return showing{kind: kind, why: "a refused run shows the beginning of its order only: record the cell"}, nil
		}
		return showing{program: p, kind: kind, own: other.own}, nil
	}
	return showing{why: strings.Join(failed, "; ")}, nil
}

func kindOf(c allocator.Change) proto.LessonKind {
	switch {
	case c.Reordered:
		return proto.LessonOrder
	case c.Extra > 0:
		return proto.LessonExtra
	}
	return proto.LessonSame
}

// against is the program of a run under these settings, and how that differs
// from another program.
func against(run allocator.CappedRun, other *allocator.Program, set allocator.Settings) (*allocator.Program, allocator.Change, error) {
	if run.Refused {
		return allocator.Splice(run, other, set)
	}
	return run.Program, run.Compare(other), nil
}

// reordered is whether a refused probe of the cell frees blocks in another order
// than its recording.
func (d *duty) reordered(ctx context.Context, r plan.Replay, recording *allocator.Program) (bool, error) {
	run, why, err := d.capped(ctx, r.Against)
	if err != nil || why != "" {
		return false, err
	}
	set, err := allocator.SettingsFromEnv(r.Cell.AllocatorEnv())
	if err != nil {
		return false, nil // the sweep says so
	}
	_, change, err := against(run, recording, set)
	return err == nil && change.Reordered, nil
}

// other is a program that a probe's run is held against; own when it is that of
// another run of the same cell.
type other struct {
	program *allocator.Program
	own     bool
}

// others are what the lesson before showed, when that is whole, and what was to
// say what the probe does.
func (d *duty) others(ctx context.Context, r plan.Replay) (all []other, why string, err error) {
	if r.Lesson.Before != "" {
		before, why, err := d.capped(ctx, r.Lesson.Before)
		if err != nil {
			return nil, "", err
		}
		if why == "" && !before.Refused {
			all = append(all, other{before.Program, true})
		}
	}
	source, why, err := d.source(ctx, r)
	if err != nil || why != "" {
		return nil, why, err
	}
	return append(all, other{source, r.Lesson.Own}), "", nil
}

// source is the program that was to say what the probe does.
func (d *duty) source(ctx context.Context, r plan.Replay) (p *allocator.Program, why string, err error) {
	if r.Lesson.Program != "" {
		family, err := d.programs.get(ctx, r.Lesson.Program)
		switch {
		case errors.Is(err, trace.ErrNotFound), errors.Is(err, trace.ErrCorrupt), errors.Is(err, errProgram):
			return nil, fmt.Sprintf("the program cannot be read: %v", err), nil
		case err != nil:
			return nil, "", fmt.Errorf("read program %s: %w", r.Lesson.Program, err)
		}
		if p, err = family.At(r.Cell.SeqLen, r.Cell.Batch, r.Cell.ChunkSize); err != nil {
			return nil, err.Error(), nil
		}
		return p, "", nil
	}
	events, why, err := d.recording(ctx, r.Lesson.Trace)
	if err != nil || why != "" {
		return nil, why, err
	}
	if p, err = allocator.Compile(events); err != nil {
		return nil, err.Error(), nil
	}
	return p, "", nil
}

// either is the boundary of a workload that passes where one way of it does: as
// it was recorded, or without what it was refused. Both are on the grid of step.
func either(a, b proto.Boundary, step proto.Bytes) proto.Boundary {
	out := proto.Boundary{NoRetry: a.NoRetry, BandsKnown: a.BandsKnown && b.BandsKnown, LayoutSensitive: a.LayoutSensitive || b.LayoutSensitive,
		FailBands: []proto.Band{}}
	for _, x := range failing(a, step) {
		for _, y := range failing(b, step) {
			if band := (proto.Band{From: max(x.From, y.From), To: min(x.To, y.To)}); band.From <= band.To {
				out.FailBands = append(out.FailBands, band)
			}
		}
	}
	if len(out.FailBands) == 0 {
		return b // nothing fails in both: one of them names no lowest pass
	}
	slices.SortFunc(out.FailBands, func(x, y proto.Band) int { return int(x.From - y.From) })
	out.LowestPass = out.FailBands[0].To + step // the region that begins at 0 is in both
	out.Boundary = out.FailBands[len(out.FailBands)-1].To + step
	out.FailBands = out.FailBands[1:]
	return out
}

// failing are all quotas that fail, the region from 0 to below the lowest pass
// first.
func failing(b proto.Boundary, step proto.Bytes) []proto.Band {
	return append([]proto.Band{{From: 0, To: b.LowestPass - step}}, b.FailBands...)
}

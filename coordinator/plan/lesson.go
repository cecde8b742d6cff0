package plan

import (
	"fmt"
	"slices"

	"github.com/oomfleet/oomfleet/proto"
	"github.com/oomfleet/oomfleet/storage/registry"
)

// maxLessons is how many probes may correct one source's word on a cell. Behind
// them the search goes on by probes alone.
const maxLessons = 3

// Lesson says what the trace of a probe is to be held against; the zero value
// is no lesson. Number, Trace, Program, Said, Quota and Passed are those of
// proto.Lesson.
type Lesson struct {
	// Own: the source is the cell's own recording.
	Own     bool
	Number  int
	Trace   proto.Digest
	Program proto.Digest
	Said    proto.Boundary
	Quota   proto.Bytes
	Passed  bool
	// Before is the trace of the lesson before this one; empty without one.
	Before proto.Digest
}

// miss is a probe that spoke against a prediction; the zero value is none.
type miss struct {
	at   aim
	seen verdict
	why  string
}

// learn asks for the lesson of a miss: the sweep of what the probe's trace shows
// of the program. It is nil where the probe left no trace, where that one was
// the last lesson, or where there have been enough.
func learn(rec *registry.Record, m miss) *Replay {
	p := rec.Prediction
	next := Lesson{Number: 1, Trace: p.Trace, Program: p.Program, Said: p.Boundary, Quota: m.at.quota, Passed: m.seen == passes}
	if before := p.Lesson; before != nil {
		next.Number = before.Number + 1
		next.Trace, next.Program, next.Said, next.Before = before.Trace, before.Program, before.Said, p.Trace
	}
	run := tracedProbe(rec, m)
	if run == nil || run.Trace.Digest == p.Trace || next.Number > maxLessons {
		return nil
	}
	r := &Replay{Key: rec.Key, Cell: rec.Cell, Trace: *run.Trace, Recorded: rec.Cell.AllocatorEnv(), Step: gridOf(rec.Cell), Varies: varies(rec), Lesson: next}
	if recording := rec.Recording(); recording != nil {
		r.Overhead, _ = overheadOf(recording.Meters)
		r.Lesson.Own = recording.Trace != nil && recording.Trace.Digest == next.Trace
	}
	return r
}

// tracedProbe is the newest run of a miss that left a trace; nil without one.
func tracedProbe(rec *registry.Record, m miss) *registry.Run {
	want := proto.VerdictPass
	if m.seen == fails {
		want = proto.VerdictFail
	}
	for i := len(rec.Runs) - 1; i >= 0; i-- {
		run := &rec.Runs[i]
		if (aim{run.Kind, run.Quota}) == m.at && run.Trace != nil && run.Outcome.Verdict() == want {
			return run
		}
	}
	return nil
}

// expectation is what the prediction says of a probe, as a task carries it: its
// outcome and, of the refusal below the boundary, the peak. It is empty where a
// contradiction would teach nothing more, and where none is likely: once the
// refusal below the boundary was seen where replay has it, a cell that borrows
// passes at the boundary without the cost of a trace, and where it does not after
// all, it is recorded. The same where a lesson has said of the edge what was seen.
func expectation(rec *registry.Record, q proto.Bytes) (proto.Expectation, proto.Bytes) {
	p := rec.Prediction
	edge := p.Boundary.Boundary - gridOf(rec.Cell)
	switch {
	case p.Lesson != nil && p.Lesson.Number >= maxLessons:
		return "", 0
	case q == p.Boundary.Boundary && rec.Recording() == nil && !varies(rec) && refusedAt(rec, edge, p.RefusedPeak):
		return "", 0
	case q == p.Boundary.Boundary && p.Lesson != nil && p.Lesson.Kind == proto.LessonCaught && readLedger(rec).verdict(aim{proto.TaskProbe, edge}) == fails:
		return "", 0
	case says(p.Boundary, q) == passes:
		return proto.ExpectPass, 0
	case q == edge:
		return proto.ExpectFail, p.RefusedPeak
	}
	return proto.ExpectFail, 0
}

// refusedAt reports whether a probe at a quota was refused with this peak of
// allocated bytes.
func refusedAt(rec *registry.Record, q, peak proto.Bytes) bool {
	return peak > 0 && slices.ContainsFunc(rec.Runs, func(r registry.Run) bool {
		return r.Kind == proto.TaskProbe && r.Quota == q && r.Outcome.Verdict() == proto.VerdictFail &&
			r.Meters.PeakAllocated != nil && *r.Meters.PeakAllocated == peak
	})
}

// elsewhere is a refusal that was predicted and came at another place of the run
// than replay has it; the zero value where none did, or it has been learned from.
func elsewhere(rec *registry.Record, l ledger, c claim) miss {
	a := aim{proto.TaskProbe, c.quota}
	peak := rec.Prediction.RefusedPeak
	if rec.Prediction.Lesson != nil || c.says != fails || c.quota != rec.Prediction.Boundary.Boundary-gridOf(rec.Cell) || peak == 0 || l.verdict(a) != fails {
		return miss{}
	}
	m := miss{at: a, seen: fails, why: fmt.Sprintf("replay said boundary %s, and that a run at %s is refused with a peak of %s; it was refused with another", rec.Prediction.Boundary.Boundary, c.quota, peak)}
	if refusedAt(rec, c.quota, peak) || learn(rec, m) == nil {
		return miss{}
	}
	return m
}

// varies reports whether two runs of the cell were seen to differ in the order
// of their frees.
func varies(rec *registry.Record) bool { return rec.Prediction != nil && rec.Prediction.Varies }

// claimsOfRange is what is probed of a boundary that is one of a range: that it
// passes (see twice), and that one run fails a little below it. A fail that was
// seen there already will do, and where one run has passed there, any fail below.
// Without one, the lowest quota there is probed that is said to fail: one step
// below the boundary most other runs pass. Where that passes, twice as far below,
// and so on: how far the range goes is no fault of the prediction. What was put together from two runs may be the boundary of
// none: its edge has to be seen.
func (l ledger) claimsOfRange(p proto.Prediction, lim limits) []claim {
	claims := claimsOf(p.Boundary, proto.CertifyEdges, lim)
	if p.Lesson != nil && p.Lesson.Kind == proto.LessonOrder && !p.Lesson.Passed {
		return claims
	}
	edge := p.Boundary.Boundary - lim.step
	reach := edge - farStride*lim.step
	if l.verdict(aim{proto.TaskProbe, edge}) == passes {
		reach = 0
	}
	deep := edge + lim.step
	for far := farStride * lim.step; ; far *= 2 {
		deep = max(edge+lim.step-far, lim.min)
		for deep <= edge && says(p.Boundary, deep) == passes {
			deep += lim.step // edge at last
		}
		if l.verdict(aim{proto.TaskProbe, deep}) != passes {
			break
		}
		reach = 0
		if edge+lim.step-far <= lim.min { // nothing lower is left
			break
		}
	}
	claims = slices.DeleteFunc(claims, func(c claim) bool { return c.quota == edge })
	for _, q := range l.points().fails {
		if q >= reach && q <= edge {
			return claims
		}
	}
	if deep > edge { // the boundary is the smallest quota of the range
		return claims
	}
	return slices.Insert(claims, 0, claim{deep, fails})
}

// twice is how many runs must agree on a pass where runs differ.
const twice = 2

// unsure is a quota that has to be probed again: where runs differ, one pass is
// not enough.
func (l ledger) unsure(rec *registry.Record, a aim) bool {
	return varies(rec) && l.verdict(a) == passes && l.tallies[a].passed < twice
}

// caught reports whether a probe passed after a refusal: the workload went on
// without what it was refused.
func caught(rec *registry.Record) bool {
	for i := range rec.Runs {
		run := &rec.Runs[i]
		if n := run.Meters.NumOOMs; run.Kind == proto.TaskProbe && run.Outcome.Verdict() == proto.VerdictPass && n != nil && *n > 0 {
			return true
		}
	}
	return false
}

// holds reports whether a prediction says of every quota that probes have
// decided what they came to.
func (l ledger) holds(b proto.Boundary) bool {
	p := l.points()
	for _, q := range p.passes {
		if says(b, q) != passes {
			return false
		}
	}
	for _, q := range p.fails {
		if says(b, q) != fails {
			return false
		}
	}
	return true
}

const differ = "runs of this cell differ in the order of their frees, so the boundary is one of a range"

// taught says what a lesson came from, for people.
func taught(p proto.Prediction) string {
	t := p.Lesson
	switch {
	case t == nil && p.Varies:
		return differ
	case t == nil:
		return ""
	}
	came := "was refused"
	if t.Passed {
		came = "passed"
	}
	said := fmt.Sprintf("replay said boundary %s; the run at %s %s", t.Said.Boundary, t.Quota, came)
	showed := map[proto.LessonKind]string{
		proto.LessonCaught: "caught a refusal and went on without what it was refused",
		proto.LessonOrder:  "freed the same blocks in another order; " + differ,
		proto.LessonExtra:  "asked for other blocks than were predicted",
		proto.LessonSame:   "asked for the same blocks, which lay elsewhere",
	}[t.Kind]
	if showed == "" {
		return said
	}
	return said + ": it " + showed
}

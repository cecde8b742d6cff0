package plan

import (
	"fmt"

	"github.com/oomfleet/oomfleet/proto"
	"github.com/oomfleet/oomfleet/storage/registry"
)

// maxOpenProbes is how many probes of one cell may be out at once. Two certify
// an edge in the time of one; more only help where fail bands are probed too.
const maxOpenProbes = 4

// step is what one cell needs next: runs, a replay, or its settlement. All
// empty means: wait for what is out.
type step struct {
	wants []aim
	// expects: the wants are held against the record's prediction.
	expects bool
	replay  *Replay
	settle  *registry.Settlement
}

// decide says what the record's cell needs next, from where its family puts it.
func decide(rec *registry.Record, at place) step {
	if rec.Settled != nil {
		return step{}
	}
	l := readLedger(rec)
	if reason, ok := l.exhausted(); ok {
		return l.settled(failed(reason))
	}
	recording := aim{kind: proto.TaskRecord}
	switch l.verdict(recording) {
	case unknown:
		return borrow(rec, l, at)
	case fails:
		return l.settled(failed(tooSmallCard(l.tallies[recording].last)))
	}
	run := rec.Recording()
	lim := limitsOf(rec, totalOf(run))
	if rec.Search.Strategy == proto.StrategyBisect {
		return bisect(l, lim, bracketOf(rec.Cell, run, lim), "")
	}
	if why := unpredictable(rec, run); why != "" {
		return bisect(l, lim, bracketOf(rec.Cell, run, lim), why)
	}
	if !own(rec, run) {
		return step{replay: replayOf(rec, run, at.check)}
	}
	if p := rec.Prediction; p.Lesson != nil && unusable(*p) != "" {
		return searchOn(rec, l, lim, sentences(taught(*p), unusable(*p)))
	}
	s, missed := certify(rec, l, lim)
	if missed.why == "" {
		return s
	}
	if lesson := learn(rec, missed); lesson != nil {
		return step{replay: lesson}
	}
	return searchOn(rec, l, lim, missed.why)
}

// borrow is the way of a cell without a recording: predicted from one of other
// settings or from a program, and certified. When that misses, the probe's
// trace tells what the cell does otherwise; without one, or where it cannot be
// understood, the cell is recorded.
func borrow(rec *registry.Record, l ledger, at place) step {
	recording := l.wanting(aim{kind: proto.TaskRecord})
	if at.record || rec.Recording() != nil { // one that another run spoke against is not left half known
		return recording
	}
	if p := rec.Prediction; p != nil && at.source.stands(*p) {
		if unusable(*p) != "" {
			return recording
		}
		lim := limitsOf(rec, at.total)
		s, missed := certify(rec, l, lim)
		if missed.why == "" {
			return s
		}
		if lesson := learn(rec, missed); lesson != nil {
			return step{replay: lesson}
		}
		if p.Lesson != nil {
			return searchOn(rec, l, lim, missed.why)
		}
		return recording
	}
	if at.source == (source{}) {
		return step{}
	}
	r := Replay{Key: rec.Key, Cell: rec.Cell, Trace: at.source.trace, Program: at.source.program, Step: gridOf(rec.Cell)}
	if d := at.source.donor; d != nil {
		r.Recorded = d.record.Cell.AllocatorEnv()
	}
	return step{replay: &r}
}

// stands reports whether a prediction is as good as one that would be read off
// the source now: a recording is better than a program, and a program that is
// not trusted any more is nothing.
func (s source) stands(p proto.Prediction) bool {
	return p.Program == "" || s.program != "" && unusable(p) == ""
}

// own reports whether the prediction was read off the cell's own recording, or
// is a lesson on it.
func own(rec *registry.Record, run *registry.Run) bool {
	p := rec.Prediction
	if p == nil || p.Program != "" || run.Trace == nil {
		return false
	}
	return p.Trace == run.Trace.Digest || p.Lesson != nil && p.Lesson.Trace == run.Trace.Digest
}

// unpredictable says why the recording cannot lead the search; empty when it
// can, or when replay has not said yet.
func unpredictable(rec *registry.Record, run *registry.Run) string {
	if own(rec, run) {
		if rec.Prediction.Lesson != nil {
			return ""
		}
		return unusable(*rec.Prediction)
	}
	if run.Trace == nil {
		return "the recording has no trace"
	}
	if _, metered := overheadOf(run.Meters); !metered && rec.Cell.QuotaKind != proto.QuotaAllocator {
		return fmt.Sprintf("the recording's process peak was not metered, and a %s quota counts it", rec.Cell.QuotaKind)
	}
	return ""
}

// replayOf asks for the cell's own recording, held against the program check.
func replayOf(rec *registry.Record, run *registry.Run, check proto.Digest) *Replay {
	overhead, _ := overheadOf(run.Meters)
	var against proto.Digest
	if p := rec.Prediction; p != nil && p.Lesson != nil && p.Lesson.Kind == proto.LessonOrder {
		against = p.Trace
		check = "" // that it does otherwise says nothing about the others
	}
	return &Replay{
		Key: rec.Key, Cell: rec.Cell, Trace: *run.Trace, Recorded: rec.Cell.AllocatorEnv(), Check: check,
		Overhead: overhead, Step: gridOf(rec.Cell), Varies: varies(rec), Against: against,
		Missed: missed(rec),
	}
}

// missed reports whether a probe spoke against a borrowed prediction and no lesson
// came of it.
func missed(rec *registry.Record) bool {
	p := rec.Prediction
	switch {
	case p == nil:
		return false
	case p.Lesson != nil:
		return unusable(*p) != ""
	}
	return unusable(*p) == "" && !readLedger(rec).holds(p.Boundary)
}

// bisect searches with probes alone. why says why no prediction leads it; it is
// empty when the matrix asked for bisection.
func bisect(l ledger, lim limits, br bracket, why string) step {
	f := search(l.points(), br, lim)
	switch {
	case f.noPass:
		return l.settled(failed(noPass(lim, why)))
	case f.found:
		return l.settled(bisected(f, lim, why))
	}
	return l.wanting(probesAt(f.probes)...)
}

func probesAt(quotas []proto.Bytes) []aim {
	aims := make([]aim, len(quotas))
	for i, q := range quotas {
		aims[i] = aim{kind: proto.TaskProbe, quota: q}
	}
	return aims
}

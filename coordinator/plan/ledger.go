package plan

import (
	"fmt"
	"slices"

	"github.com/oomfleet/oomfleet/proto"
	"github.com/oomfleet/oomfleet/storage/registry"
)

const (
	// maxRepeats is how many runs of one kind and quota may teach nothing
	// (crash, hang, host memory, lost) before the cell is given up.
	maxRepeats = 3
	// maxElsewhere is the same for runs that the cell is not to blame for (a
	// neighbour, a wrong stack, a broken agent).
	maxElsewhere = 10
)

// aim is what a run was asked for: its kind and its quota (0 = uncapped).
type aim struct {
	kind  proto.TaskKind
	quota proto.Bytes
}

// verdict is what all runs of one aim say together.
type verdict int

const (
	unknown verdict = iota
	passes
	fails
)

// tally counts the runs of one aim.
type tally struct {
	passed, failed, outside int
	repeats, elsewhere      int
	gaveUp                  bool
	// last is the newest run's outcome and reason, for people.
	last string
}

// ledger is what a record's runs say.
type ledger struct {
	tallies map[aim]*tally
	// order are the aims in the order of their first run, so that nothing
	// depends on the map's.
	order []aim
	open  []aim
}

func readLedger(rec *registry.Record) ledger {
	l := ledger{tallies: make(map[aim]*tally)}
	for i, r := range rec.Runs {
		a := aim{r.Kind, r.Quota}
		if i < rec.RunsBefore && !lasting(a, r.Outcome.Verdict()) {
			continue
		}
		t := l.tallies[a]
		if t == nil {
			t = &tally{}
			l.tallies[a] = t
			l.order = append(l.order, a)
		}
		t.count(r)
	}
	for _, o := range rec.Open {
		l.open = append(l.open, aim{o.Task.Kind, o.Task.Quota})
	}
	return l
}

// lasting reports whether a run from before the record was reopened still
// counts. Edges that probes have seen do; what made a former search give up
// does not, or the new one would end where the old one did.
func lasting(a aim, v proto.Verdict) bool {
	switch v {
	case proto.VerdictPass:
		return true
	case proto.VerdictFail, proto.VerdictConfirm:
		return a.kind == proto.TaskProbe
	}
	return false
}

func (t *tally) count(r registry.Run) {
	t.last = string(r.Outcome)
	if r.Why != "" {
		t.last += ": " + r.Why
	}
	switch r.Outcome.Verdict() {
	case proto.VerdictPass:
		t.passed++
	case proto.VerdictFail:
		t.failed++
	case proto.VerdictConfirm:
		t.outside++
	case proto.VerdictRepeat:
		t.repeats++
	case proto.VerdictElsewhere:
		t.elsewhere++
	case proto.VerdictGiveUp:
		t.gaveUp = true
	}
}

// verdict: a refusal by the quota or the card decides at once. One outside the
// allocator needs a second fresh run that agrees, or two passes against it.
func (l ledger) verdict(a aim) verdict {
	t := l.tallies[a]
	switch {
	case t == nil:
		return unknown
	case t.failed > 0 || t.outside >= 2:
		return fails
	case t.passed >= 2 || t.passed == 1 && t.outside == 0:
		return passes
	}
	return unknown
}

// exhausted reports whether no further run of the cell makes sense, and why.
func (l ledger) exhausted() (reason string, ok bool) {
	for _, a := range l.order {
		t := l.tallies[a]
		switch {
		case t.gaveUp:
			return fmt.Sprintf("no run of this cell can succeed; %s: %s", a, t.last), true
		case l.verdict(a) != unknown:
		case t.repeats >= maxRepeats:
			return fmt.Sprintf("gave up after %d runs that taught nothing; %s: %s", t.repeats, a, t.last), true
		case t.elsewhere >= maxElsewhere:
			return fmt.Sprintf("gave up after %d runs disturbed from outside; %s: %s", t.elsewhere, a, t.last), true
		}
	}
	return "", false
}

// String names the aim in a reason.
func (a aim) String() string {
	if a.kind == proto.TaskRecord {
		return "recording"
	}
	return fmt.Sprintf("probe at %s", a.quota)
}

// points are the quotas that probes have decided, each list ascending.
func (l ledger) points() points {
	var p points
	for _, a := range l.order {
		if a.kind != proto.TaskProbe {
			continue
		}
		switch l.verdict(a) {
		case passes:
			p.passes = append(p.passes, a.quota)
		case fails:
			p.fails = append(p.fails, a.quota)
		}
	}
	slices.Sort(p.passes)
	slices.Sort(p.fails)
	return p
}

// wanting asks for the aims that are not out yet, as far as maxOpenProbes goes.
func (l ledger) wanting(aims ...aim) step {
	var s step
	for _, a := range aims {
		if slices.Contains(l.open, a) || slices.Contains(s.wants, a) {
			continue
		}
		if len(l.open)+len(s.wants) >= maxOpenProbes {
			break
		}
		s.wants = append(s.wants, a)
	}
	return s
}

// settled ends the search, once nothing is out any more: every run that was
// paid for is heard, and none of them can contradict a word that is final.
func (l ledger) settled(s registry.Settlement) step {
	if len(l.open) > 0 {
		return step{}
	}
	return step{settle: &s}
}

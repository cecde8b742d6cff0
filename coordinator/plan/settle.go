package plan

import (
	"fmt"
	"slices"

	"github.com/oomfleet/oomfleet/proto"
	"github.com/oomfleet/oomfleet/storage/registry"
)

func failed(reason string) registry.Settlement {
	return registry.Settlement{
		State: proto.CellFailed, Reason: reason,
		Boundary: proto.Boundary{FailBands: []proto.Band{}},
	}
}

// predicted is final where the matrix wants no probe of this cell.
func predicted(p proto.Prediction) registry.Settlement {
	return registry.Settlement{State: proto.CellPredicted, Boundary: document(p)}
}

// certified is the prediction's own word, as far as probes hold it. Of a cell
// that adapts they hold one edge: what it does above depends on where it is
// refused. The same goes for one whose runs differ, and where some probe, one
// that was made for another word, saw something else.
func certified(rec *registry.Record, l ledger, lim limits) registry.Settlement {
	p := *rec.Prediction
	s := registry.Settlement{State: proto.CellCertified, Boundary: document(p), Reason: taught(p)}
	if caught(rec) {
		s.State = proto.CellAdaptive
		if s.Reason == "" {
			s.Reason = "passes after a refusal, which the workload catches"
		}
	}
	if varies(rec) {
		s.Reason = sentences(s.Reason, l.rangeSeen(p.Boundary.Boundary))
	}
	if s.State == proto.CellAdaptive || varies(rec) || p.Lesson != nil && !l.holds(p.Boundary) {
		s.Boundary = proto.Boundary{Boundary: p.Boundary.Boundary, FailBands: []proto.Band{}}
	}
	if p.Boundary.Boundary <= lim.min {
		s.Reason = sentences(fmt.Sprintf("the boundary is the smallest quota of the range, %s; the fail below it was not probed", lim.min), s.Reason)
	}
	return s
}

// rangeSeen says what probes saw of a boundary that is one of a range.
func (l ledger) rangeSeen(b proto.Bytes) string {
	seen := fmt.Sprintf("%d runs pass at it", twice)
	for _, q := range slices.Backward(l.points().fails) {
		if q < b {
			return fmt.Sprintf("%s, one fails at %s", seen, q)
		}
	}
	return seen
}

// bisected carries one edge and nothing of bands. why is how it came to a
// search without a prediction.
func bisected(f finding, lim limits, why string) registry.Settlement {
	reason := why
	if f.atMin {
		reason = sentences(fmt.Sprintf("passes at the smallest quota of the range, %s; the boundary may be lower", lim.min), why)
	}
	return registry.Settlement{
		State: proto.CellBisected, Reason: reason,
		Boundary: proto.Boundary{Boundary: f.boundary, FailBands: []proto.Band{}},
	}
}

// document is the prediction's boundary with a list that is never null.
func document(p proto.Prediction) proto.Boundary {
	b := p.Boundary
	if b.FailBands == nil {
		b.FailBands = []proto.Band{}
	}
	return b
}

func noPass(lim limits, why string) string {
	return sentences(fmt.Sprintf("does not pass at the largest quota of the range, %s", lim.max), why)
}

func tooSmallCard(last string) string {
	return "needs more memory than the card has: the uncapped recording ran out (" + last + ")"
}

func outOfRange(b proto.Bytes, lim limits) string {
	return fmt.Sprintf("replay puts the boundary at %s, outside the range from %s to %s", b, lim.min, lim.max)
}

// contradicted says what was predicted and what was seen.
func (c claim) contradicted(b proto.Bytes, seen string) string {
	said := "a pass"
	if c.says == fails {
		said = "a fail"
	}
	return fmt.Sprintf("replay said boundary %s and %s at %s; seen there: %s", b, said, c.quota, seen)
}

func sentences(first, second string) string {
	if second == "" {
		return first
	}
	return first + "; " + second
}

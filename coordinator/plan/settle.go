package plan

import (
	"fmt"

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

func certified(p proto.Prediction, lim limits) registry.Settlement {
	s := registry.Settlement{State: proto.CellCertified, Boundary: document(p)}
	if p.Boundary.Boundary <= lim.min {
		s.Reason = fmt.Sprintf("the boundary is the smallest quota of the range, %s; the fail below it was not probed", lim.min)
	}
	return s
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

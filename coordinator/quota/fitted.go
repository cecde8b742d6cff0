package quota

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/oomfleet/oomfleet/fit"
	"github.com/oomfleet/oomfleet/proto"
	"github.com/oomfleet/oomfleet/storage/registry"
)

// neighbour is the settled cell of the same settings and kind with the smallest
// boundary among those that are at least as long and as large; nil for none.
func (d *draft) neighbour() *registry.Record {
	var best *registry.Record
	for _, r := range d.scope.records {
		larger := r.Cell.SeqLen >= d.q.SeqLen && r.Cell.Batch >= d.q.Batch
		if !larger || d.samePoint(r) || !d.sameSettings(r) || r.Cell.QuotaKind != d.q.Kind || r.Settled == nil || r.Settled.Boundary.Boundary <= 0 {
			continue
		}
		if best == nil || r.Settled.Boundary.Boundary < best.Settled.Boundary.Boundary {
			best = r
		}
	}
	return best
}

// fromNeighbour answers with a larger run's quota.
func (d *draft) fromNeighbour(r *registry.Record) {
	d.boundary(r.Settled.Boundary)
	d.of(r, BasisNeighbour)
	d.NoRetry, d.CellID, d.CellState, d.FailBands = nil, "", "", []proto.Band{}
	if !probed(r) {
		d.addMargin(r.Prediction != nil && r.Prediction.Program != "", r.Settled.Boundary.LayoutSensitive)
	}
	d.note("an upper bound: what length %d at batch %d needs, taken to hold for every shorter and smaller run of the same program", r.Cell.SeqLen, r.Cell.Batch)
}

// bound is an answer of the fit.
type bound struct {
	fit.Quota
	Survive      proto.Bytes
	Extrapolated bool
	set          *registry.CoefficientSet
	document     proto.Coefficients
}

// take answers with the fit's bound.
func (d *draft) take(b bound) {
	c := b.document
	d.Basis, d.Torch = BasisCoefficients, c.Group.Torch
	d.Survive, d.Predicted, d.Extrapolated, d.BandsKnown = b.Survive, proto.Bytes(b.Expected), b.Extrapolated, true
	risk := b.Risk
	d.Risk, d.Domain = &risk, &proto.Domain{SeqLen: c.Domain.SeqLen, Batch: c.Domain.Batch}
	d.Evidence = append(d.Evidence, Evidence{What: "coefficients", Bytes: d.Survive, Index: b.set.Index, AgeSeconds: d.age(b.set.Fitted),
		Detail: fmt.Sprintf("%s peak fitted to %d recordings, lengths %d to %d, batches %d to %d; worst residual %.2f %%", c.Target, c.Points,
			c.Domain.SeqLen[0], c.Domain.SeqLen[1], c.Domain.Batch[0], c.Domain.Batch[1], 100*c.ResidualMaxRel)})
	if b.Extrapolated {
		d.note("EXTRAPOLATED: %s; the terms need not hold there, and the risk is not known", d.outsideOf(c.Domain))
		d.Risk = nil
	}
}

// mostBytes is 1 PiB: a fit that says more is far from what it was made of, and
// sums of it would overflow.
const mostBytes = 1 << 50

// fitted is the upper bound of the newest coefficients. The error is a *Refusal
// that names all there is instead.
func (d *draft) fitted() (bound, error) {
	set, document := d.coefficients()
	if set == nil {
		return bound{}, d.nothing("")
	}
	model, err := ModelOf(document)
	if err != nil {
		return bound{}, d.nothing(fmt.Sprintf("the stored coefficients %v; fit the group again", err))
	}
	q, err := model.QuotaFor(d.q.SeqLen, d.q.Batch, d.q.risk())
	outside := errors.Is(err, fit.ErrOutside)
	switch {
	case outside && !d.q.Extrapolate:
		return bound{}, d.nothing(d.outsideOf(document.Domain))
	case err != nil && !outside:
		return bound{}, refusef(BadQuestion, "the coefficients do not answer: %v", err)
	case q.Bytes >= mostBytes:
		return bound{}, refusef(OutsideDomain, "at length %d and batch %d the fit comes to more than any card has (%s), which is no answer", d.q.SeqLen, d.q.Batch, proto.Bytes(mostBytes))
	}
	return bound{Quota: q, Survive: proto.Bytes(q.Bytes).RoundUp(d.Step), Extrapolated: outside, set: set, document: document}, nil
}

// coefficients are the newest of the scope with the target of the question's
// kind: those of the kind itself first, though fits are of runs without a quota
// and the same for all.
func (d *draft) coefficients() (*registry.CoefficientSet, proto.Coefficients) {
	target := fit.Reserved
	if d.q.limitsProcess() {
		target = fit.Process
	}
	sets := slices.Clone(d.scope.sets)
	slices.SortStableFunc(sets, func(a, b *registry.CoefficientSet) int {
		if x, y := a.Key.QuotaKind == d.q.Kind, b.Key.QuotaKind == d.q.Kind; x != y {
			if x {
				return -1
			}
			return 1
		}
		return int(int64(b.Index) - int64(a.Index))
	})
	for _, set := range sets {
		for _, c := range set.Models {
			if c.Target == string(target) {
				return set, c
			}
		}
	}
	return nil, proto.Coefficients{}
}

// inside is whether a question lies in a domain.
func inside(domain proto.Domain, q Question) bool {
	return q.SeqLen >= domain.SeqLen[0] && q.SeqLen <= domain.SeqLen[1] && q.Batch >= domain.Batch[0] && q.Batch <= domain.Batch[1]
}

func (d *draft) outsideOf(domain proto.Domain) string {
	return fmt.Sprintf("length %d at batch %d is outside what was fitted (lengths %d to %d, batches %d to %d)",
		d.q.SeqLen, d.q.Batch, domain.SeqLen[0], domain.SeqLen[1], domain.Batch[0], domain.Batch[1])
}

// nothing is the refusal at the end of the ladder: why the fit does not answer,
// and where evidence ends.
func (d *draft) nothing(why string) error {
	code, cure := OutsideDomain, "add it to the matrix, or ask to extrapolate"
	if why == "" {
		code, why, cure = NotCovered, "this cell has no boundary and its group no coefficients yet", "wait until the sweep has settled, or add lengths to the matrix"+d.elsewhere(d.q)
	}
	var cells []string
	for _, r := range d.scope.records {
		if d.sameSettings(r) && r.Cell.QuotaKind == d.q.Kind && r.Settled != nil && r.Settled.Boundary.Boundary > 0 {
			cells = append(cells, fmt.Sprintf("L%d B%d", r.Cell.SeqLen, r.Cell.Batch))
		}
	}
	if len(cells) > 0 {
		more := ""
		if n := len(cells); n > 3 {
			cells, more = cells[n-3:], fmt.Sprintf(" and %d more", n-3)
		}
		why += "; settled cells, none at least as large: " + strings.Join(cells, ", ") + more
	}
	if p := d.View.Programs[registry.FamilyOf(d.q.Origin, d.scope.cell(d.q, d.Step))]; p.Usable() {
		var spans []string
		for _, piece := range p.Domains {
			spans = append(spans, fmt.Sprintf("lengths %d to %d, batches %d to %d", piece.SeqLen[0], piece.SeqLen[1], piece.Batch[0], piece.Batch[1]))
		}
		why += "; its program holds for " + strings.Join(spans, " and ")
	}
	if len(d.Notes) > 0 {
		why += " (" + strings.Join(d.Notes, "; ") + ")"
	}
	return refusef(code, "%s; %s", why, cure)
}

package diff

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/oomfleet/oomfleet/fit"
	"github.com/oomfleet/oomfleet/proto"
)

// Options are the choices of a comparison; the zero value is the default.
type Options struct {
	// Margin is the difference that does not matter; 0 is 16 MiB, and a
	// negative one is refused.
	Margin proto.Bytes
	// Confidence is the rate at which the whole of the verdicts should hold;
	// 0 is 0.95.
	Confidence float64
	// Card is the memory of the card that jobs run on; 0 asks about none.
	Card proto.Bytes
}

// mostConfident is what fit.Compare takes at the most.
const mostConfident = 0.999

// Sweeps compares two sweeps, or two drivers of one, cell by cell and group by
// group. It fails with ErrInput alone.
func Sweeps(before, after Side, o Options) (Document, error) {
	if o.Margin < 0 || o.Card < 0 {
		return Document{}, refuse("margin and card cannot be negative")
	}
	if o.Confidence != 0 && !(o.Confidence >= 0.5 && o.Confidence <= mostConfident) {
		return Document{}, refuse("confidence %v is not between 0.5 and %v", o.Confidence, mostConfident)
	}
	o.Margin = cmp.Or(o.Margin, fit.DefaultMargin)
	o.Confidence = cmp.Or(o.Confidence, 0.95)
	a, err := check(before)
	if err != nil {
		return Document{}, err
	}
	b, err := check(after)
	if err != nil {
		return Document{}, err
	}
	if err := together(a, b); err != nil {
		return Document{}, err
	}
	if a.stack == b.stack && a.Report.Matrix.ID == b.Report.Matrix.ID {
		return Document{}, refuse("both sides are the same: %s under driver %s", a.Name, a.stack.Driver)
	}
	d := Document{Before: a.stack, After: b.stack, Groups: []Group{}, Cells: []Cell{}, Unpaired: unpaired(a, b), Repeat: []Repeat{},
		Basis: Basis{Origin: a.origin, QuotaKind: a.kind, Step: a.step, Margin: o.Margin, Confidence: o.Confidence, RecordingsOnly: a.Torch != ""}}
	groups := grouped(a, b)
	each := shared(o.Confidence, groups, &d.Basis)
	for _, pairs := range groups {
		if err := d.group(pairs, each); err != nil {
			return Document{}, err
		}
	}
	d.conclude()
	d.Jobs = jobs(d.Cells, d.Basis, o.Card)
	return d, nil
}

// pair is a cell that both sides have.
type pair struct {
	before, after proto.CellReport
}

// grouped are the pairs of each group, all in the order of tables.
func grouped(a, b side) [][]pair {
	byGroup := map[key][]pair{}
	for k, before := range a.cells {
		if after, ok := b.cells[k]; ok {
			k.seqLen, k.batch = 0, 0
			byGroup[k] = append(byGroup[k], pair{before, after})
		}
	}
	groups := slices.Collect(maps.Values(byGroup))
	for _, pairs := range groups {
		slices.SortFunc(pairs, comparePairs)
	}
	slices.SortFunc(groups, func(x, y []pair) int { return comparePairs(x[0], y[0]) })
	return groups
}

func comparePairs(x, y pair) int {
	a, b := x.before, y.before
	return cmp.Or(cmp.Compare(a.Workload.String(), b.Workload.String()), cmp.Compare(a.ChunkSize, b.ChunkSize),
		cmp.Compare(proto.EnvString(a.Env), proto.EnvString(b.Env)), cmp.Compare(a.Batch, b.Batch), cmp.Compare(a.SeqLen, b.SeqLen),
		cmp.Compare(a.ID, b.ID))
}

// unpaired are the cells of one side alone.
func unpaired(a, b side) []Unpaired {
	out := []Unpaired{}
	lacking := func(has, lacks side, only string) {
		var rows []proto.CellReport
		for k, c := range has.cells {
			if _, ok := lacks.cells[k]; !ok {
				rows = append(rows, c)
			}
		}
		slices.SortFunc(rows, func(x, y proto.CellReport) int { return comparePairs(pair{before: x}, pair{before: y}) })
		for _, c := range rows {
			out = append(out, Unpaired{Cell: nameOf(c), Only: only})
		}
	}
	lacking(a, b, "before")
	lacking(b, a, "after")
	return out
}

// shared divides the error that is allowed among the groups (Bonferroni); fit
// divides each share among the terms and cells of its group (Holm).
func shared(confidence float64, groups [][]pair, basis *Basis) float64 {
	judged := 0
	for _, pairs := range groups {
		if slices.ContainsFunc(pairs, pair.recorded) {
			judged++
		}
	}
	basis.Correction = "Holm, over the terms and cells of a group"
	if judged < 2 {
		return confidence
	}
	basis.Correction += fmt.Sprintf("; Bonferroni, over %d groups", judged)
	each := 1 - (1-confidence)/float64(judged)
	if each > mostConfident {
		basis.Notes = append(basis.Notes, fmt.Sprintf("%d groups were judged at a confidence of %v each, the highest there is: the whole is a little less sure than asked for", judged, mostConfident))
		return mostConfident
	}
	return each
}

// recorded reports whether both sides of a pair have recordings.
func (p pair) recorded() bool { return len(points(p.before)) > 0 && len(points(p.after)) > 0 }

// points are a cell's recordings as fit takes them. A document without the
// list has the peaks of one.
func points(c proto.CellReport) []fit.Point {
	recordings := c.Recordings
	if len(recordings) == 0 && (c.PeakAllocated > 0 || c.PeakReserved > 0 || c.ProcessPeak > 0) {
		recordings = []proto.Recording{{PeakAllocated: c.PeakAllocated, PeakReserved: c.PeakReserved, ProcessPeak: c.ProcessPeak}}
	}
	var out []fit.Point
	for _, r := range recordings {
		out = append(out, fit.Point{SeqLen: c.SeqLen, Batch: c.Batch, Allocated: int64(r.PeakAllocated), Reserved: int64(r.PeakReserved),
			Process: int64(r.ProcessPeak), Weights: int64(r.Weights), Context: int64(r.Context), LoadedReserved: int64(r.LoadedReserved)})
	}
	return out
}

// compareGroup asks fit about the pairs that were recorded on both sides; ok is
// false where none was.
func compareGroup(pairs []pair, o fit.CompareOptions, basis Basis) (c fit.Comparison, ok bool, err error) {
	limits := fit.Process
	if basis.QuotaKind == proto.QuotaAllocator {
		limits = fit.Reserved
	}
	var before, after fit.Side
	for _, p := range pairs {
		if !p.recorded() {
			continue
		}
		before.Points = append(before.Points, points(p.before)...)
		after.Points = append(after.Points, points(p.after)...)
		if !p.edgesKnown() {
			continue
		}
		at := fit.CellBoundary{SeqLen: p.before.SeqLen, Batch: p.before.Batch, Step: int64(basis.Step), Limits: limits}
		at.Boundary = int64(p.before.Boundary.Boundary)
		before.Boundaries = append(before.Boundaries, at)
		at.Boundary = int64(p.after.Boundary.Boundary)
		after.Boundaries = append(after.Boundaries, at)
	}
	if len(before.Points) == 0 {
		return c, false, nil
	}
	c, err = fit.Compare(before, after, o)
	if errors.Is(err, fit.ErrBadPoint) || errors.Is(err, fit.ErrNothingToCompare) {
		return c, false, refuse("%v", err)
	}
	return c, err == nil, err
}

// edgesKnown reports whether both boundaries are known, with their bands: an
// edge that a bisection found may be any of several.
func (p pair) edgesKnown() bool {
	return p.before.Boundary.Boundary > 0 && p.after.Boundary.Boundary > 0 && p.before.BandsKnown && p.after.BandsKnown
}

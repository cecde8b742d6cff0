package diff

import (
	"fmt"
	"slices"

	"github.com/oomfleet/oomfleet/fit"
	"github.com/oomfleet/oomfleet/proto"
)

// group compares the pairs of one group and adds what came of it.
func (d *Document) group(pairs []pair, confidence float64) error {
	first := pairs[0].before
	g := Group{Workload: first.Workload, ChunkSize: first.ChunkSize, Env: first.Env, Terms: []fit.TermChange{}}
	if g.Env == nil {
		g.Env = map[string]string{}
	}
	said, ok, err := compareGroup(pairs, fit.CompareOptions{Confidence: confidence, Margin: int64(d.Basis.Margin)}, d.Basis)
	if err != nil {
		return err
	}
	var verdicts []proto.VerdictWord
	if ok {
		g.Moved, g.Noise, g.Notes = said.Moved, said.Noise, said.Notes
		g.Terms = append(g.Terms, said.Terms...)
		verdicts = append(verdicts, proto.VerdictWord(said.Verdict))
	}
	needs := map[[2]int]int{}
	for _, n := range said.NeedMore {
		needs[[2]int{n.SeqLen, n.Batch}] = n.Repeats
	}
	var outside [2]proto.Bytes
	for _, p := range pairs {
		outside = [2]proto.Bytes{max(outside[0], beside(p.before)), max(outside[1], beside(p.after))}
	}
	for _, p := range pairs {
		c := d.cell(p, said)
		c.Job = jobOf(p, d.Basis, outside)
		verdicts = append(verdicts, c.Verdict)
		d.Cells = append(d.Cells, c)
		if more := needs[[2]int{c.SeqLen, c.Batch}]; more > 0 && p.recorded() && repeatable(p.before) && repeatable(p.after) {
			d.Repeat = append(d.Repeat, repeatOf(c, p, more))
		}
	}
	g.Verdict = all(verdicts)
	d.Groups = append(d.Groups, g)
	return nil
}

// cell puts together what is known of one pair.
func (d *Document) cell(p pair, said fit.Comparison) Cell {
	a, b := p.before, p.after
	c := Cell{Before: a.ID, After: b.ID, Workload: a.Workload, SeqLen: a.SeqLen, Batch: a.Batch, ChunkSize: a.ChunkSize, Env: a.Env, Measures: []Measure{}}
	if c.Env == nil {
		c.Env = map[string]string{}
	}
	for _, m := range said.Cells {
		if m.SeqLen == c.SeqLen && m.Batch == c.Batch {
			c.Measures = append(c.Measures, Measure{Name: m.Measure, Before: proto.Bytes(m.Before), After: proto.Bytes(m.After), Runs: m.Runs, Change: m.Change})
		}
	}
	has := slices.ContainsFunc(c.Measures, func(m Measure) bool { return m.Name == boundary })
	if a.Boundary.Boundary > 0 && b.Boundary.Boundary > 0 && !has {
		m := Measure{Name: boundary, Before: a.Boundary.Boundary, After: b.Boundary.Boundary}
		m.Change, c.Reason = onGrid(p, d.Basis)
		c.Measures = append(c.Measures, m)
	}
	var verdicts []proto.VerdictWord
	for _, m := range c.Measures {
		verdicts = append(verdicts, proto.VerdictWord(m.Verdict))
	}
	for _, s := range []struct {
		name string
		cell proto.CellReport
	}{{"before", a}, {"after", b}} {
		if s.cell.Boundary.Boundary == 0 && !d.Basis.RecordingsOnly {
			c.Reason = fmt.Sprintf("there is no boundary %s: the cell %s", s.name, describe(s.cell))
			verdicts = append(verdicts, proto.VerdictNeedMore)
		}
	}
	c.Verdict = all(verdicts)
	return c
}

// repeatable reports whether a cell can be recorded again: one without a result
// cannot, and the registry takes all the cells of a repeat or none.
func repeatable(c proto.CellReport) bool {
	return c.State != proto.CellFailed && c.State != proto.CellCancelled
}

// boundary is the name of the one measure that is no peak.
const boundary = "boundary"

// edgeNoise is the width within which an edge of a device or process quota is
// not determined: what the driver holds beside the allocator wobbles.
const edgeNoise = 16 * proto.MiB

// onGrid compares two boundaries without any recording to tell how runs differ.
// An allocator quota's boundary is exact to its step. Others are not, so that
// their same holds to a wider margin, which is named, and is not said at all where
// a margin was asked for that is narrower than what they wobble by.
func onGrid(p pair, basis Basis) (fit.Change, string) {
	diff := p.after.Boundary.Boundary - p.before.Boundary.Boundary
	c := fit.Change{Verdict: fit.Same, Diff: int64(diff), Lo: int64(diff - basis.Step), Hi: int64(diff + basis.Step), P: 1}
	if basis.QuotaKind != proto.QuotaAllocator {
		c.Lo, c.Hi = int64(diff-basis.Step-edgeNoise), int64(diff+basis.Step+edgeNoise)
	}
	size := max(diff, -diff)
	switch {
	case size <= basis.Margin && basis.QuotaKind == proto.QuotaAllocator:
		return c, ""
	case size <= basis.Margin && basis.Margin < edgeNoise:
		c.Verdict = fit.NeedMore
		return c, fmt.Sprintf("boundaries of %s quotas are not determined to less than %v, and the margin is %v", basis.QuotaKind, edgeNoise, basis.Margin)
	case size <= basis.Margin:
		return c, fmt.Sprintf("the boundaries are the same to within %v: those of %s quotas are not determined to less than %v",
			basis.Margin+basis.Step+edgeNoise, basis.QuotaKind, edgeNoise)
	case !p.edgesKnown():
		c.Verdict = fit.NeedMore
		return c, "a boundary was found by bisection, which sees one of several edges; the two edges may be different ones"
	case basis.QuotaKind != proto.QuotaAllocator && size <= basis.Margin+edgeNoise:
		c.Verdict = fit.NeedMore
		return c, fmt.Sprintf("boundaries of %s quotas are not determined to less than %v", basis.QuotaKind, edgeNoise)
	}
	c.Verdict, c.P = fit.Changed, 0
	return c, ""
}

func describe(c proto.CellReport) string {
	text := "is " + string(c.State)
	if c.Reason != "" {
		text += " (" + c.Reason + ")"
	}
	return text
}

// all is the verdict on a whole: changed if a part changed, same if all are.
func all(parts []proto.VerdictWord) proto.VerdictWord {
	switch {
	case slices.Contains(parts, proto.VerdictChanged):
		return proto.VerdictChanged
	case len(parts) == 0 || slices.Contains(parts, proto.VerdictNeedMore):
		return proto.VerdictNeedMore
	}
	return proto.VerdictSame
}

// unknownWidth is the width of an interval that nothing bounds; fit writes such
// a one as -4 EiB to 4 EiB.
const unknownWidth = 1 << 60

// repeatOf says what more recordings of a cell would do to its widest interval
// that is undecided.
func repeatOf(c Cell, p pair, more int) Repeat {
	r := Repeat{Before: c.Before, After: c.After, Cell: nameOf(p.before), More: more, Runs: min(len(points(p.before)), len(points(p.after)))}
	for _, m := range c.Measures {
		if m.Verdict != fit.NeedMore || m.Runs[0] == 0 {
			continue
		}
		if m.Lo <= -unknownWidth || m.Hi >= unknownWidth {
			r.HalfNow = 0
			return r
		}
		r.HalfNow = max(r.HalfNow, proto.Bytes(m.Hi-m.Lo)/2)
	}
	r.HalfThen = r.Half(more)
	return r
}

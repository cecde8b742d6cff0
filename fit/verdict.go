package fit

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"gonum.org/v1/gonum/stat/distuv"
)

// mostRepeats is the most further runs of a cell that are asked for at once.
const mostRepeats = 8

// holm corrects probabilities for being the smallest of many (Holm, A simple
// sequentially rejective multiple test procedure, 1979): the chance that any of
// those below a level is noise is then that level.
func holm(p []float64) []float64 {
	order := make([]int, len(p))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(p[a], p[b]) })
	out, floor := make([]float64, len(p)), 0.0
	for rank, i := range order {
		floor = max(floor, min(1, p[i]*float64(len(p)-rank)))
		out[i] = floor
	}
	return out
}

// judge turns claims into verdicts.
func (c *comparer) judge() {
	raw := make([]float64, len(c.claims))
	for i, k := range c.claims {
		raw[i] = k.p()
	}
	c.out.Verdict = Same
	for i, p := range holm(raw) {
		k := c.claims[i]
		half := k.half(c.confidence)
		ch := Change{Verdict: NeedMore, Diff: int64(math.Round(k.diff)), Lo: clip(math.Floor(k.diff - half)), Hi: clip(math.Ceil(k.diff + half)), P: p}
		switch {
		case k.diff-half >= -c.margin && k.diff+half <= c.margin:
			ch.Verdict = Same
		case p < 1-c.confidence && math.Abs(k.diff) > c.margin:
			ch.Verdict = Changed
			c.out.Verdict = Changed
		default:
			c.need(k)
			if c.out.Verdict == Same {
				c.out.Verdict = NeedMore
			}
		}
		k.write(ch)
	}
	if len(c.claims) == 0 {
		c.out.Verdict = NeedMore
		c.note("no cell was run on both sides: run the same lengths and batches on both")
	}
	c.out.Moved = c.moved()
}

func clip(v float64) int64 { return int64(max(-1<<62, min(v, 1<<62))) }

// need asks for the repeats that should settle a claim: as many as make its
// interval as narrow as its distance from the margin, or, past the margin, make
// the correction for all comparisons no matter.
func (c *comparer) need(k claim) {
	want := Need{SeqLen: k.cell.seqLen, Batch: k.cell.batch, Repeats: 2}
	if k.dof > 0 {
		level, room := (1+c.confidence)/2, max(c.margin-math.Abs(k.diff), c.margin/3)
		if math.Abs(k.diff) > c.margin {
			level, room = 1-(1-c.confidence)/2/float64(len(c.claims)), math.Abs(k.diff)
		}
		z := distuv.UnitNormal.Quantile(level)
		runs := 2 * z * z * (k.noise.variance + k.noise.resolution) / (room * room)
		have := min(len(k.cell.before), len(k.cell.after))
		want.Repeats = int(max(1, min(math.Ceil(runs)-float64(have), mostRepeats)))
	}
	i, found := slices.BinarySearchFunc(c.out.NeedMore, want, func(a, b Need) int {
		return cmp.Or(a.Batch-b.Batch, a.SeqLen-b.SeqLen)
	})
	if found {
		c.out.NeedMore[i].Repeats = max(c.out.NeedMore[i].Repeats, want.Repeats)
		return
	}
	c.out.NeedMore = slices.Insert(c.out.NeedMore, i, want)
}

// moved names the terms that changed; where none did, the cell that changed most.
// Claims were made in the order of terms, then cells.
func (c *comparer) moved() string {
	var parts []string
	for i, t := range c.out.Terms {
		if t.Verdict == Changed {
			parts = append(parts, t.Term+" "+amount(t.Change, c.claims[i].noise)+place(t.SeqLen, t.Batch))
		}
	}
	if len(parts) > 0 {
		return strings.Join(parts, ", ")
	}
	most, size := "", int64(0)
	for i, cell := range c.out.Cells {
		if cell.Verdict == Changed && abs(cell.Diff) > size {
			most, size = cell.Measure+" "+amount(cell.Change, c.claims[len(c.out.Terms)+i].noise)+place(cell.SeqLen, cell.Batch), abs(cell.Diff)
		}
	}
	return most
}

func place(seqLen, batch int) string {
	if seqLen == 0 {
		return ""
	}
	return fmt.Sprintf(" at L%d B%d", seqLen, batch)
}

// amount is a change in MiB, with no digit that noise leaves open: to the next of
// 1, 2, 5, 10, 20, 50, ... MiB that is not below the width of its interval.
func amount(ch Change, n noise) string {
	const mib = 1 << 20
	width, grain := float64(ch.Hi-ch.Lo)/mib, 1.0
	for steps := []float64{2, 2.5, 2}; n.variance > 0 && grain < width; {
		grain *= steps[0]
		steps = append(steps[1:], steps[0])
	}
	return fmt.Sprintf("%+.0f MiB", math.Round(float64(ch.Diff)/mib/grain)*grain)
}

func abs(v int64) int64 { return max(v, -v) }

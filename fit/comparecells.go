package fit

import (
	"cmp"
	"math"
	"slices"
)

// cells makes the claims on every measure of every cell that both sides have.
func (c *comparer) cells() {
	peaks := map[Target]noise{}
	for _, t := range []Target{Allocated, Reserved, Process} {
		grain := float64(driverGrain)
		if t == Allocated {
			grain = blockGrain
		}
		samples := c.samples(direct(t, "").read)
		n := noiseOf(samples, c.resolution(grain))
		peaks[t] = n
		c.sayNoise(string(t), n)
		c.unpaired(samples)
		var above []sample
		if t == Process && c.context != nil {
			above = c.samples(beyondContext)
		}
		for _, s := range pairs(samples) {
			e := n.estimate(s.diff(), s.factor())
			own := n
			if i := slices.IndexFunc(above, func(o sample) bool { return same(o, s) && o.paired() }); i >= 0 {
				own = noiseOf(above, c.resolution(grain))
				e = own.estimate(above[i].diff(), above[i].factor()).plus(*c.context)
			}
			c.claimCell(string(t), s, e, own)
		}
	}
	c.boundaries(peaks)
	slices.SortStableFunc(c.out.Unpaired, func(a, b Unpaired) int { return cmp.Or(a.Batch-b.Batch, a.SeqLen-b.SeqLen) })
	c.out.Unpaired = slices.Compact(c.out.Unpaired)
}

// beyondContext is what the process holds besides its context. The context is
// there before the first tensor, so no length or batch moves it, and its change
// is taken from all runs: a cell then bears its own noise only.
func beyondContext(p Point) (y, scale int64, ok bool) {
	return p.Process - p.Context, p.Process, p.Process > 0 && p.Context > 0
}

func same(a, b sample) bool { return a.seqLen == b.seqLen && a.batch == b.batch }

func (c *comparer) sayNoise(measure string, n noise) {
	if n.dof > 0 {
		c.out.Noise[measure] = int64(math.Round(math.Sqrt(n.variance)))
	}
}

func (c *comparer) unpaired(samples []sample) {
	for _, s := range samples {
		if s.paired() {
			continue
		}
		only := "before"
		if len(s.before) == 0 {
			only = "after"
		}
		c.out.Unpaired = append(c.out.Unpaired, Unpaired{SeqLen: s.seqLen, Batch: s.batch, Only: only})
	}
}

// boundaries claims the changes of what the search found. A boundary is seldom
// found twice: without repeats its noise is taken to be that of the peak that
// its quota limits. Its true edge is anywhere within a step.
func (c *comparer) boundaries(peaks map[Target]noise) {
	var samples []sample
	step := int64(0)
	take := func(found []CellBoundary, side func(*sample) *[]float64) {
		for _, b := range found {
			i := slices.IndexFunc(samples, func(s sample) bool { return s.seqLen == b.SeqLen && s.batch == b.Batch })
			if i < 0 {
				i = len(samples)
				samples = append(samples, sample{seqLen: b.SeqLen, batch: b.Batch})
			}
			to := side(&samples[i])
			*to = append(*to, float64(b.Boundary))
			step = max(step, b.Step)
		}
	}
	take(c.before.Boundaries, func(s *sample) *[]float64 { return &s.before })
	take(c.after.Boundaries, func(s *sample) *[]float64 { return &s.after })
	if len(samples) == 0 {
		return
	}
	slices.SortFunc(samples, func(a, b sample) int { return cmp.Or(a.batch-b.batch, a.seqLen-b.seqLen) })
	c.unpaired(samples)
	n := noiseOf(samples, uniform(float64(step)))
	if limited := peaks[slices.Concat(c.before.Boundaries, c.after.Boundaries)[0].Limits]; repeats(samples) < enoughRepeats && limited.dof > 0 {
		n.variance, n.dof = limited.variance, limited.dof
	}
	c.sayNoise("boundary", n)
	for _, s := range pairs(samples) {
		c.claimCell("boundary", s, n.estimate(s.diff(), s.factor()), n)
	}
}

// repeats is how many runs were made more than cells on each side.
func repeats(samples []sample) int {
	n := 0
	for _, s := range samples {
		n += max(0, len(s.before)-1) + max(0, len(s.after)-1)
	}
	return n
}

func (c *comparer) claimCell(measure string, s sample, e estimate, n noise) {
	c.out.Cells = append(c.out.Cells, CellChange{SeqLen: s.seqLen, Batch: s.batch, Measure: measure,
		Before: int64(math.Round(mean(s.before))), After: int64(math.Round(mean(s.after))), Runs: [2]int{len(s.before), len(s.after)}})
	i := len(c.out.Cells) - 1
	c.claims = append(c.claims, claim{estimate: e, noise: n, cell: s, write: func(ch Change) { c.out.Cells[i].Change = ch }})
}

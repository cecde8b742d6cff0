package fit

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
)

// comparer is one comparison under way.
type comparer struct {
	before, after      Side
	confidence, margin float64
	out                Comparison

	context *estimate // how the context changed, nil where not measured
	claims  []claim   // one for each term and cell, before correction
}

// claim is a row that waits for its verdict.
type claim struct {
	estimate
	noise noise
	cell  sample // where repeats would tell more
	write func(Change)
}

func (c *comparer) note(format string, args ...any) {
	c.out.Notes = append(c.out.Notes, fmt.Sprintf(format, args...))
}

// samples reads a measure at every cell, in the order of batch and length.
func (c *comparer) samples(read reading) []sample {
	type key struct{ batch, seqLen int }
	cells := map[key]*sample{}
	take := func(points []Point, side func(*sample) *[]float64) {
		for _, p := range points {
			y, _, ok := read(p)
			if !ok {
				continue
			}
			k := key{p.Batch, p.SeqLen}
			if cells[k] == nil {
				cells[k] = &sample{seqLen: p.SeqLen, batch: p.Batch}
			}
			to := side(cells[k])
			*to = append(*to, float64(y))
		}
	}
	take(c.before.Points, func(s *sample) *[]float64 { return &s.before })
	take(c.after.Points, func(s *sample) *[]float64 { return &s.after })
	var out []sample
	order := func(a, b key) int { return cmp.Or(a.batch-b.batch, a.seqLen-b.seqLen) }
	for _, k := range slices.SortedFunc(maps.Keys(cells), order) {
		out = append(out, *cells[k])
	}
	return out
}

// resolution is the variance that a measure has besides what repeats show.
func (c *comparer) resolution(grain float64) float64 {
	rounding := int64(0)
	for _, p := range append(slices.Clone(c.before.Points), c.after.Points...) {
		rounding = max(rounding, p.Rounding)
	}
	return uniform(grain) + uniform(2*float64(rounding))
}

// has reports whether both sides read a measure somewhere.
func has(samples []sample) bool {
	b, a := sides(samples)
	return len(b) > 0 && len(a) > 0
}

// sides are all readings of each side, whatever their cell.
func sides(samples []sample) (before, after []float64) {
	for _, s := range samples {
		before, after = append(before, s.before...), append(after, s.after...)
	}
	return before, after
}

func weightsOf(p Point) (y, scale int64, ok bool) { return p.Weights, p.Weights, p.Weights > 0 }
func contextOf(p Point) (y, scale int64, ok bool) { return p.Context, p.Context, p.Context > 0 }

// modulesOf is what the process holds beyond allocator and context.
func modulesOf(p Point) (y, scale int64, ok bool) {
	y, scale, ok = difference(Reserved, Process)(p)
	return y - p.Context, scale, ok && p.Context > 0
}

// terms makes the claims on terms: what every run holds alike first, then what
// the program's peak and the layers around it differ by.
func (c *comparer) terms() {
	weighed := c.samples(weightsOf)
	if has(weighed) {
		c.level("weights", weighed, blockGrain)
	}
	base := c.base()
	if base != "" {
		c.activations(base, has(weighed))
	}
	if slack := c.samples(difference(Allocated, Reserved)); base == Allocated && has(slack) {
		c.average("slack", slack)
	}
	outside := c.samples(difference(Reserved, Process))
	if base == Process || !has(outside) {
		return
	}
	if context := c.samples(contextOf); has(context) {
		e := c.level("context", context, driverGrain)
		c.context = &e
		c.average("modules", c.samples(modulesOf))
		return
	}
	c.note("context was not measured on both sides: the term holds context and modules, not told apart")
	c.average("context", outside)
}

// base is the smallest peak that both sides know.
func (c *comparer) base() Target {
	for _, t := range []Target{Allocated, Reserved, Process} {
		if has(c.samples(direct(t, "").read)) {
			if t != Allocated {
				c.note("allocated was not measured on both sides: the terms of %s hold the layers below it as well", t)
			}
			return t
		}
	}
	return ""
}

// level claims the change of what no length or batch can move; every run of a
// side tells it.
func (c *comparer) level(name string, samples []sample, grain float64) estimate {
	before, after := sides(samples)
	n := leveled(before, after, c.resolution(grain))
	all := sample{before: before, after: after}
	e := n.estimate(all.diff(), all.factor())
	cheapest := append(pairs(samples), samples[0])[0]
	c.claimTerm(TermChange{Term: name}, e, n, cheapest)
	return e
}

// average claims the mean change of a layer over the paired cells.
func (c *comparer) average(name string, samples []sample) {
	cells := pairs(samples)
	if len(cells) == 0 {
		return
	}
	n := noiseOf(samples, c.resolution(driverGrain))
	diff, factor := 0.0, 0.0
	for _, s := range cells {
		diff += s.diff() / float64(len(cells))
		factor += s.factor() / float64(len(cells)*len(cells))
	}
	c.claimTerm(TermChange{Term: name}, n.estimate(diff, factor), n, cells[0])
}

// activations claims the change of the program's own peak, in the fewest terms
// that explain it; each of the others is what it alone would have to change by to
// explain what those leave.
func (c *comparer) activations(base Target, weighed bool) {
	samples := c.samples(func(p Point) (int64, int64, bool) {
		v := p.peak(base)
		if !weighed {
			return v, v, v > 0
		}
		return v - p.Weights, v, v > 0 && p.Weights > 0
	})
	cells := pairs(samples)
	if len(cells) == 0 {
		return
	}
	grain := float64(driverGrain)
	if base == Allocated {
		grain = blockGrain
	}
	n := noiseOf(samples, c.resolution(grain))
	if len(cells) < 3 {
		at := largest(cells, "BL2")
		c.claimTerm(TermChange{Term: "activations", SeqLen: at.seqLen, Batch: at.batch}, n.estimate(at.diff(), at.factor()), n, at)
		return
	}
	chosen, settled := explain(cells, n, c.confidence)
	if !settled && chosen.dof > 0 && n.dof > 0 {
		c.note("the change of %s does not follow length and batch smoothly: judge it cell by cell", base)
		n = noise{variance: chosen.rss / float64(chosen.dof), dof: float64(chosen.dof), resolution: n.resolution}
	}
	for _, name := range growing {
		with := chosen
		if !slices.Contains(chosen.names, name) {
			var ok bool
			if with, ok = regress(cells, append(slices.Clone(chosen.names), name)); !ok {
				continue // the cells cannot tell it from the others
			}
		}
		t, at := TermChange{Term: name}, largest(cells, name)
		if name != growing[0] {
			t.SeqLen, t.Batch = at.seqLen, at.batch
		}
		c.claimTerm(t, with.effect(name, at, n), n, at)
	}
}

func (c *comparer) claimTerm(t TermChange, e estimate, n noise, cell sample) {
	c.out.Terms = append(c.out.Terms, t)
	i := len(c.out.Terms) - 1
	c.claims = append(c.claims, claim{estimate: e, noise: n, cell: cell, write: func(ch Change) { c.out.Terms[i].Change = ch }})
}

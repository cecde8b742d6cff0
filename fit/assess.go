package fit

import (
	"fmt"
	"math"
	"slices"
)

const (
	// misfit is the relative residual above which one sum of terms is taken
	// not to hold over all points.
	misfit = 0.01
	// narrowGain is how many times better a part of the points must be
	// explained before the rest is left out; chance alone does not do that.
	narrowGain = 4
	// narrowLeast is the fewest cells that a part must have.
	narrowLeast = 5
)

// assess fills in what a model says about itself: domain, residual, worst point,
// run-to-run spread, and how far off the points outside the domain are.
func (g *group) assess(m *Model) {
	m.Domain = Domain{SeqLen: [2]int{math.MaxInt, 0}, Batch: [2]int{math.MaxInt, 0}}
	for _, p := range g.points {
		v := p.peak(m.Target)
		if v == 0 {
			continue
		}
		m.Domain.SeqLen = [2]int{min(m.Domain.SeqLen[0], p.SeqLen), max(m.Domain.SeqLen[1], p.SeqLen)}
		m.Domain.Batch = [2]int{min(m.Domain.Batch[0], p.Batch), max(m.Domain.Batch[1], p.Batch)}
		w := m.against(p)
		if m.Worst.SeqLen == 0 || math.Abs(w.Rel) > m.ResidualMaxRel {
			m.Worst, m.ResidualMaxRel = w, math.Abs(w.Rel)
		}
	}
	m.Points = len(gather(g.points, direct(m.Target, "").read))
	m.RunToRun = 0
	for _, w := range repeatNoise(g.points, direct(m.Target, "").read) {
		m.RunToRun = w.spread((1 + g.confidence) / 2)
	}
	for _, p := range g.left {
		if p.peak(m.Target) > 0 {
			m.OutsideRel = max(m.OutsideRel, math.Abs(m.against(p).Rel))
		}
	}
	if m.Domain.Batch[0] == m.Domain.Batch[1] && m.Target == Allocated {
		m.Notes = append(slices.Clone(m.Notes), fmt.Sprintf("only batch %d was fitted: what is fixed and what grows with the batch are told apart by length alone", m.Domain.Batch[0]))
	}
	if m.ResidualMaxRel > misfit {
		m.Notes = append(slices.Clone(m.Notes), "the terms miss a measured peak by more than 1 %: see the worst point; another place in the program may bind there")
	}
}

// against compares the prediction with a point's measured peak.
func (m Model) against(p Point) Worst {
	v, said := p.peak(m.Target), m.value(p.SeqLen, p.Batch)
	return Worst{SeqLen: p.SeqLen, Batch: p.Batch, Measured: v, Predicted: said, Rel: float64(said-v) / float64(v)}
}

// narrow keeps the fit to a part of the points when one sum does not hold over
// all of them and does hold, much better, on one batch or from some length on.
func (g *group) narrow() {
	all := g.points
	whole, _, ok := g.explained(all)
	if !ok || whole <= misfit {
		return
	}
	var best []Point
	bestCells := 0
	for _, keep := range parts(all) {
		part := filter(all, keep)
		rel, cells, ok := g.explained(part)
		if ok && rel <= misfit && rel*narrowGain <= whole && cells >= narrowLeast && cells > bestCells {
			best, bestCells = part, cells
			g.left = filter(all, func(p Point) bool { return !keep(p) })
		}
	}
	if best == nil {
		return
	}
	g.points = best
	first, last := g.left[0], g.left[len(g.left)-1]
	g.note("one sum of terms does not hold for all points (off by %.1f %%): %d runs (L%d B%d to L%d B%d) are left out and the domain ends before them",
		100*whole, len(g.left), first.SeqLen, first.Batch, last.SeqLen, last.Batch)
}

// parts are the ways to keep some points: one batch, or lengths from one on.
func parts(points []Point) []func(Point) bool {
	var batches, lengths []int
	for _, p := range points {
		batches, lengths = append(batches, p.Batch), append(lengths, p.SeqLen)
	}
	slices.Sort(batches)
	slices.Sort(lengths)
	var out []func(Point) bool
	for _, b := range slices.Compact(batches) {
		out = append(out, func(p Point) bool { return p.Batch == b })
	}
	for _, l := range slices.Compact(lengths)[1:] {
		out = append(out, func(p Point) bool { return p.SeqLen >= l })
	}
	return out
}

// explained is the largest relative residual of the smallest measured target
// over the given points, and the cells that it rests on.
func (g *group) explained(points []Point) (rel float64, cells int, ok bool) {
	trial := &group{points: points, confidence: g.confidence, weights: g.weights, context: g.context}
	for _, t := range []Target{Allocated, Reserved, Process} {
		if m, ok := trial.build(trial.direct(t), nil); ok {
			return m.ResidualMaxRel, m.Points, true
		}
	}
	return 0, 0, false
}

func filter(points []Point, keep func(Point) bool) []Point {
	var out []Point
	for _, p := range points {
		if keep(p) {
			out = append(out, p)
		}
	}
	return out
}

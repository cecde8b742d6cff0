package fit

import (
	"cmp"
	"math"
	"slices"

	"gonum.org/v1/gonum/stat/distuv"
)

// growing are the terms that a change of a program's own peak can consist of.
var growing = [...]string{"workspaces", "BL", "BL2", "BL3"}

// signed is a least-squares fit of paired differences: unlike a peak's terms,
// those of a change may be negative.
type signed struct {
	names  []string
	values []float64
	cov    [][]float64 // in units of one run's variance
	rss    float64     // in the same units
	dof    int
}

// regress fits differences, each weighted by how many runs it rests on. ok is
// false if the cells cannot tell the terms apart.
func regress(cells []sample, names []string) (signed, bool) {
	s := signed{names: names, dof: len(cells) - len(names), cov: [][]float64{}}
	if s.dof < 0 || len(cells) == 0 {
		return s, false
	}
	a, b := make([][]float64, len(cells)), make([]float64, len(cells))
	for i, c := range cells {
		a[i] = row(names, c.seqLen, c.batch)
		w := 1 / math.Sqrt(c.factor())
		for j := range a[i] {
			a[i][j] *= w
		}
		b[i] = c.diff() * w
	}
	if len(names) > 0 {
		scaled, norms := unitColumns(a)
		all := make([]int, len(names))
		for j := range all {
			all[j] = j
		}
		x, ok := leastSquares(scaled, b, all)
		if !ok {
			return s, false
		}
		for j := range x {
			x[j] /= norms[j]
		}
		s.values, s.cov = x, covariance(a)
	}
	for i := range a {
		e := b[i] - dot(a[i], s.values)
		s.rss += e * e
	}
	return s, true
}

// residual is what the named terms leave of the differences.
func residual(cells []sample, names []string) (rss float64, dof int, ok bool) {
	s, ok := regress(cells, names)
	return s.rss, s.dof, ok && s.dof > 0
}

// effect is what a term's change comes to at a cell, in bytes.
func (s signed) effect(name string, at sample, n noise) estimate {
	j := slices.Index(s.names, name)
	x := Variable(name, at.seqLen, at.batch)
	return n.estimate(s.values[j]*x, s.cov[j][j]*x*x)
}

// explain returns the fewest terms whose change leaves no more than noise of
// the differences, by an F test at the given confidence. settled is false if
// none does; then it is the largest set that leaves a residual.
func explain(cells []sample, n noise, confidence float64) (best signed, settled bool) {
	sigma := n.variance + n.resolution
	dof := n.estimate(0, 1).dof
	for size := range len(growing) + 1 {
		found := false
		for mask := range 1 << len(growing) {
			var names []string
			for j, name := range growing {
				if mask>>j&1 == 1 {
					names = append(names, name)
				}
			}
			if len(names) != size {
				continue
			}
			s, ok := regress(cells, names)
			if ok && s.dof > 0 && (!found || s.rss < best.rss) {
				best, found = s, true
			}
		}
		if !found {
			return best, false
		}
		f := distuv.F{D1: float64(best.dof), D2: max(1, min(dof, 1e6))}
		if best.rss/float64(best.dof) <= sigma*f.Quantile(confidence) {
			return best, true
		}
	}
	return best, false
}

// largest is the cell at which a term that grows is worth most.
func largest(cells []sample, name string) sample {
	return slices.MaxFunc(cells, func(a, b sample) int {
		return cmp.Compare(Variable(name, a.seqLen, a.batch), Variable(name, b.seqLen, b.batch))
	})
}

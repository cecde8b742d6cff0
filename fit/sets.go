package fit

import (
	"cmp"
	"math"
	"slices"

	"gonum.org/v1/gonum/mat"
	"gonum.org/v1/gonum/stat/distuv"
)

// relFloor is the relative error below which the fit claims no knowledge: 0.1
// ppm is about one 512-byte block of a small peak. It keeps exact data from making
// every interval, and every comparison of intervals, a division by zero.
const relFloor = 1e-7

// parsimony is how much more leave-one-out error a set with fewer terms may have
// and still be chosen: a term that buys less only adds noise.
const parsimony = 1.1

// Set is one set of terms that the data allow for a component. Values are in bytes
// by the variable of each name.
type Set struct {
	Names  []string  `json:"names"`
	Values []float64 `json:"values"`
	// Cov is the unscaled covariance (X'X)^-1 of the weighted design. Sigma is
	// the relative standard error of the residuals with DOF degrees of freedom,
	// Floor what rounding leaves of it however well the terms fit. The half width
	// of the interval of a new run at x is spread * sqrt(x'Cov x + peak^2), the
	// textbook prediction interval of weighted least squares; spread is Sigma times
	// Student's quantile, or Floor times the normal one where that is more.
	Cov   [][]float64 `json:"cov"`
	Sigma float64     `json:"sigma"`
	Floor float64     `json:"floor"`
	DOF   int         `json:"dof"`

	press float64 // sum of squared relative leave-one-out errors
}

func row(names []string, seqLen, batch int) []float64 {
	x := make([]float64, len(names))
	for j, name := range names {
		x[j] = Variable(name, seqLen, batch)
	}
	return x
}

// spread is the relative error that is passed with a probability of 1 - level.
func (s Set) spread(level float64) float64 {
	return max(student(level, s.DOF)*s.Sigma, distuv.UnitNormal.Quantile(level)*s.Floor)
}

func (s Set) value(seqLen, batch int) float64 { return dot(s.Values, row(s.Names, seqLen, batch)) }

// at returns the set's sum at a length and batch, and the half width of its
// interval there for a peak of the given size.
func (s Set) at(seqLen, batch int, peak, level float64) (value, half float64) {
	x := row(s.Names, seqLen, batch)
	leverage := 0.0
	for i := range x {
		leverage += x[i] * dot(s.Cov[i], x)
	}
	return dot(s.Values, x), s.spread(level) * math.Sqrt(leverage+peak*peak)
}

// term returns a term's value and the half width of its interval.
func (s Set) term(name string, level float64) (value, half float64, ok bool) {
	j := slices.Index(s.Names, name)
	if j < 0 {
		return 0, 0, false
	}
	return s.Values[j], s.spread(level) * math.Sqrt(s.Cov[j][j]), true
}

// plausible fits every subset of the named terms and returns those that the
// observations do not rule out, the best first. least is the fewest terms of a
// set: 0 where the measured parts may be all that there is. None is returned
// only when there are too few observations for even one such set and a residual.
func plausible(obs []observation, names []string, least int, confidence float64) []Set {
	var sets []Set
	for mask := 0; mask < 1<<len(names); mask++ {
		subset := []string{}
		for j, name := range names {
			if mask>>j&1 == 1 {
				subset = append(subset, name)
			}
		}
		if len(subset) < least {
			continue
		}
		if s, ok := solve(obs, subset); ok {
			sets = append(sets, s)
		}
	}
	if len(sets) == 0 {
		return nil
	}
	slices.SortStableFunc(sets, func(a, b Set) int { return cmp.Compare(a.press, b.press) })
	best := sets[0]
	sets = slices.DeleteFunc(sets, func(s Set) bool {
		f := distuv.F{D1: float64(s.DOF), D2: float64(best.DOF)}.Quantile(confidence)
		return s.press > best.press*max(f, 1)
	})
	chosen := 0
	for k, s := range sets {
		if s.press <= best.press*parsimony && len(s.Names) < len(sets[chosen].Names) {
			chosen = k
		}
	}
	first := sets[chosen]
	return append([]Set{first}, slices.Delete(sets, chosen, chosen+1)...)
}

// solve fits exactly the named terms. ok is false if non-negativity drops one
// of them (a smaller set says the same), if they are dependent, or if an
// observation is needed whole to fix a term, so that leaving it out teaches nothing.
func solve(obs []observation, names []string) (Set, bool) {
	n, p := len(obs), len(names)
	if n <= p {
		return Set{}, false
	}
	a, b := make([][]float64, n), make([]float64, n)
	floor := 0.0 // variance that rounding leaves however well the terms fit
	for i, o := range obs {
		a[i] = row(names, o.seqLen, o.batch)
		for j := range a[i] {
			a[i][j] /= o.scale
		}
		b[i] = o.y / o.scale
		floor += (o.round/o.scale)*(o.round/o.scale)/3 + relFloor*relFloor
	}
	x := nnls(a, b)
	if len(supportOf(x)) < p {
		return Set{}, false
	}
	cov := covariance(a)
	rss, press := 0.0, floor
	for i := range a {
		h := 0.0
		for j := range a[i] {
			h += a[i][j] * dot(cov[j], a[i])
		}
		if h > 1-1e-9 {
			return Set{}, false
		}
		e := b[i] - dot(a[i], x)
		rss += e * e
		press += e * e / ((1 - h) * (1 - h))
	}
	return Set{Names: names, Values: x, Cov: cov, Sigma: math.Sqrt(rss / float64(n-p)), Floor: math.Sqrt(floor / float64(n)), DOF: n - p, press: press}, true
}

// covariance returns (A'A)^-1, by QR of the scaled columns: A'A itself would
// square the condition number.
func covariance(a [][]float64) [][]float64 {
	scaled, norms := unitColumns(a)
	p := len(norms)
	if p == 0 {
		return [][]float64{}
	}
	all := make([]int, p)
	for j := range all {
		all[j] = j
	}
	var qr mat.QR
	qr.Factorize(columns(scaled, all))
	var r, inv mat.Dense
	qr.RTo(&r)
	if err := inv.Inverse(r.Slice(0, p, 0, p)); err != nil {
		panic("fit: covariance of dependent columns: " + err.Error())
	}
	cov := make([][]float64, p)
	for i := range cov {
		cov[i] = make([]float64, p)
		for j := range cov[i] {
			cov[i][j] = dot(inv.RawRowView(i), inv.RawRowView(j)) / norms[i] / norms[j]
		}
	}
	return cov
}

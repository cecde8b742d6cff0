package fit

import (
	"math"

	"gonum.org/v1/gonum/stat/distuv"
)

const (
	// driverGrain is what the driver hands out at once; peaks that it decides
	// are not known any finer. blockGrain is the same of the allocator's blocks.
	driverGrain, blockGrain = 2 << 20, 512
	// enoughRepeats is the degrees of freedom from which on repeats alone tell
	// the noise; with fewer, the scatter of differences is asked as well.
	enoughRepeats = 8
)

// noise is how much one run's measure differs from the next one's: a variance
// that was estimated with so many degrees of freedom, and one that is known (the
// measure's resolution). With 0 degrees nothing is known.
type noise struct{ variance, dof, resolution float64 }

// uniform is the variance of an error that is anywhere within a width.
func uniform(width float64) float64 { return width * width / 12 }

// estimate is a difference with its standard error.
type estimate struct {
	diff, se float64
	dof      float64 // 0: nothing tells the error, +Inf: it is known
}

// estimate gives a difference its error: factor times the noise of one run. The
// degrees of freedom of estimated plus known variance are Satterthwaite's (An
// approximate distribution of estimates of variance components, 1946).
func (n noise) estimate(diff, factor float64) estimate {
	e := estimate{diff: diff, se: math.Sqrt(factor * (n.variance + n.resolution))}
	switch {
	case n.dof == 0:
	case n.variance == 0:
		e.dof = math.Inf(1)
	default:
		ratio := (n.variance + n.resolution) / n.variance
		e.dof = n.dof * ratio * ratio
	}
	return e
}

// plus adds two independent differences.
func (e estimate) plus(o estimate) estimate {
	sum := estimate{diff: e.diff + o.diff, se: math.Hypot(e.se, o.se)}
	if e.dof == 0 || o.dof == 0 || sum.se == 0 {
		return sum
	}
	sum.dof = math.Pow(sum.se, 4) / (math.Pow(e.se, 4)/e.dof + math.Pow(o.se, 4)/o.dof)
	return sum
}

func (e estimate) distribution() distuv.StudentsT {
	return distuv.StudentsT{Mu: 0, Sigma: 1, Nu: min(e.dof, 1e6)}
}

// half is the half width of the difference's interval.
func (e estimate) half(confidence float64) float64 {
	if e.dof == 0 {
		return math.Inf(1)
	}
	return e.distribution().Quantile((1+confidence)/2) * e.se
}

// p is the probability of such a difference, or a larger one, by noise alone.
func (e estimate) p() float64 {
	if e.dof == 0 {
		return 1
	}
	if e.diff == 0 {
		return 1
	}
	return 2 * e.distribution().CDF(-math.Abs(e.diff)/e.se)
}

// sample is what was read at one length and batch on both sides.
type sample struct {
	seqLen, batch int
	before, after []float64
}

// paired reports whether both sides have the cell.
func (s sample) paired() bool { return len(s.before) > 0 && len(s.after) > 0 }

func (s sample) diff() float64 { return mean(s.after) - mean(s.before) }

// factor is the variance of diff in units of one run's.
func (s sample) factor() float64 {
	return 1/float64(len(s.before)) + 1/float64(len(s.after))
}

func mean(v []float64) float64 {
	m := 0.0
	for i, x := range v {
		m += (x - m) / float64(i+1)
	}
	return m
}

// scatter is the sum of squares around the mean.
func scatter(v []float64) float64 {
	m, ss := mean(v), 0.0
	for _, x := range v {
		ss += (x - m) * (x - m)
	}
	return ss
}

func pairs(samples []sample) []sample {
	var out []sample
	for _, s := range samples {
		if s.paired() {
			out = append(out, s)
		}
	}
	return out
}

// noiseOf estimates a measure's noise from repeats, pooled over all cells of
// both sides, and, if those are few, from the scatter of the paired differences
// around a smooth one. A change that is not smooth then counts as noise, which
// errs on the side of asking for repeats.
func noiseOf(samples []sample, resolution float64) noise {
	n := noise{resolution: resolution}
	ss := 0.0
	for _, s := range samples {
		for _, side := range [][]float64{s.before, s.after} {
			if len(side) > 1 {
				ss += scatter(side)
				n.dof += float64(len(side) - 1)
			}
		}
	}
	if n.dof < enoughRepeats {
		rest := pairs(samples)
		smooth := []string{"", "BL2", "BL", "BL3"}[:min(4, len(rest)/2)]
		rss, dof, ok := residual(rest, smooth)
		if ok && len(rest) > 1 && !rough(rss, float64(dof), ss, n) {
			ss, n.dof = ss+rss, n.dof+float64(dof)
		}
	}
	if n.dof > 0 {
		n.variance = ss / n.dof
	}
	return n
}

// rough reports whether differences scatter by so much more than repeats do that
// their scatter is a change, not noise.
func rough(rss, dof, ss float64, repeats noise) bool {
	if repeats.dof < 2 {
		return false
	}
	f := distuv.F{D1: dof, D2: repeats.dof}
	return rss/dof > f.Quantile(0.95)*(ss/repeats.dof+repeats.resolution)
}

// leveled is the noise of a measure that no cell can move, from all runs of
// each side around that side's mean.
func leveled(before, after []float64, resolution float64) noise {
	n := noise{resolution: resolution, dof: float64(max(0, len(before)-1) + max(0, len(after)-1))}
	if n.dof > 0 {
		n.variance = (scatter(before) + scatter(after)) / n.dof
	}
	return n
}

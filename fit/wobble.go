package fit

import (
	"math"

	"gonum.org/v1/gonum/stat/distuv"
)

// Wobble is a source of run-to-run noise: a standard deviation relative to the
// peak, or one in bytes, estimated with DOF degrees of freedom.
type Wobble struct {
	Rel   float64 `json:"rel,omitempty"`
	Bytes float64 `json:"bytes,omitempty"`
	DOF   int     `json:"dof"`
	// Unseen is the share of its variance that is not in the residuals of a fit:
	// the mean of several runs of a cell shows less than one new run will.
	Unseen float64 `json:"unseen"`
}

// spread is the relative error of one run that is passed with a probability of
// 1 - level.
func (w Wobble) spread(level float64) float64 { return student(level, w.DOF) * w.Rel }

// half is the part of an interval's half width that the fit does not see.
func (w Wobble) half(peak, level float64) float64 {
	return student(level, w.DOF) * math.Hypot(w.Rel*peak, w.Bytes) * math.Sqrt(w.Unseen)
}

// student is the quantile of Student's t.
func student(level float64, dof int) float64 {
	return distuv.StudentsT{Mu: 0, Sigma: 1, Nu: float64(dof)}.Quantile(level)
}

// repeatNoise is how much repeats of a run differ in what is read from them,
// pooled over all cells that were run more than once; none without repeats, or
// where they agree to the byte.
func repeatNoise(points []Point, read reading) []Wobble {
	sum, inverse := 0.0, 0.0
	runs, cells := 0, 0
	for first := 0; first < len(points); {
		var y []float64
		scale := 0.0
		next := first
		for ; next < len(points) && points[next].SeqLen == points[first].SeqLen && points[next].Batch == points[first].Batch; next++ {
			if v, s, ok := read(points[next]); ok {
				y = append(y, float64(v))
				scale += float64(s)
			}
		}
		first = next
		if n := float64(len(y)); n > 0 {
			scale /= n
			sum += scatter(y) / (scale * scale)
			inverse += 1 / n
			runs, cells = runs+len(y), cells+1
		}
	}
	dof := runs - cells
	if dof < 1 || sum == 0 {
		return nil
	}
	return []Wobble{{Rel: math.Sqrt(sum / float64(dof)), DOF: dof, Unseen: 1 - inverse/float64(cells)}}
}

// meteredNoise is how much a metered amount differs between runs. A new run's own
// and the uncertainty of the middle one that is taken for it add up; the
// variance of a median is pi/2 times that of a mean.
func meteredNoise(sorted []int64) []Wobble {
	values := make([]float64, len(sorted))
	for i, v := range sorted {
		values[i] = float64(v)
	}
	ss, n := scatter(values), float64(len(values))
	if n < 2 || ss == 0 {
		return nil
	}
	return []Wobble{{Bytes: math.Sqrt(ss / (n - 1)), DOF: len(values) - 1, Unseen: 1 + math.Pi/2/n}}
}

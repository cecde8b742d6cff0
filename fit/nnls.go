package fit

import (
	"math"

	"gonum.org/v1/gonum/mat"
)

// maxCond is the condition number (of columns scaled to length 1) above which
// columns count as dependent: the data cannot tell their terms apart.
const maxCond = 1e8

// nnls solves min |Ax - b| under x >= 0 by the active-set method of Lawson and
// Hanson (1974, algorithm NNLS, chapter 23). a holds rows. The columns in the
// result's support are independent; a dependent one stays 0.
func nnls(a [][]float64, b []float64) []float64 {
	scaled, norms := unitColumns(a)
	n := len(norms)
	x := make([]float64, n)
	barred := make([]bool, n) // dependent on the others, or no way up from 0
	for {
		j := steepest(scaled, b, x, barred)
		if j < 0 {
			break
		}
		support := supportOf(x)
		z, ok := leastSquares(scaled, b, append(support, j))
		if !ok || z[len(support)] <= 0 { // dependent, or rounding error in the gradient
			barred[j] = true
			continue
		}
		support = append(support, j)
		for minimum(z) <= 0 {
			support = stepBack(x, z, support)
			if z, ok = leastSquares(scaled, b, support); !ok {
				panic("fit: a subset of independent columns is independent")
			}
		}
		clear(x)
		clear(barred) // the error fell, so this cannot go on forever
		for k, col := range support {
			x[col] = z[k]
		}
	}
	for j := range x {
		if norms[j] > 0 {
			x[j] /= norms[j]
		}
	}
	return x
}

// steepest returns the column outside the support along which the error falls
// fastest, or -1 if it falls along none.
func steepest(a [][]float64, b, x []float64, barred []bool) int {
	best, bestJ := 1e-12*norm(b), -1
	for j := range x {
		if x[j] > 0 || barred[j] {
			continue
		}
		w := 0.0
		for i, row := range a {
			w += row[j] * (b[i] - dot(row, x))
		}
		if w > best {
			best, bestJ = w, j
		}
	}
	return bestJ
}

// stepBack moves x towards z (given on the support) as far as nothing becomes
// negative, and returns the support without what reached 0 on the way.
func stepBack(x, z []float64, support []int) []int {
	reach := func(k int) float64 {
		if z[k] > 0 {
			return 1
		}
		return x[support[k]] / (x[support[k]] - z[k])
	}
	alpha := 1.0
	for k, col := range support {
		if x[col] > 0 {
			alpha = min(alpha, reach(k))
		} else if z[k] <= 0 {
			alpha = 0
		}
	}
	var kept []int
	for k, col := range support {
		if z[k] <= 0 && (x[col] <= 0 || reach(k) <= alpha) {
			x[col] = 0
			continue
		}
		x[col] += alpha * (z[k] - x[col])
		kept = append(kept, col)
	}
	return kept
}

// leastSquares solves for the given columns alone, by QR. ok is false if they
// are dependent or more than the rows.
func leastSquares(a [][]float64, b []float64, cols []int) (x []float64, ok bool) {
	if len(cols) > len(a) {
		return nil, false
	}
	if len(cols) == 0 {
		return nil, true
	}
	var qr mat.QR
	qr.Factorize(columns(a, cols))
	if !(qr.Cond() < maxCond) {
		return nil, false
	}
	sol := mat.NewVecDense(len(cols), nil)
	if err := qr.SolveVecTo(sol, false, mat.NewVecDense(len(b), b)); err != nil {
		return nil, false
	}
	return sol.RawVector().Data, true
}

func columns(a [][]float64, cols []int) *mat.Dense {
	m := mat.NewDense(len(a), len(cols), nil)
	for i, row := range a {
		for k, col := range cols {
			m.Set(i, k, row[col])
		}
	}
	return m
}

// unitColumns scales every column to length 1 and returns the lengths.
func unitColumns(a [][]float64) (scaled [][]float64, norms []float64) {
	norms = make([]float64, len(a[0]))
	for _, row := range a {
		for j, v := range row {
			norms[j] = math.Hypot(norms[j], v)
		}
	}
	for _, row := range a {
		r := make([]float64, len(row))
		for j, v := range row {
			if norms[j] > 0 {
				r[j] = v / norms[j]
			}
		}
		scaled = append(scaled, r)
	}
	return scaled, norms
}

func supportOf(x []float64) []int {
	var s []int
	for j, v := range x {
		if v > 0 {
			s = append(s, j)
		}
	}
	return s
}

func dot(a, b []float64) float64 {
	s := 0.0
	for i := range a {
		s += a[i] * b[i]
	}
	return s
}

func norm(v []float64) float64 { return math.Sqrt(dot(v, v)) }

func minimum(v []float64) float64 {
	m := math.Inf(1)
	for _, x := range v {
		m = min(m, x)
	}
	return m
}

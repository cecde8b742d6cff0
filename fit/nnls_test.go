package fit

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// A solution of a convex problem is told by its KKT conditions: nothing
// negative, no column along which the error still falls, and none in use along
// which it changes.
func TestNNLSMeetsKKT(t *testing.T) {
	for seed := range uint64(300) {
		rng := rand.New(rand.NewPCG(seed, 1))
		rows, cols := 2+rng.IntN(10), 1+rng.IntN(6)
		a, b := make([][]float64, rows), make([]float64, rows)
		for i := range a {
			a[i] = make([]float64, cols)
			for j := range a[i] {
				a[i][j] = rng.NormFloat64() * math.Pow(10, float64(j))
			}
			b[i] = rng.NormFloat64()
		}
		x := nnls(a, b)
		for j := range cols {
			if x[j] < 0 {
				t.Fatalf("seed %d: x[%d] = %g", seed, j, x[j])
			}
			w, size := 0.0, 0.0
			for i := range a {
				w += a[i][j] * (b[i] - dot(a[i], x))
				size = math.Hypot(size, a[i][j])
			}
			if w /= size; w > 1e-9 || (x[j] > 0 && w < -1e-9) {
				t.Fatalf("seed %d: gradient %g at x[%d] = %g", seed, w, j, x[j])
			}
		}
	}
}

func TestNNLS(t *testing.T) {
	for _, c := range []struct {
		name string
		a    [][]float64
		b    []float64
		want []float64
	}{
		{"exact", [][]float64{{1, 0}, {1, 1}, {1, 2}}, []float64{1, 3, 5}, []float64{1, 2}},
		{"slope would be negative", [][]float64{{1, 0}, {1, 1}, {1, 2}}, []float64{3, 2, 1}, []float64{2, 0}},
		{"nothing positive", [][]float64{{1}, {2}}, []float64{-1, -1}, []float64{0}},
		{"a column of zeros", [][]float64{{0, 1}, {0, 2}}, []float64{2, 4}, []float64{0, 2}},
		{"more columns than rows", [][]float64{{1, 2, 3}}, []float64{6}, nil},
		{"one column twice", [][]float64{{1, 1}, {2, 2}, {3, 3}}, []float64{2, 4, 6}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			x := nnls(c.a, c.b)
			for i, row := range c.a {
				if c.want == nil && math.Abs(dot(row, x)-c.b[i]) > 1e-9 {
					t.Errorf("row %d: %v gives %g, want %g", i, x, dot(row, x), c.b[i])
				}
			}
			if c.want != nil && !slices.EqualFunc(x, c.want, func(a, b float64) bool { return math.Abs(a-b) < 1e-9 }) {
				t.Errorf("got %v, want %v", x, c.want)
			}
		})
	}
}

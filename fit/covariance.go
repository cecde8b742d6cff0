package fit

import (
	"fmt"
	"math"
	"strings"

	"gonum.org/v1/gonum/mat"
)

// How far a covariance from outside may be from symmetric, and from having no
// negative variance, as a part of what its diagonal allows: more than a float's
// digits, and less than would be seen in any interval.
const (
	asymmetry = 1e-6
	deficit   = 1e-8
)

// notCovariance says why a square matrix of finite numbers with no negative
// diagonal cannot be the covariance of these terms; empty where it can. An
// interval that is computed with one that is not may be of no number, or narrower
// than it should be.
func notCovariance(names []string, cov [][]float64) string {
	n := len(names)
	scaled := mat.NewSymDense(max(n, 1), nil)
	for i := range n {
		if cov[i][i] > 0 {
			scaled.SetSym(i, i, 1)
		}
		for j := range i {
			allowed := math.Sqrt(cov[i][i]) * math.Sqrt(cov[j][j])
			switch up, low := cov[j][i], cov[i][j]; {
			case math.Abs(up-low) > asymmetry*allowed:
				return fmt.Sprintf("the covariance of %s and %s is %v in row %d and %v in row %d of it, and it is one number", names[j], names[i], up, j+1, low, i+1)
			case math.Abs(low) > (1+asymmetry)*allowed:
				return fmt.Sprintf("the covariance of %s and %s is %v, and their variances allow %v at the most", names[j], names[i], low, allowed)
			case allowed > 0:
				scaled.SetSym(i, j, (up/2+low/2)/allowed)
			}
		}
	}
	var eigen mat.EigenSym
	if n < 3 || !eigen.Factorize(scaled, true) {
		return "" // of two terms, what was asked above is all there is
	}
	values := eigen.Values(nil) // in ascending order
	if values[0] >= -deficit*float64(n) {
		return ""
	}
	var vectors mat.Dense
	eigen.VectorsTo(&vectors)
	var guilty []string
	for i, name := range names {
		if math.Abs(vectors.At(i, 0)) > 0.1 {
			guilty = append(guilty, name)
		}
	}
	return fmt.Sprintf("its covariance gives a sum of %s a negative variance", strings.Join(guilty, ", "))
}

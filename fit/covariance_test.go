package fit

import (
	"math/rand/v2"
	"strings"
	"testing"
)

func TestNotCovariance(t *testing.T) {
	names := []string{"weights", "BL", "BL2"}
	for name, c := range map[string]struct {
		cov  [][]float64
		says string
	}{
		"none":                {[][]float64{}, ""},
		"one":                 {[][]float64{{0}}, ""},
		"independent":         {[][]float64{{1, 0, 0}, {0, 2, 0}, {0, 0, 0}}, ""},
		"singular":            {[][]float64{{1, 1}, {1, 1}}, ""},
		"rounded":             {[][]float64{{1e12, 1e6 + 1e-3}, {1e6, 1}}, ""},
		"lopsided":            {[][]float64{{1e12, 5e5}, {4e5, 1}}, "weights and BL is 500000 in row 1 and 400000 in row 2"},
		"of opposite signs":   {[][]float64{{1, 0.5}, {-0.5, 1}}, "is one number"},
		"beyond its variance": {[][]float64{{1, 3}, {3, 4}}, "weights and BL is 3, and their variances allow 2 at the most"},
		"without a variance":  {[][]float64{{1, 0.1}, {0.1, 0}}, "allow 0 at the most"},
		"huge":                {[][]float64{{1e300, 1e300}, {1e300, 1e300}}, ""},
		"each pair possible, not all three": {[][]float64{{1, 0.9, -0.9}, {0.9, 1, 0.9}, {-0.9, 0.9, 1}},
			"a sum of weights, BL, BL2 a negative variance"},
	} {
		t.Run(name, func(t *testing.T) {
			got := notCovariance(names[:len(c.cov)], c.cov)
			if (got == "") != (c.says == "") || !strings.Contains(got, c.says) {
				t.Errorf("got %q, want %q", got, c.says)
			}
		})
	}
}

// TestFitsHaveCovariances: what this package computes passes, however close its
// columns are to one another.
func TestFitsHaveCovariances(t *testing.T) {
	const seed = 7
	r := rand.New(rand.NewPCG(seed, 0))
	names := []string{"weights", "BL", "BL2", "BL3"}
	for round := range 200 {
		var a [][]float64
		for range 5 + r.IntN(4) {
			l := 100 + r.Float64()*float64(10+round*5)
			a = append(a, []float64{1, l, l * l, l * l * l})
		}
		if why := notCovariance(names, covariance(a)); why != "" {
			t.Errorf("seed %d, round %d: %s", seed, round, why)
		}
	}
}

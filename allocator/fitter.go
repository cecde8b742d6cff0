package allocator

import (
	"fmt"
	"math/big"
)

// fitter finds polynomials through the same cells again and again.
type fitter struct {
	cells   []cell
	basis   []monomial
	partial bool // some cell has a last chunk that is not full
}

func newFitter(cells []cell) (*fitter, error) {
	lengths, batches := map[int]bool{}, map[int]bool{}
	f := &fitter{cells: cells}
	degree := 3
	for _, c := range cells {
		lengths[c.seqLen], batches[c.batch] = true, true
		f.partial = f.partial || c.partial()
		if c.chunk > 0 {
			degree = 2
		}
	}
	if len(lengths) < 3 {
		return nil, fmt.Errorf("%w: %v; record at least three lengths, %d of one batch determine every size", ErrTooFewTraces, cells, degree+1)
	}
	f.basis = basis(degree, len(batches) > 1)
	return f, nil
}

// fit is the one polynomial with the fewest monomials through all points: of
// sizes that a short last chunk leaves alone, and of those that shrink with it.
func (f *fitter) fit(y []int64) (polynomial, error) {
	plain, shrinking := make([]*big.Rat, len(y)), make([]*big.Rat, len(y))
	for i, c := range f.cells {
		plain[i] = big.NewRat(y[i], 1)
		if f.partial {
			shrinking[i] = new(big.Rat).Mul(plain[i], big.NewRat(int64(c.chunk), int64(c.lastRows())))
		}
	}
	found, size := sparsest(f.basis, f.cells, plain)
	perRow := false
	if f.partial {
		other, n := sparsest(f.basis, f.cells, shrinking)
		switch {
		case len(other) == 0:
		case len(found) == 0 || n < size:
			found, perRow = other, true
		case n == size:
			found = append(found, other...)
		}
	}
	switch {
	case len(found) == 1:
		return polynomial{terms: found[0], perRow: perRow}, nil
	case len(found) > 1:
		return polynomial{}, fmt.Errorf("%w: %d polynomials pass through it; record another length or batch", ErrTooFewTraces, len(found))
	case len(f.cells) >= len(f.basis):
		return polynomial{}, ErrNotPolynomial
	}
	return polynomial{}, fmt.Errorf("%w: no polynomial with a recording to spare passes through it; %d recordings determine every size, here are %d", ErrTooFewTraces, len(f.basis), len(f.cells))
}

// domain is how far a fit through these cells reaches.
func (f *fitter) domain(cells []cell) Domain {
	d := Domain{Chunk: cells[0].chunk, Partial: f.partial, recorded: cells}
	by := func(n func(cell) int) (int, int) {
		low, high := n(cells[0]), n(cells[0])
		for _, c := range cells {
			low, high = min(low, n(c)), max(high, n(c))
		}
		return low, high
	}
	low, high := by(func(c cell) int { return c.seqLen })
	d.SeqLenFrom, d.SeqLenTo = low, reachUp*high
	if d.Chunk == 0 {
		d.SeqLenFrom = (low*reachDownNum + reachDownDen - 1) / reachDownDen
	}
	d.BatchFrom, d.BatchTo = by(func(c cell) int { return c.batch })
	if d.BatchFrom < d.BatchTo {
		d.BatchTo *= reachUp
	}
	return d
}

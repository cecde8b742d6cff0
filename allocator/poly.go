package allocator

import (
	"fmt"
	"math/big"
	"slices"
)

// monomial is L^l * B^b of sequence length and batch.
type monomial struct{ l, b int }

func (m monomial) at(seqLen, batch int) *big.Rat {
	v := big.NewInt(1)
	for range m.l {
		v.Mul(v, big.NewInt(int64(seqLen)))
	}
	for range m.b {
		v.Mul(v, big.NewInt(int64(batch)))
	}
	return new(big.Rat).SetInt(v)
}

// term is one summand of a polynomial.
type term struct {
	monomial
	coef *big.Rat
}

// polynomial is a size in bytes, exactly, as a function of sequence length and
// batch. perRow is whether it is the size at a full chunk and shrinks in
// proportion to the rows of the last one.
type polynomial struct {
	terms  []term
	perRow bool
}

// at is the size at a length and batch, of which the last chunk holds rows of
// chunk. A value that is no whole number of bytes is an error.
func (p *polynomial) at(c cell) (int64, error) {
	sum := new(big.Rat)
	for _, t := range p.terms {
		sum.Add(sum, new(big.Rat).Mul(t.coef, t.monomial.at(c.seqLen, c.batch)))
	}
	if p.perRow {
		sum.Mul(sum, big.NewRat(int64(c.lastRows()), int64(c.chunk)))
	}
	if !sum.IsInt() || sum.Sign() <= 0 || !sum.Num().IsInt64() || sum.Num().Int64() >= 1<<60 {
		return 0, fmt.Errorf("a size would be %s bytes", sum.RatString())
	}
	return sum.Num().Int64(), nil
}

// basis lists the monomials that a size may hold: L to the given degree, affine
// in B where the recordings differ in batch.
func basis(degree int, batches bool) []monomial {
	var out []monomial
	for l := 0; l <= degree; l++ {
		out = append(out, monomial{l, 0})
		if batches {
			out = append(out, monomial{l, 1})
		}
	}
	return out
}

// solve finds the coefficients with which the monomials give y at every cell,
// or nil: none fit, or the cells do not tell the monomials apart.
func solve(monomials []monomial, cells []cell, y []*big.Rat) []term {
	width := len(monomials)
	rows := make([][]*big.Rat, len(cells))
	for i, c := range cells {
		for _, m := range monomials {
			rows[i] = append(rows[i], m.at(c.seqLen, c.batch))
		}
		rows[i] = append(rows[i], new(big.Rat).Set(y[i]))
	}
	for col := range width {
		pivot := col
		for pivot < len(rows) && rows[pivot][col].Sign() == 0 {
			pivot++
		}
		if pivot >= len(rows) {
			return nil
		}
		rows[col], rows[pivot] = rows[pivot], rows[col]
		for i := range rows {
			if i == col || rows[i][col].Sign() == 0 {
				continue
			}
			f := new(big.Rat).Quo(rows[i][col], rows[col][col])
			for j := col; j <= width; j++ {
				rows[i][j].Sub(rows[i][j], new(big.Rat).Mul(f, rows[col][j]))
			}
		}
	}
	for _, row := range rows[width:] {
		if row[width].Sign() != 0 {
			return nil
		}
	}
	var out []term
	for i, m := range monomials {
		if v := new(big.Rat).Quo(rows[i][width], rows[i][i]); v.Sign() != 0 {
			out = append(out, term{m, v})
		}
	}
	return out
}

// subsets calls f with every choice of k of the monomials.
func subsets(all []monomial, k int, f func([]monomial)) {
	pick := make([]monomial, 0, k)
	var walk func(from int)
	walk = func(from int) {
		if len(pick) == k {
			f(pick)
			return
		}
		for i := from; i <= len(all)-(k-len(pick)); i++ {
			pick = append(pick, all[i])
			walk(i + 1)
			pick = pick[:len(pick)-1]
		}
	}
	walk(0)
}

// sparsest returns every polynomial with the fewest monomials that passes
// through all points, and that number. Where the points do not determine a
// whole basis it takes no more monomials than leave one point to confirm them.
func sparsest(all []monomial, cells []cell, y []*big.Rat) (found [][]term, size int) {
	determined := len(cells) >= len(all)
	most := len(cells) - 1
	if determined {
		if terms := solve(all, cells, y); terms != nil {
			return [][]term{terms}, len(terms)
		}
		most = min(most, len(all))
	}
	for k := 1; k <= most; k++ {
		subsets(all, k, func(pick []monomial) {
			if terms := solve(pick, cells, y); len(terms) == k {
				found = append(found, slices.Clone(terms))
			}
		})
		if len(found) > 0 {
			return found, k
		}
	}
	return nil, 0
}

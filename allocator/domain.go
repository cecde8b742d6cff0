package allocator

import (
	"fmt"
	"slices"
	"strings"
)

// Tested says how far a program was held against recordings.
type Tested string

const (
	// LeftOneOut is a program that predicted recordings which it was not made
	// from.
	LeftOneOut Tested = "left-one-out"
	// Untested is a program that needed every recording.
	Untested Tested = "untested"
)

// How far a program reaches beyond its recordings. Kernels are chosen by size:
// the further away, the more likely another one is taken. ESMFold was exact from
// L = 128 to 320 down to 97 and up to 1,024.
const (
	reachUp       = 4 // times the largest recorded length, and batch
	reachDownNum  = 3 // three quarters of the smallest length, without chunks
	reachDownDen  = 4
	shortestChunk = 2 // rows; a last chunk of one row does other operations
)

// Domain is where one piece of a family holds. All ends are included.
type Domain struct {
	Chunk                int
	SeqLenFrom, SeqLenTo int
	BatchFrom, BatchTo   int
	// Partial is whether the last chunk may hold fewer rows than the others;
	// without it B*L must be a multiple of Chunk.
	Partial bool
	// Tested is that of full chunks, for a Domain of Family.Domain that of the
	// cell.
	Tested Tested

	partialTested Tested // where the last chunk is not full
	recorded      []cell
}

// holds says why a cell lies outside; nil inside.
func (d *Domain) holds(c cell) error {
	switch {
	case c.seqLen < d.SeqLenFrom || c.seqLen > d.SeqLenTo:
		return fmt.Errorf("the length is not within %d to %d", d.SeqLenFrom, d.SeqLenTo)
	case d.Chunk == 0:
		return nil
	case c.partial() && !d.Partial:
		return fmt.Errorf("the last chunk holds %d of %d rows, and every recording has full chunks: record one that has not", c.lastRows(), c.chunk)
	case c.lastRows() < shortestChunk && c.chunk >= shortestChunk:
		return fmt.Errorf("the last chunk holds a single row, for which programs take a shorter path")
	}
	return nil
}

// String says the domain in words.
func (d Domain) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "lengths %d to %d, batch %d", d.SeqLenFrom, d.SeqLenTo, d.BatchFrom)
	if d.BatchTo > d.BatchFrom {
		fmt.Fprintf(&b, " to %d", d.BatchTo)
	}
	if d.Chunk > 0 {
		fmt.Fprintf(&b, ", chunk %d", d.Chunk)
		if !d.Partial {
			fmt.Fprintf(&b, ", lengths times batch a multiple of %d", d.Chunk)
		}
	}
	fmt.Fprintf(&b, " (%s)", d.Tested)
	return b.String()
}

// Domains lists where the family holds, one entry for each piece.
func (f *Family) Domains() []Domain {
	var out []Domain
	for _, p := range f.pieces {
		out = append(out, p.domain)
	}
	return out
}

// Domain is the domain that holds a cell; ErrOutOfDomain says why none does.
func (f *Family) Domain(seqLen, batch, chunk int) (Domain, error) {
	p, err := f.piece(cell{seqLen, batch, chunk})
	if err != nil {
		return Domain{}, err
	}
	d := p.domain
	if (cell{seqLen, batch, chunk}).partial() {
		d.Tested = d.partialTested
	}
	return d, nil
}

// piece finds the piece of a cell.
func (f *Family) piece(c cell) (*piece, error) {
	if c.seqLen < 1 || c.batch < 1 || c.chunk < 0 {
		return nil, fmt.Errorf("%w: %v is no cell", ErrOutOfDomain, c)
	}
	var batches, chunks []string
	for _, p := range f.pieces {
		d := &p.domain
		switch {
		case d.Chunk != c.chunk:
			if text := fmt.Sprint(d.Chunk); !slices.Contains(chunks, text) {
				chunks = append(chunks, text)
			}
		case c.batch < d.BatchFrom || c.batch > d.BatchTo:
			batches = append(batches, fmt.Sprintf("%d to %d", d.BatchFrom, d.BatchTo))
		default:
			if err := d.holds(c); err != nil {
				return nil, fmt.Errorf("%w: %v: %w", ErrOutOfDomain, c, err)
			}
			return p, nil
		}
	}
	if len(batches) > 0 {
		return nil, fmt.Errorf("%w: %v: recorded are batches of %s", ErrOutOfDomain, c, strings.Join(batches, ", "))
	}
	return nil, fmt.Errorf("%w: %v: recorded are chunk sizes %s", ErrOutOfDomain, c, strings.Join(chunks, ", "))
}

package allocator

import (
	"errors"
	"fmt"
	"slices"
)

var (
	// ErrSequencesDiffer is returned when recordings of one workload do not do
	// the same operations, so that none of them says what another length does.
	ErrSequencesDiffer = errors.New("the recordings do different things")
	// ErrTooFewTraces is returned when the recordings agree but do not
	// determine every size; the text says what to record.
	ErrTooFewTraces = errors.New("too few recordings")
	// ErrNotPolynomial is returned when a size follows no polynomial of degree
	// 3 (2 with chunks) in the length and affine in the batch.
	ErrNotPolynomial = errors.New("the size follows no polynomial in length and batch")
	// ErrOutOfDomain is returned for a cell that the recordings say nothing of.
	ErrOutOfDomain = errors.New("outside the domain of the recorded programs")
)

// Recording is a trace of one cell, recorded without a limit. Chunk 0 is no
// chunking.
type Recording struct {
	SeqLen, Batch, Chunk int
	Events               []Event
}

// Family is a workload's allocation programs: for every cell of its domain the
// sequence of allocations and frees, with each size an exact polynomial in the
// sequence length, affine in the batch, and loops that turn once for each chunk.
// It is a set of pieces, one for each chunk size, and where a batch of one does
// other operations than larger batches, one for each of the two. It is
// immutable and safe for concurrent use.
type Family struct{ pieces []*piece }

// BuildFamily finds the programs behind a workload's recordings. It refuses
// (ErrSequencesDiffer, ErrTooFewTraces, ErrNotPolynomial) rather than leave out
// a recording or guess a size.
func BuildFamily(recordings []Recording) (*Family, error) {
	if len(recordings) == 0 {
		return nil, fmt.Errorf("%w: none", ErrTooFewTraces)
	}
	byChunk := map[int][]specimen{}
	var chunks []int
	for _, r := range recordings {
		c := cell{r.SeqLen, r.Batch, r.Chunk}
		if c.seqLen < 1 || c.batch < 1 || c.chunk < 0 {
			return nil, fmt.Errorf("%v is no cell", c)
		}
		p, err := Compile(r.Events)
		if err != nil {
			return nil, fmt.Errorf("recording %v: %w", c, err)
		}
		if p.oomAt >= 0 {
			return nil, fmt.Errorf("recording %v ends in an out-of-memory: record without a quota", c)
		}
		steps, sizes := shapeOf(p)
		if byChunk[c.chunk] == nil {
			chunks = append(chunks, c.chunk)
		}
		byChunk[c.chunk] = append(byChunk[c.chunk], specimen{c, steps, sizes, p.streams, p.places()})
	}
	slices.Sort(chunks)
	f := &Family{}
	for _, chunk := range chunks {
		pieces, err := newPieces(byChunk[chunk])
		if err != nil {
			return nil, err
		}
		f.pieces = append(f.pieces, pieces...)
	}
	return f, nil
}

// newPieces makes one piece of all recordings of a chunk size, or two where a
// batch of one differs from the others.
func newPieces(all []specimen) ([]*piece, error) {
	var one, more []specimen
	for _, e := range all {
		if e.batch == 1 {
			one = append(one, e)
		} else {
			more = append(more, e)
		}
	}
	if p, err := testedPiece(all); err == nil || len(one) == 0 || len(more) == 0 {
		return []*piece{p}, err
	}
	first, err := testedPiece(one)
	if err != nil {
		return nil, err
	}
	second, err := testedPiece(more)
	return []*piece{first, second}, err
}

// testedPiece makes a piece and holds it against its own recordings: each is
// left out in turn, where the others still determine every size, and must be
// predicted to the byte.
func testedPiece(examples []specimen) (*piece, error) {
	p, err := newPiece(slices.Clone(examples))
	if err != nil {
		return nil, err
	}
	p.domain.Tested, p.domain.partialTested = Untested, Untested
	for i, out := range examples {
		rest, err := newPiece(slices.Delete(slices.Clone(examples), i, i+1))
		if err != nil || out.chunks() < rest.base.chunks() || out.partial() && !rest.domain.Partial {
			continue // the others do not reach so far
		}
		if slices.Contains(rest.domain.recorded, out.cell) {
			continue // recorded twice: no test
		}
		program, err := rest.extend(out.cell)
		if err != nil {
			return nil, fmt.Errorf("%w: left out, %v is predicted wrong: %w", ErrNotPolynomial, out.cell, err)
		}
		steps, sizes := shapeOf(program)
		if !slices.Equal(steps, out.steps) || !slices.Equal(sizes, out.sizes) {
			return nil, fmt.Errorf("%w: left out, %v is predicted wrong", ErrNotPolynomial, out.cell)
		}
		if out.partial() {
			p.domain.partialTested = LeftOneOut
		} else {
			p.domain.Tested = LeftOneOut
		}
	}
	return p, nil
}

// At is the program of a cell: what a recording of it would compile to. It has
// no recorded addresses, so its SelfCheck has nothing to compare. ErrOutOfDomain
// says where the recordings end.
func (f *Family) At(seqLen, batch, chunk int) (*Program, error) {
	p, err := f.piece(cell{seqLen, batch, chunk})
	if err != nil {
		return nil, err
	}
	return p.extend(cell{seqLen, batch, chunk})
}

// Trace is the trace that a run of a cell would leave under default settings,
// with the addresses of a simulated driver.
func (f *Family) Trace(seqLen, batch, chunk int) ([]Event, error) {
	p, err := f.At(seqLen, batch, chunk)
	if err != nil {
		return nil, err
	}
	events := make([]Event, 0, 2*len(p.ops))
	p.Replay(Settings{}, ReplayOptions{Observe: func(e Event) { events = append(events, e) }})
	return events, nil
}

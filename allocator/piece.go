package allocator

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// cell is what a program depends on.
type cell struct{ seqLen, batch, chunk int }

func (c cell) String() string {
	s := fmt.Sprintf("L=%d B=%d", c.seqLen, c.batch)
	if c.chunk > 0 {
		s += fmt.Sprintf(" chunk %d", c.chunk)
	}
	return s
}

// chunks is how many turns the chunked loops of the cell do, 0 without chunks.
func (c cell) chunks() int {
	if c.chunk == 0 {
		return 0
	}
	return (c.batch*c.seqLen + c.chunk - 1) / c.chunk
}

// lastRows is how many rows the last chunk holds.
func (c cell) lastRows() int { return c.batch*c.seqLen - (c.chunks()-1)*c.chunk }

// partial is whether the last chunk is not full.
func (c cell) partial() bool { return c.chunk > 0 && c.lastRows() < c.chunk }

// specimen is a recording, ready to compare.
type specimen struct {
	cell
	steps   []step
	sizes   []int64
	streams []int64
	places  []recorded
}

// piece is one program of a family: steps that all its recordings share, loops
// that turn more often with more chunks, and a polynomial for each size.
type piece struct {
	domain  Domain
	streams []int64
	base    cell // the recording that steps is of
	steps   []step
	sites   []site
	sizeOf  []int32 // index into sizes for allocations
	sizes   []polynomial
	places  []recorded // segments of the largest recording, see Program.places
}

// newPiece aligns recordings of one chunk size and finds their sizes.
func newPiece(examples []specimen) (*piece, error) {
	slices.SortStableFunc(examples, func(a, b specimen) int {
		if n := a.chunks() - b.chunks(); n != 0 {
			return n
		}
		if n := a.seqLen - b.seqLen; n != 0 {
			return n
		}
		return a.batch - b.batch
	})
	base := examples[0]
	p := &piece{base: base.cell, steps: base.steps, streams: base.streams, places: examples[len(examples)-1].places}
	for _, e := range examples[1:] {
		if e.chunks() > base.chunks() {
			sites, err := findSites(base.steps, e.steps, e.chunks()-base.chunks())
			if err != nil {
				return nil, fmt.Errorf("%v and %v: %w", base.cell, e.cell, err)
			}
			p.sites = sites
			break
		}
	}
	points, err := p.observe(examples)
	if err != nil {
		return nil, err
	}
	return p, p.fit(points)
}

// points are what the recordings show: for each cell the size at every base
// step.
type points struct {
	cells []cell
	sizes [][]int64
}

// observe lays every recording over the base. Cells that were recorded more
// than once must agree.
func (p *piece) observe(examples []specimen) (points, error) {
	var out points
	for _, e := range examples {
		order := unroll(p.sites, len(p.steps), e.chunks()-p.base.chunks())
		seen := make([]int64, len(p.steps))
		for i, k := range order {
			if i >= len(e.steps) || e.steps[i] != p.steps[k] {
				return points{}, fmt.Errorf("%w: %v and %v, at operation %d", ErrSequencesDiffer, p.base, e.cell, i)
			}
			if seen[k] != 0 && seen[k] != e.sizes[i] {
				return points{}, fmt.Errorf("%w: %v allocates %d and %d bytes in two turns of one loop, at operation %d", ErrSequencesDiffer, e.cell, seen[k], e.sizes[i], i)
			}
			seen[k] = e.sizes[i]
		}
		if len(order) != len(e.steps) {
			return points{}, fmt.Errorf("%w: %v goes on where %v ends, at operation %d", ErrSequencesDiffer, e.cell, p.base, len(order))
		}
		if at := slices.Index(out.cells, e.cell); at >= 0 {
			if k := agree64(out.sizes[at], seen); k < len(seen) {
				return points{}, fmt.Errorf("%w: two recordings of %v allocate %d and %d bytes at operation %d", ErrSequencesDiffer, e.cell, out.sizes[at][k], seen[k], k)
			}
			continue
		}
		out.cells, out.sizes = append(out.cells, e.cell), append(out.sizes, seen)
	}
	return out, nil
}

func agree64(a, b []int64) int {
	for i := range a {
		if a[i] != b[i] {
			return i
		}
	}
	return len(a)
}

// fit finds the polynomial of every size.
func (p *piece) fit(pts points) error {
	f, err := newFitter(pts.cells)
	if err != nil {
		return err
	}
	p.sizeOf = make([]int32, len(p.steps))
	known := map[string]int32{}
	for k, s := range p.steps {
		if s.kind != opAlloc {
			continue
		}
		var key strings.Builder
		y := make([]int64, len(pts.cells))
		for i := range pts.cells {
			y[i] = pts.sizes[i][k]
			fmt.Fprint(&key, y[i], " ")
		}
		at, ok := known[key.String()]
		if !ok {
			size, err := f.fit(y)
			if err != nil {
				return fmt.Errorf("the allocation at operation %d, %v bytes at %v: %w", k, y, pts.cells, err)
			}
			at = int32(len(p.sizes))
			p.sizes = append(p.sizes, size)
			known[key.String()] = at
		}
		p.sizeOf[k] = at
	}
	p.domain = f.domain(pts.cells)
	return nil
}

// extend gives the program of a cell.
func (p *piece) extend(c cell) (*Program, error) {
	sizes := make([]int64, len(p.sizes))
	for i := range p.sizes {
		n, err := p.sizes[i].at(c)
		if err != nil {
			return nil, fmt.Errorf("%w: at %v %w", ErrOutOfDomain, c, err)
		}
		sizes[i] = n
	}
	turns := c.chunks() - p.base.chunks()
	if turns < 0 {
		return nil, fmt.Errorf("%w: %v has fewer chunks than %v", ErrOutOfDomain, c, p.base)
	}
	total := len(p.steps)
	for _, s := range p.sites {
		if turns > maxSteps/s.length {
			total = maxSteps
		}
		total += turns * s.length
	}
	if total > maxSteps {
		return nil, fmt.Errorf("%w: %v would do more than %d operations", ErrOutOfDomain, c, maxSteps)
	}
	b := builder{p: Program{oomAt: -1, synthetic: true, streams: p.streams, segments: p.places}}
	order := unroll(p.sites, len(p.steps), turns)
	b.p.ops = make([]op, 0, len(order))
	for _, k := range order {
		size := int64(0)
		if p.steps[k].kind == opAlloc {
			size = sizes[p.sizeOf[k]]
		}
		if !b.add(p.steps[k], size) {
			return nil, errBroken
		}
		if b.moved > mostMoved {
			return nil, fmt.Errorf("%w: %v, as it frees its blocks in the order in which they came", ErrTooMuchWork, c)
		}
	}
	return b.program(), nil
}

var errBroken = errors.New("the program frees a block that it never allocated")

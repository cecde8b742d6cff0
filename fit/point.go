package fit

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
)

// ErrTooFewPoints is returned when no target was measured at enough different
// combinations of length and batch; the text says how many are needed.
var ErrTooFewPoints = errors.New("too few points")

// ErrBadPoint is returned when a point or an option contradicts itself.
var ErrBadPoint = errors.New("bad point")

// Point is one uncapped run that passed. All amounts are bytes; 0 means that
// the amount is not known.
type Point struct {
	// SeqLen and Batch are the run's axes, both at least 1.
	SeqLen, Batch int
	// Chunk is the chunk size that the run was made with, 0 for none or where
	// that plays no part; the points of one fit share it.
	Chunk int
	// Allocated, Reserved and Process are the run's three peaks.
	Allocated, Reserved, Process int64
	// Weights is what parameters and buffers hold, Context what the process
	// held before its first tensor, LoadedReserved what the allocator had
	// reserved after loading and before the forward pass.
	Weights, Context, LoadedReserved int64
	// Rounding is the largest error that rounding left in the peaks, for
	// example 50 MB for a table with one decimal of GB; 0 for exact bytes.
	Rounding int64
}

// Options are the choices of a fit; the zero value is the default.
type Options struct {
	// Confidence is the rate at which intervals should hold, between 0.5 and
	// 0.999; 0 means 0.95.
	Confidence float64
}

func (o Options) confidence() (float64, error) {
	switch {
	case o.Confidence == 0:
		return 0.95, nil
	case o.Confidence >= 0.5 && o.Confidence <= 0.999:
		return o.Confidence, nil
	}
	return 0, fmt.Errorf("%w: confidence %v is not between 0.5 and 0.999", ErrBadPoint, o.Confidence)
}

func (p Point) validate() error {
	if p.SeqLen < 1 || p.Batch < 1 {
		return fmt.Errorf("%w: seq_len %d and batch %d must be at least 1", ErrBadPoint, p.SeqLen, p.Batch)
	}
	if p.Chunk < 0 {
		return fmt.Errorf("%w: L%d B%d has chunk size %d", ErrBadPoint, p.SeqLen, p.Batch, p.Chunk)
	}
	for _, v := range []int64{p.Allocated, p.Reserved, p.Process, p.Weights, p.Context, p.LoadedReserved, p.Rounding} {
		if v < 0 {
			return fmt.Errorf("%w: L%d B%d has a negative amount (%d)", ErrBadPoint, p.SeqLen, p.Batch, v)
		}
	}
	if p.Allocated > p.Reserved && p.Reserved > 0 && p.Allocated-p.Reserved > 2*p.Rounding {
		return fmt.Errorf("%w: L%d B%d has %d bytes allocated and only %d reserved", ErrBadPoint, p.SeqLen, p.Batch, p.Allocated, p.Reserved)
	}
	return nil
}

// sorted returns the points in an order that depends on their values alone, so
// that sums come out the same to the last bit however the caller ordered them.
func sorted(points []Point) []Point {
	out := slices.Clone(points)
	slices.SortFunc(out, func(a, b Point) int {
		return cmp.Or(
			cmp.Compare(a.Batch, b.Batch), cmp.Compare(a.SeqLen, b.SeqLen),
			cmp.Compare(a.Allocated, b.Allocated), cmp.Compare(a.Reserved, b.Reserved),
			cmp.Compare(a.Process, b.Process), cmp.Compare(a.Weights, b.Weights),
			cmp.Compare(a.Context, b.Context), cmp.Compare(a.LoadedReserved, b.LoadedReserved),
			cmp.Compare(a.Rounding, b.Rounding), cmp.Compare(a.Chunk, b.Chunk))
	})
	return out
}

// peak is the point's value of a target, 0 if it was not measured.
func (p Point) peak(t Target) int64 {
	switch t {
	case Allocated:
		return p.Allocated
	case Reserved:
		return p.Reserved
	case Process:
		return p.Process
	}
	panic("fit: unknown target " + string(t))
}

// observation is one cell of the design: the mean of all runs of one length and
// batch. y is what the terms should add up to, scale what errors count
// relative to (the whole peak), round the rounding error.
type observation struct {
	seqLen, batch   int
	y, scale, round float64
}

// reading takes from a point the part that a component explains and the peak
// that errors count relative to; ok is false where it was not measured.
type reading func(Point) (y, scale int64, ok bool)

// gather reads sorted points and merges repeats of the same length and batch:
// repeats agree to the byte under an exact meter, and must not narrow the
// intervals by being counted twice.
func gather(points []Point, read reading) []observation {
	var out []observation
	runs := 0.0
	for _, p := range points {
		y, scale, ok := read(p)
		if !ok {
			continue
		}
		if n := len(out); n == 0 || out[n-1].seqLen != p.SeqLen || out[n-1].batch != p.Batch {
			out = append(out, observation{seqLen: p.SeqLen, batch: p.Batch})
			runs = 0
		}
		runs++
		o := &out[len(out)-1]
		o.y += (float64(y) - o.y) / runs
		o.scale += (float64(scale) - o.scale) / runs
		o.round = max(o.round, float64(p.Rounding))
	}
	return out
}

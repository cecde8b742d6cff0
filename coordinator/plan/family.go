package plan

import (
	"cmp"
	"slices"

	"github.com/oomfleet/oomfleet/proto"
	"github.com/oomfleet/oomfleet/storage/registry"
)

const (
	// designLengths is how many lengths determine a program: sizes are
	// polynomials of degree 3 in the length at most.
	designLengths = 4
	// fewestLengths is what a program is made from at the least.
	fewestLengths = 3
	// mostInputs bounds the recordings that a program is made from. Where so
	// many were not enough, every length and batch is recorded.
	mostInputs = 12
)

// family is a set of cells that a few recordings may determine, and what is to
// be done about it.
type family struct {
	key     registry.FamilyKey
	members []*memo
	program *registry.Program
	dirty   bool
	build   *Build
}

// point is one length and batch of a family. Its cells differ in allocator
// settings and quota alone: one recording serves them all.
type point struct {
	cell    proto.Cell // of any member: length, batch and chunk size
	members []*memo
	// donor is the member whose recording stands for the point, the first that
	// was made; nil without one. recorder is who is to make one.
	donor, recorder *memo
	waits, record   bool
}

// place is what a family says of one of its cells.
type place struct {
	shares bool
	// record: the cell is to make a recording for its family, or for itself
	// when it does not share.
	record bool
	// source is what it is predicted from without a recording of its own, and
	// total the memory of the card that the source was recorded on.
	source source
	total  proto.Bytes
	// check is a program that its own recording is to be held against.
	check proto.Digest
}

// source is a recording of the same point, with its allocator's settings, or a
// program; neither when there is nothing to predict from yet.
type source struct {
	trace   proto.TraceRef
	donor   *memo
	program proto.Digest
}

// arrange decides who records, what is built and what each member is predicted
// from, anew from what the members show.
//
// Without a program the design points are recorded, and one is built when they
// are in. A program leaves out what it does not cover; then the cheapest such
// point is recorded and the program built again. Recordings that give none, a
// stale program and recordings of two stacks leave nothing to guess from: every
// point is recorded, once.
//
// Where no cell waits, a program is built all the same as soon as the design's
// number of lengths is recorded: it answers what a person or a scheduler asks
// of lengths that no matrix holds.
func (f *family) arrange() {
	points := f.points()
	var recorded, open, uncovered []*point
	for _, pt := range points {
		switch {
		case pt.donor != nil:
			recorded = append(recorded, pt)
		case pt.waits:
			open = append(open, pt)
			if !f.covers(pt) {
				uncovered = append(uncovered, pt)
			}
		}
	}
	inputs := inputsOf(recorded)
	p, trusted := f.program, oneStack(recorded)
	var record []*point
	f.build = nil
	switch {
	case len(open) == 0:
	case !trusted || p != nil && (p.Stale != "" || p.Refused != "" && !p.NeedMore):
		record = open
	case p == nil:
		record = design(recorded, open)
	case len(uncovered) > 0 && len(recorded) >= mostInputs:
		record = uncovered
	case len(uncovered) > 0 && p.MadeFrom(digestsOf(inputs)):
		record = uncovered[:1]
	}
	wanted := len(open) > 0 && len(record) == 0 && (p == nil || len(uncovered) > 0)
	asked := len(open) == 0 && trusted && unbuilt(p, digestsOf(inputs)) && lengthsOf(recorded) >= designLengths
	if wanted || asked {
		f.build = &Build{Family: f.key, ChunkSize: points[0].cell.ChunkSize, Inputs: inputs}
	}
	for _, pt := range record {
		pt.record = true
	}
	for _, pt := range points {
		f.assign(pt, trusted, lastTotal(recorded))
	}
}

// points groups the members, by cost.
func (f *family) points() []*point {
	type at struct{ seqLen, batch int }
	known := make(map[at]*point)
	var points []*point
	for _, m := range f.members {
		c := m.record.Cell
		pt := known[at{c.SeqLen, c.Batch}]
		if pt == nil {
			pt = &point{cell: c}
			known[at{c.SeqLen, c.Batch}] = pt
			points = append(points, pt)
		}
		pt.members = append(pt.members, m)
	}
	for _, pt := range points {
		slices.SortFunc(pt.members, byRank)
		for _, m := range pt.members {
			if m.face.trace.Digest != "" && (pt.donor == nil || m.face.index < pt.donor.face.index) {
				pt.donor = m
			}
			if m.face.able && pt.recorder == nil {
				pt.recorder = m
			}
			pt.waits = pt.waits || m.face.waits
		}
	}
	slices.SortFunc(points, byCost)
	return points
}

// byCost: the work of a run grows with the batch and the cube of the length.
func byCost(a, b *point) int {
	cost := func(c proto.Cell) float64 {
		return float64(c.Batch) * float64(c.SeqLen) * float64(c.SeqLen) * float64(c.SeqLen)
	}
	return cmp.Or(cmp.Compare(cost(a.cell), cost(b.cell)), a.cell.SeqLen-b.cell.SeqLen, a.cell.Batch-b.cell.Batch)
}

// design picks the points that a program is made from: what is recorded
// already, then the cheapest, of designLengths lengths and, where batches
// differ, of two batches. It returns those that are still to be recorded: all,
// where there are no more points than that, or too few lengths for any program.
func design(recorded, open []*point) []*point {
	all := slices.Concat(recorded, open)
	if len(all) <= designLengths || lengthsOf(all) < fewestLengths {
		return open
	}
	batches := make(map[int]bool)
	for _, pt := range all {
		batches[pt.cell.Batch] = true
	}
	var picked []*point
	seen, seenBatches := make(map[int]bool), make(map[int]bool)
	pick := func(pt *point) {
		seen[pt.cell.SeqLen], seenBatches[pt.cell.Batch] = true, true
		picked = append(picked, pt)
	}
	for _, pt := range all {
		if len(seen) < designLengths && !seen[pt.cell.SeqLen] {
			pick(pt)
		}
	}
	for _, pt := range all {
		if len(batches) > 1 && len(seenBatches) == 1 && !seenBatches[pt.cell.Batch] {
			pick(pt)
		}
	}
	return slices.DeleteFunc(picked, func(pt *point) bool { return pt.donor != nil })
}

// covers reports whether the program may be asked for the point. One that has
// refused any cell of it is not asked again.
func (f *family) covers(pt *point) bool {
	return f.program.Covers(pt.cell) &&
		!slices.ContainsFunc(pt.members, func(m *memo) bool { return m.face.refusedBy == f.program.Digest })
}

// assign gives each member of a point its place.
func (f *family) assign(pt *point, trusted bool, total proto.Bytes) {
	covered := trusted && f.covers(pt)
	for _, m := range pt.members {
		next := place{shares: m.face.shares, record: !m.face.shares || pt.record && m == pt.recorder}
		switch {
		case !m.face.waits:
		case pt.donor != nil:
			next.source, next.total = source{trace: pt.donor.face.trace, donor: pt.donor}, pt.donor.face.total
		case covered:
			next.source, next.total = source{program: f.program.Digest}, total
		}
		if own := m.face.trace.Digest; own != "" && f.program.Covers(pt.cell) && !slices.Contains(f.program.Inputs, own) {
			next.check = f.program.Digest
		}
		if next != m.place {
			m.place, m.decided = next, false
		}
	}
}

// unbuilt reports whether these recordings, sorted, may give a program where
// there is none.
func unbuilt(p *registry.Program, inputs []proto.Digest) bool {
	return p == nil || p.NeedMore && p.Stale == "" && !p.MadeFrom(inputs)
}

// lengthsOf counts the lengths among the points.
func lengthsOf(points []*point) int {
	lengths := make(map[int]bool)
	for _, pt := range points {
		lengths[pt.cell.SeqLen] = true
	}
	return len(lengths)
}

// inputsOf are the recordings that a program is made from, the cheapest first.
func inputsOf(recorded []*point) []Input {
	var inputs []Input
	for _, pt := range recorded[:min(len(recorded), mostInputs)] {
		d := pt.donor
		inputs = append(inputs, Input{Trace: d.face.trace, SeqLen: pt.cell.SeqLen, Batch: pt.cell.Batch, Env: d.record.Cell.AllocatorEnv()})
	}
	return inputs
}

// digestsOf are the inputs as the registry keeps them.
func digestsOf(inputs []Input) []proto.Digest {
	var digests []proto.Digest
	for _, in := range inputs {
		digests = append(digests, in.Trace.Digest)
	}
	slices.Sort(digests)
	return slices.Compact(digests)
}

// oneStack reports whether all recordings were made with the same CUDA and
// torch. The versions are known only once something ran.
func oneStack(recorded []*point) bool {
	for _, pt := range recorded {
		if a, b := pt.donor.face, recorded[0].donor.face; a.cuda != b.cuda || a.torch != b.torch {
			return false
		}
	}
	return true
}

// lastTotal is the memory of the card of the most expensive recording.
func lastTotal(recorded []*point) proto.Bytes {
	if n := len(recorded); n > 0 {
		return recorded[n-1].donor.face.total
	}
	return 0
}

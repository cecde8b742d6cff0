package allocator

import (
	"errors"
	"fmt"
	"slices"
)

// ErrSplice is returned when a refused run cannot be placed in the program that
// it is said to be a run of: what it would have done next is not known.
var ErrSplice = errors.New("the refused run is no beginning of the program")

// CappedRun is what the trace of a run under a quota says of its program.
type CappedRun struct {
	// Program is what the run asked for. Where it went on after a refusal
	// (Caught), it is the program of a run that was refused from the start: what
	// it had allocated before and still held at its first allocation after the
	// last refusal, in order, and all that came behind. It has no recorded
	// addresses to check, but for those of the segments before the first one was
	// given back. Emptied caches are left out: under a quota they cannot be told
	// from the allocator's own.
	Program *Program
	Caught  bool
	// Refused is whether the run ended in a refusal, of Wanted bytes as the
	// allocator rounded them. Program is then a beginning only: see Splice.
	Refused bool
	Wanted  int64
}

// ReadCapped reads the trace of a run under a quota. It refuses what Compile
// does: a trace that lost its start.
func ReadCapped(events []Event) (CappedRun, error) {
	var c CappedRun
	caught, end := -1, len(events) // the last refusal that was caught; the one that ended the run
	for i, last := 0, -1; i < len(events); i++ {
		switch events[i].Action {
		case OOM:
			last = i
			end = i
		case Alloc:
			caught, end = max(caught, last), len(events)
		}
	}
	c.Caught = caught >= 0
	if c.Refused = end < len(events); c.Refused {
		c.Wanted = events[end].Size
	}
	var own []Event
	for _, e := range events[:end] {
		if e.Action == SegmentFree || e.Action == SegmentMap {
			break
		}
		if e.Action == SegmentAlloc {
			own = append(own, e)
		}
	}
	own = append(own, asked(events[:end], caught)...)
	p, err := Compile(own)
	if err != nil {
		return CappedRun{}, fmt.Errorf("trace of a run under a quota: %w", err)
	}
	p.synthetic, p.addrs = true, nil
	c.Program = p
	return c, nil
}

// asked are the requests behind a refusal (-1: all), after those of before that
// still lived at the first allocation.
func asked(events []Event, refusal int) []Event {
	var out []Event
	from := 0
	if refusal >= 0 {
		from = refusal + 1 + slices.IndexFunc(events[refusal+1:], func(e Event) bool { return e.Action == Alloc })
		at := map[uint64]int{}
		for i, e := range events[:from] {
			switch e.Action {
			case Alloc:
				at[e.Addr] = i
			case FreeRequested:
				delete(at, e.Addr)
			}
		}
		for i, e := range events[:from] {
			if j, live := at[e.Addr]; live && i == j {
				out = append(out, e)
			}
		}
	}
	for _, e := range events[from:] {
		switch e.Action {
		case Alloc, FreeRequested, FreeCompleted:
			out = append(out, e)
		}
	}
	return out
}

// Change is how a run differs from the program that it is a run of.
type Change struct {
	// Extra is how many allocations the program lacks. ExtraBytes is what the run
	// held where it was refused beyond what the program holds there: of those
	// allocations, or of the program's own that it had not freed yet.
	Extra      int
	ExtraBytes int64
	// Reordered is whether the run allocates the same blocks in the same order
	// and frees some of them elsewhere.
	Reordered bool
}

// Compare says how a run that was not refused differs from a program. Of one that
// allocates other blocks, Extra says how many more they are, at least 1.
func (c CappedRun) Compare(p *Program) Change {
	a, b := allocations(c.Program), allocations(p)
	if !slices.Equal(a, b) {
		return Change{Extra: max(1, len(a)-len(b))}
	}
	return Change{Reordered: !sameSteps(c.Program, p, len(p.ops))}
}

// sameSteps is whether a run that allocates the same blocks as a program does up
// to an op frees them at the same places too. Emptied caches do not count.
func sameSteps(run, p *Program, end int) bool {
	a, _ := shapeOf(run)
	b, _ := shapeOf(p)
	return slices.Equal(a, slices.DeleteFunc(b[:end], func(s step) bool { return s.kind == opFlush }))
}

// request is one allocation of a program.
type request struct {
	size int64
	strm int32
}

func allocations(p *Program) []request {
	var out []request
	for i := range p.ops {
		if o := &p.ops[i]; o.kind == opAlloc {
			out = append(out, request{o.size, o.strm})
		}
	}
	return out
}

// Splice is the program of a run that was refused under these settings: what it did, and then what
// the whole program does from there on. Blocks that the run held beyond those of
// the whole stay; where the run differs in the order of its frees alone, those
// blocks go after the next allocation. It fails (ErrSplice) where the run's
// requests cannot be laid over those of the whole.
func Splice(c CappedRun, whole *Program, set Settings) (*Program, Change, error) {
	if !c.Refused {
		return nil, Change{}, fmt.Errorf("%w: it was not refused", ErrSplice)
	}
	prefix := c.Program
	j, extra, err := align(allocations(prefix), allocations(whole))
	if err != nil {
		return nil, Change{}, err
	}
	cut := whole.nthAlloc(j)
	if cut == len(whole.ops) {
		return nil, Change{}, fmt.Errorf("%w: the program ends before the refusal", ErrSplice)
	}
	if set.round(whole.ops[cut].size) != c.Wanted {
		return nil, Change{}, fmt.Errorf("%w: it was refused %d bytes, the program asks for %d there", ErrSplice, c.Wanted, whole.ops[cut].size)
	}
	have, pendingHave := prefix.liveAt(len(prefix.ops))
	want, pendingWant := whole.liveAt(cut)
	if pendingHave+pendingWant > 0 {
		return nil, Change{}, fmt.Errorf("%w: frees are outstanding where it was refused", ErrSplice)
	}
	reordered := extra == 0 && !sameSteps(prefix, whole, cut)
	return prefix.join(whole, joint{cut: cut, have: have, want: want, change: Change{Extra: extra, Reordered: reordered}})
}

// nthAlloc is the op of the n-th allocation, from 0; len(ops) without one.
func (p *Program) nthAlloc(n int) int {
	for i := range p.ops {
		if p.ops[i].kind == opAlloc {
			if n == 0 {
				return i
			}
			n--
		}
	}
	return len(p.ops)
}

// liveAt are the allocations that live before an op, in order, and how many
// frees are outstanding.
func (p *Program) liveAt(end int) (live []*op, pending int) {
	at := make([]int, p.slots) // in live, by slot
	for i := range p.ops[:end] {
		o := &p.ops[i]
		switch o.kind {
		case opAlloc:
			at[o.slot] = len(live)
			live = append(live, o)
		case opFree, opFreeDeferred:
			live[at[o.slot]] = nil // a compiled program frees what it holds
			if o.kind == opFreeDeferred {
				pending++
			}
		case opComplete:
			pending--
		}
	}
	return slices.DeleteFunc(live, func(o *op) bool { return o == nil }), pending
}

// joint is where the whole goes on behind a prefix.
type joint struct {
	cut        int
	have, want []*op // live blocks of the prefix and of the whole
	change     Change
}

// join puts the rest of the whole behind the prefix.
func (p *Program) join(whole *Program, at joint) (*Program, Change, error) {
	change := at.change
	slot := make([]int32, whole.slots) // the joined program's, by the whole's
	for i := range slot {
		slot[i] = int32(p.slots + i)
	}
	var left []*op
	next := 0
	for _, h := range at.have {
		if next < len(at.want) && at.want[next].size == h.size && at.want[next].strm == h.strm {
			slot[at.want[next].slot] = h.slot
			next++
			continue
		}
		left = append(left, h)
		change.ExtraBytes += h.size
	}
	if next < len(at.want) {
		return nil, change, fmt.Errorf("%w: it does not hold the block of %d bytes that the program holds there", ErrSplice, at.want[next].size)
	}
	out := &Program{oomAt: -1, synthetic: true, streams: whole.streams, segments: p.segments, slots: p.slots + whole.slots}
	if len(p.streams) > len(whole.streams) {
		out.streams = p.streams
	}
	out.ops = slices.Clone(p.ops)
	for i, o := range whole.ops[at.cut:] {
		if o.kind == opAlloc { // a number that may have stood for another block before
			slot[o.slot] = int32(p.slots) + o.slot
		}
		if o.kind != opFlush {
			o.slot = slot[o.slot]
		}
		out.ops = append(out.ops, o)
		if i == 0 && change.Extra == 0 {
			for _, l := range left {
				out.ops = append(out.ops, op{kind: opFree, slot: l.slot, strm: l.strm})
			}
		}
	}
	for i := range out.ops {
		out.ops[i].event = int32(i)
	}
	out.repeated = findStretches(out.ops)
	return out, change, nil
}

const (
	// sure is how many equal allocations in a row make it certain that two runs
	// go the same way again; astray is how many may differ before that.
	sure   = 8
	astray = 64
)

// align lays allocations over those of a program: j of the program's have been
// made, and extra that it lacks.
func align(have, want []request) (j, extra int, err error) {
	i := 0
	for i < len(have) {
		if j < len(want) && have[i] == want[j] {
			i, j = i+1, j+1
			continue
		}
		k := 1
		for k <= astray && !sameWay(have[min(i+k, len(have)):], want[j:]) {
			k++
		}
		if k > astray || j >= len(want) {
			return 0, 0, fmt.Errorf("%w: at allocation %d it asks for %d bytes and goes another way", ErrSplice, i, have[i].size)
		}
		k = min(k, len(have)-i)
		i, extra = i+k, extra+k
	}
	return j, extra, nil
}

// sameWay is whether two runs ask for the same, as far as it takes to be sure. At
// the end of one nothing is left to disagree.
func sameWay(have, want []request) bool {
	n := min(sure, len(have), len(want))
	return slices.Equal(have[:n], want[:n]) && (n > 0 || len(have) == 0)
}

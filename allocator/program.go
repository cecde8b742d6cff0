package allocator

import "fmt"

// opKind is one step of a compiled trace.
type opKind uint8

const (
	opAlloc opKind = iota
	opFree
	opFreeDeferred
	opComplete
	opFlush
	opHold // opAlloc of a block that is never freed; in halves only
)

// op is one step: slot numbers name live blocks, so that a replay needs no map
// of addresses. event is the step's index in the trace.
type op struct {
	size  int64
	slot  int32
	event int32
	strm  int32
	kind  opKind
}

// Program is a trace compiled for replay: the program's own allocations and
// frees, and the recorded outcomes that the self-check compares with. It is
// immutable and safe for concurrent replays.
type Program struct {
	ops     []op
	slots   int
	streams []int64 // handles by number
	// addrs are the recorded addresses of allocations, in the order of opAlloc.
	addrs    []uint64
	segments []recorded // segment_alloc and segment_map, in order
	ranges   bool       // the segments are mapped pages of expandable ranges
	oomAt    int        // event of the first recorded oom, -1 without
	repeated []stretch
	divided  *division
	// synthetic is a program that no recording shows: there is nothing to check
	// it with.
	synthetic bool
}

// Events is how many allocations and frees a full replay executes.
func (p *Program) Events() int {
	n := 0
	for i := range p.ops {
		if k := p.ops[i].kind; k == opAlloc || k == opFree || k == opFreeDeferred {
			n++
		}
	}
	return n
}

// places are the segments with which a run of another size begins too: all of
// them, where none was given back, or nothing for ranges. Loading is the same for
// every size, and the driver puts the same requests into the same places.
func (p *Program) places() []recorded {
	if p.ranges {
		return nil
	}
	for i, s := range p.segments {
		if s.given > 0 {
			return p.segments[:i]
		}
	}
	return p.segments
}

// Compile checks a trace and turns it into a program. It refuses a trace whose
// recording began late (a free of an unknown address) and one that allocates an
// address twice. A trace that ends in an out-of-memory compiles up to there. The
// recording is taken to have run without a limit: released segments then mean
// that the program emptied the cache, and replay does so too.
func Compile(events []Event) (*Program, error) {
	c, err := compile(events)
	if err != nil {
		return nil, err
	}
	return c.p, nil
}

func compile(events []Event) (*compiler, error) {
	if len(events) > 1<<30 {
		return nil, fmt.Errorf("the trace has %d events, more than a replay takes (2^30)", len(events))
	}
	c := &compiler{p: &Program{oomAt: -1}, live: map[uint64]int32{}, deferred: map[uint64]int32{}, streams: map[int64]int32{}}
	for i := 0; i < len(events); i++ {
		skip, err := c.step(events, i)
		if err != nil {
			return nil, fmt.Errorf("event %d (%s of %#x, %d bytes): %w", i, events[i].Action, events[i].Addr, events[i].Size, err)
		}
		if c.p.oomAt >= 0 {
			break
		}
		i += skip
	}
	c.p.slots = c.slots.n
	c.p.repeated = findStretches(c.p.ops)
	c.p.divided = &division{}
	c.moved = noteAgain(c.p.segments)
	if !c.p.ranges {
		if err := noteHidden(c.p.segments, hiddenWork); err != nil {
			return nil, err
		}
	}
	c.moved += c.lying.moved + c.bursts.looked
	return c, nil
}

type compiler struct {
	p        *Program
	live     map[uint64]int32
	deferred map[uint64]int32
	streams  map[int64]int32
	slots    slots
	given    int     // released segments so far
	lying    spanSet // segments that are there now
	bursts
	moved int // events looked at more than once, segments and runs of them moved
}

// bursts are the runs of released segments in a trace.
type bursts struct {
	in      bool // one
	end     int  // of the burst that emptied has looked at: its first event that is no part of it
	emptied bool // what it found
	looked  int  // events looked at so far
}

// addressEnd bounds addresses and sizes: those of 57-bit paging.
const addressEnd = 1 << 57

// maxSegments is how many segments may lie there at once: twice those of the
// largest card, if it holds nothing but the smallest.
const maxSegments = 1 << 18

// maxStreams is how many streams a trace may name: each has free sets of its own,
// and torch takes its streams from pools of 32.
const maxStreams = 1 << 10

// step compiles event i and returns how many events behind it were consumed.
func (c *compiler) step(events []Event, i int) (skip int, err error) {
	e := events[i]
	burst := e.Action == SegmentFree || e.Action == SegmentUnmap
	if burst && !c.bursts.in && c.empties(events, i) {
		c.p.ops = append(c.p.ops, op{kind: opFlush, event: int32(i)})
	}
	c.bursts.in = burst
	switch e.Action {
	case Alloc:
		return 0, c.alloc(e, i)
	case FreeRequested:
		return c.free(events, i)
	case FreeCompleted:
		if slot, ok := c.deferred[e.Addr]; ok {
			delete(c.deferred, e.Addr)
			c.p.ops = append(c.p.ops, op{kind: opComplete, slot: slot, event: int32(i)})
			c.slots.give(slot)
		}
	case SegmentAlloc, SegmentMap:
		if e.Size <= 0 {
			return 0, fmt.Errorf("a segment of no size")
		}
		if e.Addr >= addressEnd || e.Size >= addressEnd {
			return 0, fmt.Errorf("a segment that lies outside any address space")
		}
		if c.lying.n >= maxSegments {
			return 0, fmt.Errorf("more than %d segments at once", maxSegments)
		}
		if e.Action == SegmentAlloc && !c.lying.place(span{e.Addr, e.Size}) {
			return 0, fmt.Errorf("a segment on top of another")
		}
		c.p.segments = append(c.p.segments, recorded{span: span{e.Addr, e.Size}, given: c.given})
		c.p.ranges = c.p.ranges || e.Action == SegmentMap
	case OOM:
		c.p.oomAt = i
	case SegmentFree:
		c.given++
		c.lying.take(e.Addr)
	case SegmentUnmap, Snapshot:
	default:
		return 0, fmt.Errorf("unknown action")
	}
	return 0, nil
}

// empties is whether a burst of released segments is an empty_cache call of the
// program. In a run without a limit every burst is, but for the one of the
// allocation that met the end of the card.
func (c *compiler) empties(events []Event, i int) bool {
	b := &c.bursts
	if i < b.end {
		return b.emptied
	}
	part := func(a Action) bool { return a == SegmentFree || a == SegmentUnmap || a == FreeCompleted }
	for b.end = i; b.end < len(events) && part(events[b.end].Action); b.end++ {
		b.looked++
	}
	b.emptied = b.end == len(events) || events[b.end].Action != OOM
	return b.emptied
}

func (c *compiler) alloc(e Event, i int) error {
	if e.Size <= 0 || e.Size >= 1<<60 {
		return fmt.Errorf("the size is not one that the allocator serves")
	}
	if _, ok := c.live[e.Addr]; ok {
		return fmt.Errorf("the address is in use already: events are missing or out of order")
	}
	slot := c.slots.take()
	c.live[e.Addr] = slot
	st, ok := c.streams[e.Stream]
	if !ok {
		if len(c.p.streams) == maxStreams {
			return fmt.Errorf("more than %d streams", maxStreams)
		}
		st = int32(len(c.p.streams))
		c.streams[e.Stream] = st
		c.p.streams = append(c.p.streams, e.Stream)
	}
	c.p.ops = append(c.p.ops, op{kind: opAlloc, size: e.Size, slot: slot, event: int32(i), strm: st})
	c.p.addrs = append(c.p.addrs, e.Addr)
	return nil
}

func (c *compiler) free(events []Event, i int) (skip int, err error) {
	e := events[i]
	slot, ok := c.live[e.Addr]
	if !ok {
		return 0, fmt.Errorf("the address was never allocated: the recording began late or lost its start")
	}
	delete(c.live, e.Addr)
	if i+1 < len(events) && events[i+1].Action == FreeCompleted && events[i+1].Addr == e.Addr {
		c.p.ops = append(c.p.ops, op{kind: opFree, slot: slot, event: int32(i)})
		c.slots.give(slot)
		return 1, nil
	}
	c.p.ops = append(c.p.ops, op{kind: opFreeDeferred, slot: slot, event: int32(i)})
	c.deferred[e.Addr] = slot
	return 0, nil
}

package allocator

import "slices"

// Layout says which addresses the simulated driver hands out. They matter only
// where two free blocks of one stream have the same size: the lower address is
// taken first.
type Layout uint8

const (
	// LayoutDriver gives the k-th segment the k-th recorded address while the
	// sizes agree, then goes on as the CUDA driver was seen to; see driverSpace.
	LayoutDriver Layout = iota
	// LayoutAscending hands out ever higher addresses.
	LayoutAscending
	// LayoutDescending hands out ever lower addresses.
	LayoutDescending
	// LayoutReuse takes the address freed last that was of the same size, else
	// goes on ascending.
	LayoutReuse
)

// span is one address range that the driver handed out or took back.
type span struct {
	addr uint64
	size int64
}

func (s span) end() uint64 { return s.addr + uint64(s.size) }

// recorded is a segment of the recording. given is how many had been given back
// before it was asked for, hidden how much of the address space something else
// than the allocator took since the segment before. again is whether an earlier
// one lay there too.
type recorded struct {
	span
	given  int
	hidden int64
	again  bool
}

// noteAgain marks the segments that lie where an earlier one lay: no other can
// find its place taken. It returns how much was moved for it.
func noteAgain(segments []recorded) (moved int) {
	var seen spanSet
	for i := range segments {
		s := &segments[i]
		s.again = seen.cover(s.span)
	}
	return seen.moved
}

// placer hands out segment addresses by a layout.
type placer struct {
	layout   Layout
	recorded []recorded // of the trace, in order; shared, never changed
	k        int        // next recorded segment
	asked    int        // segments handed out so far
	given    int        // segments given back so far
	hidden   int        // next recorded segment whose hidden is still to come
	differs  bool       // the run left the recording: its addresses no longer apply
	up, down uint64
	diary
	freed []span // LayoutReuse: by time
	space driverSpace
}

// diary is what happened under LayoutDriver while the run followed the recording.
type diary struct {
	log   []passage
	known int // how much of it space knows of
}

// passage is a segment that was handed out at a recorded address, or given back.
type passage struct {
	span
	back bool
}

func newPlacer(layout Layout, recorded []recorded) placer {
	return placer{layout: layout, recorded: recorded, up: 1 << 46, down: 1 << 46}
}

// take returns the address of a new driver allocation or range. compare is the
// size that the recording shows for it.
func (p *placer) take(size, compare int64) uint64 {
	p.asked++
	switch p.layout {
	case LayoutDriver:
		if s, ok := p.next(compare); ok {
			p.log = append(p.log, passage{span: span{s.addr, size}})
			return s.addr
		}
		for ; p.hidden < min(p.asked, len(p.recorded)); p.hidden++ {
			if n := p.recorded[p.hidden].hidden; n > 0 {
				p.space.hide(n)
			}
		}
		return p.space.take(size)
	case LayoutDescending:
		p.down -= uint64(size)
		return p.down
	case LayoutReuse:
		for i := len(p.freed) - 1; i >= 0; i-- {
			if p.freed[i].size == size {
				addr := p.freed[i].addr
				p.space.meter.scan(len(p.freed) - i)
				p.freed = slices.Delete(p.freed, i, i+1)
				return addr
			}
		}
		p.space.meter.scan(len(p.freed))
	}
	addr := p.up
	p.up += uint64(size)
	return addr
}

// next is the next recorded range, if it has this size, as many were given back
// before it, and nothing lies there: under another limit or other settings
// something may.
func (p *placer) next(size int64) (span, bool) {
	if p.differs {
		return span{}, false
	}
	if p.k < len(p.recorded) {
		s := p.recorded[p.k]
		if s.size == size && s.given == p.given && !(s.again && p.occupied(s.span)) {
			p.k++
			return s.span, true
		}
	}
	p.leave()
	return span{}, false
}

// occupied is whether something that was handed out lies in a place.
func (p *placer) occupied(s span) bool {
	p.space.meter.scan(len(p.log))
	for i, e := range p.log {
		if !e.back && s.addr < e.end() && e.addr < s.end() {
			p.space.meter.scan(len(p.log) - i)
		}
		gone := func(later passage) bool { return later.back && later.addr == e.addr }
		if !e.back && s.addr < e.end() && e.addr < s.end() && !slices.ContainsFunc(p.log[i:], gone) {
			return true
		}
	}
	return false
}

// learn tells space what has passed. As long as the run follows the recording
// nobody asks space for anything, and a replay that never leaves it, as most do,
// is spared the lists (a third of the time of GPT-2's replay).
func (p *placer) learn() {
	for _, e := range p.log[p.known:] {
		if p.space.meter.over() {
			break
		}
		if e.back {
			p.space.give(e.span)
		} else {
			p.space.record(e.span)
		}
	}
	p.known = len(p.log)
}

// leave is the end of the recorded addresses. Those that are left say what is
// free now.
func (p *placer) leave() {
	p.learn()
	p.log, p.known = p.log[:0], 0
	p.differs = true
	p.hidden = p.k
	if !p.space.expect(p.recorded[p.k:]) {
		return
	}
	for p.hidden < len(p.recorded) && p.recorded[p.hidden].hidden == 0 {
		p.hidden++
	}
	p.hidden++ // this one is expected already
}

// skip counts a recorded segment_map that needed no new range.
func (p *placer) skip(compare int64) {
	if p.layout != LayoutDriver || p.differs {
		return
	}
	if p.k < len(p.recorded) && p.recorded[p.k].size == compare {
		p.k++
		return
	}
	p.leave()
}

// give takes back a segment.
func (p *placer) give(addr uint64, size int64) {
	p.given++
	p.drop(addr, size)
}

// drop takes back a segment, or a range of which all is unmapped.
func (p *placer) drop(addr uint64, size int64) {
	switch p.layout {
	case LayoutDriver:
		if p.differs {
			p.space.give(span{addr, size})
		} else {
			p.log = append(p.log, passage{span{addr, size}, true})
		}
	case LayoutReuse:
		p.freed = append(p.freed, span{addr, size})
	}
}

package allocator

import "slices"

// Layout says which addresses the simulated driver hands out. They matter only
// where two free blocks of one stream have the same size: the lower address is
// taken first.
type Layout uint8

const (
	// LayoutDriver gives the k-th segment the k-th recorded address while the
	// sizes agree, then goes on as the CUDA driver was seen to: the lowest
	// hole that fits, else a new region below all others.
	LayoutDriver Layout = iota
	// LayoutAscending hands out ever higher addresses.
	LayoutAscending
	// LayoutDescending hands out ever lower addresses.
	LayoutDescending
	// LayoutReuse takes the address freed last that was of the same size, else
	// goes on ascending.
	LayoutReuse
)

// region is the unit in which the driver takes address space; what a segment
// leaves over of its last region is a hole for smaller ones. Seen in recorded
// segment addresses on an H200 with driver 580.159.04.
const region = 32 << 20

// span is one address range that the driver handed out or took back.
type span struct {
	addr uint64
	size int64
}

func (s span) end() uint64 { return s.addr + uint64(s.size) }

// placer hands out segment addresses by a layout.
type placer struct {
	layout   Layout
	recorded []span // of the trace, in order; shared, never changed
	k        int    // next recorded span
	differs  bool   // a size differed: recorded addresses no longer apply
	up, down uint64
	taken    []span // recorded addresses handed out and not given back
	freed    []span // LayoutReuse: by time
	holes    []span // LayoutDriver: by address, never adjacent
}

func newPlacer(layout Layout, recorded []span) placer {
	return placer{layout: layout, recorded: recorded, up: 1 << 46, down: 1 << 46}
}

// take returns the address of a new driver allocation or range. compare is the
// size that the recording shows for it.
func (p *placer) take(size, compare int64) uint64 {
	switch p.layout {
	case LayoutDriver:
		if s, ok := p.next(compare); ok {
			p.taken = append(p.taken, s)
			p.occupy(span{s.addr, size})
			return s.addr
		}
		return p.lowestFit(size)
	case LayoutDescending:
		p.down -= uint64(size)
		return p.down
	case LayoutReuse:
		for i := len(p.freed) - 1; i >= 0; i-- {
			if p.freed[i].size == size {
				addr := p.freed[i].addr
				p.freed = slices.Delete(p.freed, i, i+1)
				return addr
			}
		}
	}
	addr := p.up
	p.up += uint64(size)
	return addr
}

// next is the next recorded range, if it has this size and nothing lies there:
// under another limit or other settings something may.
func (p *placer) next(size int64) (span, bool) {
	if p.differs || p.k >= len(p.recorded) || p.recorded[p.k].size != size {
		p.differs = true
		return span{}, false
	}
	s := p.recorded[p.k]
	for _, t := range p.taken {
		if s.addr < t.end() && t.addr < s.end() {
			p.differs = true
			return span{}, false
		}
	}
	p.k++
	return s, true
}

// lowestFit takes the lowest hole of at least size, or opens a new region.
func (p *placer) lowestFit(size int64) uint64 {
	for i := range p.holes {
		if h := &p.holes[i]; h.size >= size {
			addr := h.addr
			h.addr += uint64(size)
			if h.size -= size; h.size == 0 {
				p.holes = slices.Delete(p.holes, i, i+1)
			}
			return addr
		}
	}
	length := (size + region - 1) / region * region
	p.down -= uint64(length)
	if length > size {
		p.hole(span{p.down + uint64(size), length - size})
	}
	return p.down
}

// occupy takes a recorded range: out of a hole, or out of regions of its own.
func (p *placer) occupy(s span) {
	for i := range p.holes {
		h := p.holes[i]
		if h.addr <= s.addr && s.end() <= h.end() {
			p.holes = slices.Delete(p.holes, i, i+1)
			p.hole(span{h.addr, int64(s.addr - h.addr)})
			p.hole(span{s.end(), int64(h.end() - s.end())})
			return
		}
	}
	from, to := s.addr/region*region, (s.end()+region-1)/region*region
	p.down = from
	p.hole(span{from, int64(s.addr - from)})
	p.hole(span{s.end(), int64(to - s.end())})
}

// hole files a free range and merges it with its neighbours.
func (p *placer) hole(s span) {
	if s.size <= 0 {
		return
	}
	i, _ := slices.BinarySearchFunc(p.holes, s.addr, func(h span, addr uint64) int {
		if h.addr < addr {
			return -1
		}
		return 1
	})
	if i < len(p.holes) && s.end() == p.holes[i].addr {
		s.size += p.holes[i].size
		p.holes = slices.Delete(p.holes, i, i+1)
	}
	if i > 0 && p.holes[i-1].end() == s.addr {
		p.holes[i-1].size += s.size
		return
	}
	p.holes = slices.Insert(p.holes, i, s)
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
	p.differs = true
}

// give takes back a driver allocation.
func (p *placer) give(addr uint64, size int64) {
	switch p.layout {
	case LayoutDriver:
		if i := slices.IndexFunc(p.taken, func(s span) bool { return s.addr == addr }); i >= 0 {
			p.taken = slices.Delete(p.taken, i, i+1)
		}
		p.hole(span{addr, size})
	case LayoutReuse:
		p.freed = append(p.freed, span{addr, size})
	}
}

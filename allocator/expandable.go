package allocator

import "slices"

// expandableRange is the address space of one pool and stream, mapped page by
// page: a chain of blocks, of which the unmapped ones are listed by address.
type expandableRange struct {
	base   uint64
	size   int64
	mapped int64
	born   int32
}

// page is the unit in which ranges of a pool are mapped.
func (a *Allocator) page(set uint16) int64 {
	if set&1 == 0 {
		return smallSegment
	}
	return a.set.largeSegment()
}

// innermost moves from the best fit to the block that expandable segments
// prefer: one at the growing end counts with all the unmapped space behind it,
// so that a fitting inner block goes first. It stops at the first non-decrease.
func (a *Allocator) innermost(id int32) int32 {
	for {
		next := a.following(id)
		a.walked++
		if next == none || a.extent(next) >= a.extent(id) {
			return id
		}
		id = next
	}
}

// extent is a block's size with the unmapped space right behind it.
func (a *Allocator) extent(id int32) int64 {
	b := &a.blocks[id]
	if n := &a.blocks[b.next]; n.state == unmapped {
		return b.size + n.size
	}
	return b.size
}

// mapFor returns a block of at least size bytes of a range, in no set, mapping
// pages as needed; none when the device refuses. What was mapped before the
// refusal stays mapped.
func (a *Allocator) mapFor(set uint16, size int64) int32 {
	id := a.runFor(set, size)
	if a.blocks[id].state == unmapped {
		id = a.mapFront(id, min(a.blocks[id].size, size))
	}
	for id != none && a.blocks[id].size < size {
		next := a.blocks[id].next
		id = a.mapFront(next, min(size-a.blocks[id].size, a.blocks[next].size))
	}
	if id == none {
		return none
	}
	a.unfile(id)
	return id
}

// runFor finds the lowest run of free and unmapped blocks that spans size, or
// opens a range.
func (a *Allocator) runFor(set uint16, size int64) int32 {
	for _, id := range a.streams.unmapped[set] {
		if p := a.blocks[id].prev; a.blocks[p].state == free {
			id = p
		}
		var span int64
		for at := id; at != none && span < size; at = a.blocks[at].next {
			a.meter.spend(1)
			if s := a.blocks[at].state; s != free && s != unmapped {
				break
			}
			span += a.blocks[at].size
		}
		if span >= size {
			return id
		}
	}
	return a.openRange(set, size)
}

// openRange reserves the address space of 9/8 of the card.
func (a *Allocator) openRange(set uint16, size int64) int32 {
	length := max(upTo(a.total+a.total/8, a.page(set)), upTo(size, a.page(set)))
	a.born++
	r := expandableRange{base: a.place.take(length, upTo(size, a.page(set))), size: length, born: a.born}
	if a.sweep.tie != nil && len(a.streams.unmapped[set]) > 0 {
		a.sweep.tie() // two ranges of one pool and stream: addresses say which goes first
	}
	a.ranges = append(a.ranges, r)
	id := a.newBlock(block{addr: r.base, size: length, segment: int32(len(a.ranges) - 1), set: set, state: unmapped})
	a.listUnmapped(id)
	return id
}

// mapFront maps the first want bytes of an unmapped block in whole pages and
// returns the free block that they are part of; none when the device refuses.
func (a *Allocator) mapFront(id int32, want int64) int32 {
	set := a.blocks[id].set
	bytes := upTo(want, a.page(set))
	if !a.gate.admitDevice(a.stats.Reserved + bytes) {
		return none
	}
	a.unlistUnmapped(id)
	if bytes < a.blocks[id].size {
		a.listUnmapped(a.cut(id, bytes))
	}
	b := &a.blocks[id]
	r := &a.ranges[b.segment]
	if r.mapped > 0 || b.addr != r.base {
		a.place.skip(bytes)
	}
	r.mapped += bytes
	a.reserve(bytes)
	a.emit(SegmentMap, b.addr, bytes, set)
	return a.settle(id)
}

// unmap gives the whole pages of a free block back; a part before or behind
// them stays free.
func (a *Allocator) unmap(id int32) {
	b := a.blocks[id]
	r := &a.ranges[b.segment]
	page := a.page(b.set)
	at := int64(b.addr - r.base)
	from, to := upTo(at, page), (at+b.size)/page*page
	if from >= to {
		return
	}
	a.unfile(id)
	if at+b.size > to {
		a.file(a.cut(id, to-at))
	}
	if from > at {
		rest := a.cut(id, from-at)
		a.file(id)
		id = rest
	}
	r.mapped -= to - from
	a.unreserve(to - from)
	a.emit(SegmentUnmap, r.base+uint64(from), to-from, b.set)
	a.blocks[id].state = unmapped
	for _, n := range [2]int32{a.blocks[id].prev, a.blocks[id].next} {
		if a.blocks[n].state == unmapped {
			a.unlistUnmapped(n)
			a.absorb(id, n)
		}
	}
	if r.mapped == 0 {
		a.place.drop(r.base, r.size)
		a.dropBlock(id)
		return
	}
	a.listUnmapped(id)
}

func (a *Allocator) listUnmapped(id int32) {
	list := &a.streams.unmapped[a.blocks[id].set]
	*list = slices.Insert(*list, a.unmappedAt(id), id)
}

func (a *Allocator) unlistUnmapped(id int32) {
	list := &a.streams.unmapped[a.blocks[id].set]
	i := a.unmappedAt(id)
	*list = slices.Delete(*list, i, i+1)
}

// unmappedAt is where an unmapped block stands, or would stand, in its list.
func (a *Allocator) unmappedAt(id int32) int {
	addr := a.blocks[id].addr
	list := a.streams.unmapped[a.blocks[id].set]
	i := 0
	for i < len(list) && a.blocks[list[i]].addr < addr {
		i++
	}
	a.meter.scan(len(list))
	return i
}

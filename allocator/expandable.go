package allocator

import "slices"

// page is the unit in which an expandable range of this pool is mapped.
func (a *Allocator) page(pool poolKind) int64 {
	if pool == smallPool {
		return smallSegment
	}
	return a.set.largeSegment()
}

// mapFor returns a free block of at least size bytes of an expandable range,
// mapping pages as needed; none when a limit refuses.
func (a *Allocator) mapFor(pool poolKind, st int32, size int64) int32 {
	id := a.runFor(pool, st, size)
	if !a.blocks[id].has(mapped) {
		if id = a.mapBlock(id, min(a.blocks[id].size, size)); id == none {
			return none
		}
	}
	for a.blocks[id].size < size {
		next := a.blocks[id].next
		grown := a.mapBlock(next, min(size-a.blocks[id].size, a.blocks[next].size))
		if grown == none {
			return none
		}
		id = grown
	}
	b := &a.blocks[id]
	a.streams[st].free[pool].remove(b.size, b.addr)
	return id
}

// runFor finds the lowest run of free and unmapped blocks that spans size, or
// opens a new range.
func (a *Allocator) runFor(pool poolKind, st int32, size int64) int32 {
	for _, u := range a.streams[st].unmapped[pool] {
		c := u
		if p := a.blocks[u].prev; p != none && a.blocks[p].free() {
			c = p
		}
		var span int64
		for id := c; id != none && span < size; id = a.blocks[id].next {
			if b := &a.blocks[id]; b.has(mapped) && !b.free() {
				break
			}
			span += a.blocks[id].size
		}
		if span >= size {
			return c
		}
	}
	return a.newRange(pool, st, size)
}

// newRange opens an address range of 9/8 of the card for a pool and stream.
func (a *Allocator) newRange(pool poolKind, st int32, size int64) int32 {
	page := a.page(pool)
	length := (a.total + a.total/8 + page - 1) / page * page
	length = max(length, (size+page-1)/page*page)
	addr := a.place.take(length, (min(length, size)+page-1)/page*page)
	// take counted the recorded map that opened this range; mapBlock counts
	// the others.
	seg := a.newSegment(segment{base: addr, size: length, pool: pool, exp: true})
	id := a.newBlock(block{addr: addr, size: length, prev: none, next: none, stream: st, seg: seg, pool: pool, flags: expandable})
	a.segments[seg].head = id
	a.addUnmapped(id)
	return id
}

func (a *Allocator) addUnmapped(id int32) {
	b := &a.blocks[id]
	list := &a.streams[b.stream].unmapped[b.pool]
	i, _ := slices.BinarySearchFunc(*list, b.addr, a.byAddr)
	*list = slices.Insert(*list, i, id)
}

func (a *Allocator) dropUnmapped(id int32) {
	b := &a.blocks[id]
	list := &a.streams[b.stream].unmapped[b.pool]
	i, _ := slices.BinarySearchFunc(*list, b.addr, a.byAddr)
	*list = slices.Delete(*list, i, i+1)
}

func (a *Allocator) byAddr(id int32, addr uint64) int {
	switch at := a.blocks[id].addr; {
	case at < addr:
		return -1
	case at > addr:
		return 1
	}
	return 0
}

// mapBlock maps the first want bytes of an unmapped block in whole pages,
// merges them with free neighbours and files the result, whose id it returns.
func (a *Allocator) mapBlock(id int32, want int64) int32 {
	pool := a.blocks[id].pool
	page := a.page(pool)
	bytes := (want + page - 1) / page * page
	if a.dev != unlimited && !a.admit(a.stats.Reserved+bytes, a.dev) {
		return none
	}
	a.dropUnmapped(id)
	if bytes < a.blocks[id].size {
		rest := a.splitFront(id, bytes)
		a.addUnmapped(rest)
	}
	b := &a.blocks[id]
	b.flags |= mapped
	seg := &a.segments[b.seg]
	if seg.bytes > 0 || b.addr != seg.base {
		a.place.skip(bytes)
	}
	seg.bytes += bytes
	a.reserve(bytes)
	a.stats.DeviceAllocs++
	a.emit(SegmentMap, b.addr, bytes, b.stream)
	a.settle(id)
	return id
}

// unmap gives the whole pages of a free block back; leftover parts stay free
// and are appended to kept. The block is being taken out of its set.
func (a *Allocator) unmap(id int32, kept []entry) []entry {
	b := a.blocks[id]
	page, base := uint64(a.page(b.pool)), a.segments[b.seg].base
	from := base + (b.addr-base+page-1)/page*page
	to := base + (b.addr+uint64(b.size)-base)/page*page
	if from >= to {
		return append(kept, entry{b.size, b.addr, id})
	}
	if end := b.addr + uint64(b.size); end > to {
		rest := a.splitFront(id, int64(to-b.addr))
		r := &a.blocks[rest]
		kept = append(kept, entry{r.size, r.addr, rest})
	}
	if from > b.addr {
		mid := a.splitFront(id, int64(from-b.addr))
		front := &a.blocks[id]
		kept = append(kept, entry{front.size, front.addr, id})
		id = mid
	}
	bytes := int64(to - from)
	a.blocks[id].flags &^= mapped
	a.stats.Reserved -= bytes
	a.stats.DeviceFrees++
	seg := &a.segments[b.seg]
	seg.bytes -= bytes
	a.emit(SegmentUnmap, from, bytes, b.stream)
	for _, n := range []int32{a.blocks[id].prev, a.blocks[id].next} {
		if n != none && !a.blocks[n].has(mapped) {
			a.dropUnmapped(n)
			a.absorb(id, n)
		}
	}
	if seg.bytes == 0 {
		a.closeRange(id)
		return kept
	}
	a.addUnmapped(id)
	return kept
}

// closeRange gives up a range of which nothing is mapped any more.
func (a *Allocator) closeRange(id int32) {
	b := a.blocks[id]
	a.segments[b.seg].head = none
	a.place.give(b.addr, b.size)
	a.vacantSegs = append(a.vacantSegs, b.seg)
	a.dropBlock(id)
}

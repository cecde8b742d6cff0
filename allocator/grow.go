package allocator

// admit compares v, what would be held after a step, with a limit, and notes
// the comparison for the exact sweep.
func (a *Allocator) admit(v, limit int64) bool {
	if v <= limit {
		a.highPass = max(a.highPass, v)
		return true
	}
	return false
}

// grow asks the driver for a block that serves size, or returns none.
func (a *Allocator) grow(pool poolKind, st int32, size int64) int32 {
	want := a.set.ask(size)
	if (a.cap != unlimited || a.dev == unlimited) && !a.admit(a.stats.Reserved+want, a.cap) {
		return none
	}
	if a.set.Expandable {
		return a.mapFor(pool, st, size)
	}
	if a.dev != unlimited && !a.admit(a.stats.Reserved+want, a.dev) {
		return none
	}
	addr := a.place.take(want, want)
	seg := a.newSegment(segment{base: addr, size: want, pool: pool})
	id := a.newBlock(block{addr: addr, size: want, prev: none, next: none, stream: st, seg: seg, pool: pool, flags: mapped, gcBase: a.calls[pool]})
	a.segments[seg].head = id
	a.reserve(want)
	a.stats.DeviceAllocs++
	a.emit(SegmentAlloc, addr, want, st)
	return id
}

func (a *Allocator) reserve(n int64) {
	a.stats.Reserved += n
	a.stats.ReservedPeak = max(a.stats.ReservedPeak, a.stats.Reserved)
}

// release gives a whole driver allocation back; its block is in no set.
func (a *Allocator) release(id int32) {
	b := a.blocks[id]
	a.segments[b.seg].head = none
	a.vacantSegs = append(a.vacantSegs, b.seg)
	a.place.give(b.addr, b.size)
	a.stats.Reserved -= b.size
	a.stats.DeviceFrees++
	a.emit(SegmentFree, b.addr, b.size, b.stream)
	a.dropBlock(id)
}

// releaseOversize frees cached blocks of at least max_split_size of one stream
// until a request of size may fit. What it frees stays freed even if it returns
// false.
func (a *Allocator) releaseOversize(pool poolKind, st int32, size int64) bool {
	key := max(size, a.set.MaxSplit)
	set := &a.streams[st].free[pool]
	at := set.at(key, 0)
	for i := at; i < len(set.entries); i++ {
		if id := set.entries[i].id; !a.blocks[id].has(expandable) {
			if a.blocks[id].split() {
				return false // an oversize block is never split; kept for safety
			}
			set.removeAt(i)
			a.release(id)
			return true
		}
	}
	var released int64
	for i := at - 1; i >= 0 && released < key && set.entries[i].size >= a.set.MaxSplit; i-- {
		id := set.entries[i].id
		if a.blocks[id].has(expandable) || a.blocks[id].split() {
			continue
		}
		released += set.entries[i].size
		set.removeAt(i)
		a.release(id)
	}
	return released >= key
}

// EmptyCache gives every whole unused segment back to the driver.
func (a *Allocator) EmptyCache() { a.flush() }

// flush waits for deferred frees, then releases every unsplit free block and
// unmaps every whole free page, of all streams, large pool first.
func (a *Allocator) flush() {
	a.stats.SyncAllStreams++
	a.finishAll()
	for _, pool := range []poolKind{largePool, smallPool} {
		for _, st := range a.order {
			a.flushSet(pool, st)
		}
	}
}

func (a *Allocator) flushSet(pool poolKind, st int32) {
	set := &a.streams[st].free[pool]
	kept := set.entries[:0:0]
	for _, e := range set.entries {
		switch b := &a.blocks[e.id]; {
		case b.has(expandable):
			kept = a.unmap(e.id, kept)
		case b.split():
			kept = append(kept, e)
		default:
			a.release(e.id)
		}
	}
	set.entries = set.entries[:0]
	for _, e := range kept {
		set.insert(e.size, e.addr, e.id)
	}
}

// gcLimit is the share of a cap above which garbage collection works.
func (s *Settings) gcLimit(quota int64) int64 { return int64(s.GCThreshold * float64(quota)) }

// withinShare compares what is held with the share of the cap that garbage
// collection aims at, and notes the comparison for the exact sweep.
func (a *Allocator) withinShare(held int64) bool {
	if held > a.set.gcLimit(a.cap) {
		return false
	}
	a.gcPass = max(a.gcPass, held)
	return true
}

// collect is garbage collection: cached unsplit blocks of the large pool at or
// above the average age go until the share of the cap is met.
func (a *Allocator) collect() {
	if a.withinShare(a.stats.Reserved) {
		return
	}
	held := a.stats.Reserved
	var got, ages, count int64
	for _, st := range a.order {
		for _, e := range a.streams[st].free[largePool].entries {
			if b := &a.blocks[e.id]; !b.split() {
				ages += a.calls[largePool] - b.gcBase
				count++
			}
		}
	}
	for freed := true; !a.withinShare(held-got) && freed && count > 0; {
		freed = false
		threshold := float64(ages) / float64(count)
		for _, st := range a.order {
			set := &a.streams[st].free[largePool]
			for i := 0; i < len(set.entries); {
				b := &a.blocks[set.entries[i].id]
				age := a.calls[largePool] - b.gcBase
				if b.split() || b.has(expandable) || float64(age) < threshold {
					i++
					continue
				}
				got += b.size
				ages -= age
				count--
				freed = true
				id := set.entries[i].id
				set.removeAt(i)
				a.release(id)
			}
		}
	}
}

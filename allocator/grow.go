package allocator

// grow asks the driver for a block that serves size; none when a limit refuses.
func (a *Allocator) grow(set uint16, size int64) int32 {
	want := a.set.ask(size)
	if !a.gate.admitCap(a.stats.Reserved + want) {
		return none
	}
	if a.set.Expandable {
		return a.mapFor(set, size)
	}
	if !a.gate.admitDevice(a.stats.Reserved + want) {
		return none
	}
	a.born++
	addr := a.place.take(want, want)
	a.reserve(want)
	a.emit(SegmentAlloc, addr, want, set)
	return a.newBlock(block{addr: addr, size: want, segment: -a.born, set: set})
}

// reserve counts n bytes that the driver gave.
func (a *Allocator) reserve(n int64) {
	if a.sweep.got != nil {
		a.sweep.got(n)
	}
	a.stats.Reserved += n
	a.stats.ReservedPeak = max(a.stats.ReservedPeak, a.stats.Reserved)
	a.stats.DeviceAllocs++
}

func (a *Allocator) unreserve(n int64) {
	a.stats.Reserved -= n
	a.stats.DeviceFrees++
}

// release gives a whole driver segment back.
func (a *Allocator) release(id int32) {
	a.unfile(id)
	b := &a.blocks[id]
	a.unreserve(b.size)
	a.place.give(b.addr, b.size)
	a.emit(SegmentFree, b.addr, b.size, b.set)
	if a.sweep.gone != nil {
		a.sweep.gone(id)
	}
	a.dropBlock(id)
}

// whole is whether a free block is a driver segment that can be released.
func (b *block) whole() bool { return b.segment < 0 && !b.split() }

// releaseOversize frees cached blocks of at least max_split_size, of one pool
// and stream, until a request of size may fit: one that is large enough, or
// several from the largest down. What it frees stays freed if it returns false.
func (a *Allocator) releaseOversize(set uint16, size int64) bool {
	key := max(size, a.maxSplit)
	list := a.all(&a.sets[set], a.scratch[:0])
	a.scratch = list
	below := 0
	for below < len(list) && a.blocks[list[below]].size < key {
		below++
	}
	for _, id := range list[below:] {
		if a.blocks[id].whole() {
			a.release(id)
			return true
		}
	}
	var released int64
	for i := below - 1; i >= 0 && released < key && a.blocks[list[i]].size >= a.maxSplit; i-- {
		if b := &a.blocks[list[i]]; b.whole() {
			released += b.size
			a.release(list[i])
		}
	}
	return released >= key
}

// flush waits for deferred frees, then releases every unsplit free segment and
// unmaps every whole free page, of all streams, the large pools first.
func (a *Allocator) flush() {
	a.stats.SyncAllStreams++
	a.finishAll()
	list := a.scratch[:0]
	for pool := 1; pool >= 0; pool-- {
		for _, st := range a.streams.order {
			list = a.all(&a.sets[2*int(st)+pool], list)
		}
	}
	a.scratch = list
	for _, id := range list {
		switch b := &a.blocks[id]; {
		case b.segment >= 0:
			a.unmap(id)
		case !b.split():
			a.release(id)
		}
	}
}

// collect is garbage collection: of the unsplit cached blocks of the large
// pools, those at or above the average age go until reserved bytes are down to
// the threshold's share of the cap. A pass that has begun is finished.
func (a *Allocator) collect() {
	if a.gate.resting(a.stats.Reserved) {
		return
	}
	list := a.scratch[:0]
	for _, st := range a.streams.order {
		list = a.all(&a.sets[2*st+1], list)
	}
	a.scratch = list
	var ages, count int64
	for _, id := range list {
		if b := &a.blocks[id]; !b.split() {
			ages += int64(a.calls[1] - b.gcBase)
			count++
		}
	}
	for freed := true; freed && count > 0 && !a.gate.resting(a.stats.Reserved); {
		freed = false
		a.meter.spend(len(list))
		average := float64(ages) / float64(count)
		for i, id := range list {
			b := &a.blocks[id]
			if id == none || !b.whole() || float64(a.calls[1]-b.gcBase) < average {
				continue
			}
			ages -= int64(a.calls[1] - b.gcBase)
			count--
			freed = true
			a.release(id)
			list[i] = none
		}
	}
}

package allocator

import (
	"math"
	"slices"
)

// unlimited stands for a limit that is not set.
const unlimited = math.MaxInt64

// Stats are the counters of the allocator, named as in torch's memory_stats.
type Stats struct {
	Reserved, ReservedPeak   int64
	Allocated, AllocatedPeak int64
	Active, ActivePeak       int64
	Requested                int64
	Retries, OOMs            int
	DeviceAllocs             int
	DeviceFrees              int
	SyncAllStreams           int
}

// streamState is what the allocator keeps for one CUDA stream.
type streamState struct {
	handle   int64
	free     [2]freeSet
	unmapped [2][]int32 // of expandable ranges, by address
	events   []int32    // blocks whose free waits for this stream, oldest first
	finished int        // how many of events the stream has passed
}

// Allocator is the model, driven step by step. It is not safe for concurrent
// use. Blocks are named by the ids that Malloc returns.
type Allocator struct {
	set   Settings
	cap   int64
	dev   int64
	total int64 // the card's total, for the size of expandable ranges

	blocks     []block
	vacant     []int32
	segments   []segment
	vacantSegs []int32
	born       int64
	streams    []streamState
	order      []int32 // stream indices by handle
	uses       map[int32][]int32
	waits      map[int32]int
	calls      [2]int64
	place      placer
	stats      Stats
	observe    func(Event)

	// highPass is the largest compared value that the limit let through, gcPass
	// the largest that the share of the cap did (see Sweep).
	highPass int64
	gcPass   int64
	tried    int64
}

// New returns an allocator that holds nothing. deviceTotal is the card's total
// in bytes; 0 takes that of the recordings (it only sizes address space).
func New(set Settings, limit Limit, deviceTotal int64) *Allocator {
	a := &Allocator{set: set, uses: map[int32][]int32{}, waits: map[int32]int{}, place: newPlacer(LayoutAscending, nil)}
	a.total = deviceTotal
	if a.total == 0 {
		a.total = 150109880320
	}
	a.setLimit(limit)
	return a
}

func (a *Allocator) setLimit(limit Limit) {
	a.cap, a.dev = unlimited, unlimited
	if limit.Cap > 0 || a.set.ZeroFraction {
		a.cap = limit.Cap
	}
	if limit.Device > 0 {
		a.dev = limit.Device
	}
}

// Stats returns the counters.
func (a *Allocator) Stats() Stats { return a.stats }

// stream returns the index of a stream, added on first use.
func (a *Allocator) stream(handle int64) int32 {
	for i := range a.streams {
		if a.streams[i].handle == handle {
			return int32(i)
		}
	}
	a.streams = append(a.streams, streamState{handle: handle})
	a.order = append(a.order, int32(len(a.streams)-1))
	slices.SortFunc(a.order, func(x, y int32) int {
		if uint64(a.streams[x].handle) < uint64(a.streams[y].handle) {
			return -1
		}
		return 1
	})
	return int32(len(a.streams) - 1)
}

// round is the size of the block that serves a request of n bytes.
func (s *Settings) round(n int64) int64 {
	if n < minBlock {
		return minBlock
	}
	if d := s.divisionsFor(n); d > 1 && n > minBlock*d {
		floor := int64(1) << (63 - leadingZeros(n))
		if floor == n {
			return n
		}
		step := floor / d
		if step == 0 {
			return 2 * floor
		}
		return (n + step - 1) / step * step
	}
	return (n + minBlock - 1) / minBlock * minBlock
}

// ask is what the driver is asked for when no cached block of this size fits.
func (s *Settings) ask(size int64) int64 {
	switch {
	case size <= smallSize:
		return smallSegment
	case size < minLarge:
		return s.largeSegment()
	default:
		return (size + roundLarge - 1) / roundLarge * roundLarge
	}
}

// Malloc serves a request of n > 0 bytes on a stream and returns the block's
// id. False is an out-of-memory: refused after flush and retry.
func (a *Allocator) Malloc(n, streamHandle int64) (int32, bool) {
	return a.malloc(n, a.set.round(n), a.stream(streamHandle))
}

func (a *Allocator) malloc(n, size int64, st int32) (int32, bool) {
	if len(a.waits) > 0 {
		a.reap()
	}
	pool := largePool
	if size <= smallSize {
		pool = smallPool
	}
	id := a.take(pool, st, size)
	if id == none {
		id = a.acquire(pool, st, size)
		if id == none {
			a.stats.OOMs++
			a.emit(OOM, 0, size, st)
			return none, false
		}
	}
	b := &a.blocks[id]
	if a.splitOK(b, size) {
		rest := a.splitFront(id, size)
		b = &a.blocks[id] // the arena may have moved
		r := &a.blocks[rest]
		r.gcBase = a.calls[pool]
		a.streams[st].free[pool].insert(r.size, r.addr, rest)
	}
	b.flags |= inUse
	b.requested = n
	a.stats.Allocated += b.size
	a.stats.Active += b.size
	a.stats.Requested += n
	a.stats.AllocatedPeak = max(a.stats.AllocatedPeak, a.stats.Allocated)
	a.stats.ActivePeak = max(a.stats.ActivePeak, a.stats.Active)
	if a.observe != nil {
		a.emit(Alloc, b.addr, n, st)
	}
	return id, true
}

// acquire gets a block from the driver: collect, grow, release oversize blocks
// and grow, flush and grow.
func (a *Allocator) acquire(pool poolKind, st int32, size int64) int32 {
	if a.cap != unlimited && a.set.GCThreshold > 0 {
		a.collect()
	}
	want := a.set.ask(size)
	a.tried = want
	id := a.grow(pool, st, size)
	if id == none && a.set.MaxSplit > 0 && a.releaseOversize(pool, st, size) {
		id = a.grow(pool, st, size)
	}
	if id == none {
		a.flush()
		a.stats.Retries++
		id = a.grow(pool, st, size)
	}
	return id
}

// splitOK is whether a block that serves size is split in two.
func (a *Allocator) splitOK(b *block, size int64) bool {
	rest := b.size - size
	if b.pool == smallPool || a.set.Expandable {
		return rest >= minBlock
	}
	return (a.set.MaxSplit == 0 || size < a.set.MaxSplit) && rest > smallSize
}

// take finds the best cached block of the stream and takes it out of the set.
func (a *Allocator) take(pool poolKind, st int32, size int64) int32 {
	if a.set.GCThreshold > 0 && a.cap != unlimited {
		a.calls[pool]++
	}
	set := &a.streams[st].free[pool]
	i := set.at(size, 0)
	if i == len(set.entries) {
		return none
	}
	if a.blocks[set.entries[i].id].has(expandable) {
		if i = a.expandableFit(set, i); i == none2 {
			return none
		}
	}
	e := set.entries[i]
	if ms := a.set.MaxSplit; ms > 0 {
		if size < ms && e.size >= ms {
			return none
		}
		if size >= ms && e.size >= size+a.set.maxNonSplit() {
			return none
		}
	}
	set.removeAt(i)
	return e.id
}

// none2 is the absence of a position.
const none2 = -1

// expandableFit moves from position i to the block that expandable segments
// prefer: one at the growing end counts with all the unmapped space behind it,
// so that an inner block goes first. With the option off, expandable blocks
// are passed over.
func (a *Allocator) expandableFit(set *freeSet, i int) int {
	if !a.set.Expandable {
		for ; i < len(set.entries); i++ {
			if !a.blocks[set.entries[i].id].has(expandable) {
				return i
			}
		}
		return none2
	}
	for i+1 < len(set.entries) && a.extended(set.entries[i+1].id) < a.extended(set.entries[i].id) {
		i++
	}
	return i
}

// extended is a block's size with the unmapped space right behind it.
func (a *Allocator) extended(id int32) int64 {
	b := &a.blocks[id]
	if b.next != none && !a.blocks[b.next].has(mapped) {
		return b.size + a.blocks[b.next].size
	}
	return b.size
}

// Free gives a block back. If RecordStream named other streams for it, it stays
// out of reach until Complete has been called for each.
func (a *Allocator) Free(id int32) {
	b := &a.blocks[id]
	a.stats.Allocated -= b.size
	a.emit(FreeRequested, b.addr, b.requested, b.stream)
	if streams := a.uses[id]; len(streams) > 0 {
		delete(a.uses, id)
		a.hold(id, streams)
		return
	}
	a.complete(id)
}

// complete makes a block free for reuse and merges it with its neighbours.
func (a *Allocator) complete(id int32) {
	b := &a.blocks[id]
	if a.observe != nil {
		a.emit(FreeCompleted, b.addr, b.requested, b.stream)
	}
	b.flags &^= inUse | pinned
	a.stats.Active -= b.size
	a.stats.Requested -= b.requested
	a.settle(id)
}

// settle merges a free, mapped block with free neighbours and files it.
func (a *Allocator) settle(id int32) {
	b := &a.blocks[id]
	set := &a.streams[b.stream].free[b.pool]
	if p := b.prev; p != none {
		if n := &a.blocks[p]; n.free() {
			set.remove(n.size, n.addr)
			a.absorb(id, p)
		}
	}
	if p := b.next; p != none {
		if n := &a.blocks[p]; n.free() {
			set.remove(n.size, n.addr)
			a.absorb(id, p)
		}
	}
	b.gcBase = a.calls[b.pool]
	set.insert(b.size, b.addr, id)
}

func (a *Allocator) emit(action Action, addr uint64, size int64, st int32) {
	if a.observe != nil {
		a.observe(Event{Action: action, Addr: addr, Size: size, Stream: a.streams[st].handle})
	}
}

package allocator

import "math"

// unlimited stands for a limit that is not set.
const unlimited = math.MaxInt64

// Stats are the allocator's counters, in bytes where they are sizes, named as
// in torch's memory_stats.
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

// rules are the settings in the form in which the hot path asks for them.
type rules struct {
	set      Settings
	maxSplit int64    // unlimited without one
	minRest  [2]int64 // by pool: the least remainder that is split off
	total    int64    // the card's, for the size of expandable ranges
	divided  bool     // some division rounds otherwise than to 512
	plain    bool     // neither max_split_size nor expandable ranges
	ages     bool     // garbage collection is in force
}

// Allocator is the model, driven step by step. It is not safe for concurrent
// use. Blocks are named by the ids that Malloc returns; 0 is none.
type Allocator struct {
	rules
	arena
	gate    gate
	ranges  []expandableRange
	streams streams
	place   placer
	stats   Stats
	tried   int64       // what was asked of the driver at the last out-of-memory
	observe func(Event) // called with each simulated event; may be nil
	meter   *meter      // may be nil
	sweep   sweepHooks
}

// arena holds the blocks, and the sets of those that are free.
type arena struct {
	blocks  []block
	vacancy int32     // head of the list of vacant slots
	sets    []freeSet // of stream s: small pool 2s, large pool 2s+1
	calls   [2]int32  // by pool, under garbage collection
	born    int32     // driver segments and ranges so far
	walked  int       // free blocks gone over, which the meter has not counted yet
	scratch []int32   // blocks that a flush or a collection goes over
}

// sweepHooks are called on the way; each may be nil.
type sweepHooks struct {
	want func()      // before the driver is asked
	got  func(int64) // the size of what it gave
	tie  func()      // when addresses decided between unlike segments

	// An allocator that is one pool of a program (see pool) asks no driver: what
	// is granted serves the next request, and none ends the replay there.
	asks  bool
	grant int32
	gone  func(id int32) // before a whole segment leaves
	gives bool           // whole segments leave as soon as they are free
	loose bool           // a whole segment was free, since this was last set to false
}

// New returns an allocator that holds nothing. deviceTotal is the card's total
// in bytes, which sizes the address space of expandable ranges; 0 is a card
// whose ranges never fill up.
func New(set Settings, limit Limit, deviceTotal int64) *Allocator {
	a := &Allocator{arena: arena{blocks: make([]block, 1, 256)}, place: newPlacer(LayoutAscending, nil)}
	a.rules = rules{
		set: set, maxSplit: unlimited, total: deviceTotal, plain: set.MaxSplit == 0 && !set.Expandable,
		minRest: [2]int64{minBlock, smallSize + minBlock}, divided: set.Divisions != [16]int64{},
	}
	if a.total == 0 {
		a.total = 1 << 42
	}
	if set.MaxSplit > 0 {
		a.maxSplit = set.MaxSplit
	}
	if set.Expandable {
		a.minRest[1] = minBlock
	}
	a.setLimit(limit)
	return a
}

// Stats returns the counters.
func (a *Allocator) Stats() Stats { return a.stats }

// Malloc serves a request of n bytes on a stream and returns the block's id.
// False is an out-of-memory: refused after flush and retry (or more than
// 2^60 bytes, which torch refuses before it looks). A request of no bytes gets
// no block and leaves no mark.
func (a *Allocator) Malloc(n, stream int64) (int32, bool) {
	if n <= 0 {
		return none, n == 0
	}
	if n >= 1<<60 {
		return none, false
	}
	a.reap()
	id := a.malloc(n, a.stream(stream))
	return id, id != none
}

// malloc serves n bytes on a stream, by its index.
func (a *Allocator) malloc(n int64, stream int32) int32 {
	size := (n + minBlock - 1) &^ (minBlock - 1)
	if a.divided {
		size = a.set.round(n)
	}
	set := uint16(2 * stream)
	if size > smallSize {
		set++
	}
	id := a.find(set, size)
	switch {
	case id == none:
		if id = a.acquire(set, size); id == none {
			a.stats.OOMs++
			a.tried = a.set.ask(size)
			a.emit(OOM, 0, size, set)
			return none
		}
		if a.splits(id, size) {
			rest := a.cut(id, size)
			a.blocks[rest].state = free
			a.file(rest)
		}
	case a.splits(id, size):
		id = a.carve(id, size)
	default:
		a.unfile(id)
	}
	b := &a.blocks[id]
	b.state = used
	b.requested = n
	s := &a.stats
	s.Allocated += b.size
	s.Active += b.size
	s.Requested += n
	s.AllocatedPeak = max(s.AllocatedPeak, s.Allocated)
	s.ActivePeak = max(s.ActivePeak, s.Active)
	a.emit(Alloc, b.addr, n, set)
	return id
}

// splits is whether a block that serves size bytes gives the rest back.
func (a *Allocator) splits(id int32, size int64) bool {
	b := &a.blocks[id]
	return b.size-size >= a.minRest[b.set&1] && (size < a.maxSplit || a.set.Expandable || b.set&1 == 0)
}

// find is the best cached block, in its set; none where none will do.
func (a *Allocator) find(set uint16, size int64) int32 {
	if a.ages {
		a.calls[set&1]++
	}
	id := a.atLeast(&a.sets[set], size)
	if id == none {
		return none
	}
	if a.sweep.tie != nil && a.blocks[id].after != none {
		a.noteTie(id)
	}
	if !a.plain {
		if a.set.Expandable {
			id = a.innermost(id)
		}
		have := a.blocks[id].size
		if size < a.maxSplit && have >= a.maxSplit || size >= a.maxSplit && have >= size+a.set.maxNonSplit() {
			return none
		}
	}
	return id
}

// acquire gets a block, in no set, from the driver: collect, grow, release oversize blocks
// and grow, flush and grow.
func (a *Allocator) acquire(set uint16, size int64) int32 {
	if a.sweep.asks {
		id := a.sweep.grant
		if a.sweep.grant = none; id != none {
			a.stats.DeviceAllocs++ // now, not when it was granted: a turn that takes it changes something
		}
		return id
	}
	if a.sweep.want != nil {
		a.sweep.want()
	}
	if a.ages {
		a.collect()
	}
	id := a.grow(set, size)
	if id == none && a.maxSplit != unlimited && a.releaseOversize(set, size) {
		id = a.grow(set, size)
	}
	if id == none {
		a.flush()
		a.stats.Retries++
		id = a.grow(set, size)
	}
	return id
}

// Free gives a block back. If RecordStream named other streams for it, it stays
// out of reach until they have passed (Complete).
func (a *Allocator) Free(id int32) {
	if uses := a.streams.uses[id]; len(uses) > 0 {
		delete(a.streams.uses, id)
		a.suspend(id)
		a.await(id, uses)
		return
	}
	a.free(id)
}

// free gives back a block that no other stream uses.
func (a *Allocator) free(id int32) {
	b := &a.blocks[id]
	a.stats.Allocated -= b.size
	a.emit(FreeRequested, b.addr, b.requested, b.set)
	a.complete(id)
}

// suspend takes a block from the program without making it free.
func (a *Allocator) suspend(id int32) {
	b := &a.blocks[id]
	b.state = pending
	a.stats.Allocated -= b.size
	a.emit(FreeRequested, b.addr, b.requested, b.set)
}

// complete makes a block free.
func (a *Allocator) complete(id int32) {
	b := &a.blocks[id]
	a.emit(FreeCompleted, b.addr, b.requested, b.set)
	a.stats.Active -= b.size
	a.stats.Requested -= b.requested
	a.settle(id)
}

// settle makes a mapped block, in no set, free: it becomes one with its free
// neighbours. Where there are any the block is theirs then, so that what is in
// its set already need not be put there again. Returned is the block that it is
// part of; a whole segment may have left (see sweepHooks).
func (a *Allocator) settle(id int32) int32 {
	b := &a.blocks[id]
	p, n := b.prev, b.next
	switch before, behind := &a.blocks[p], &a.blocks[n]; {
	case before.state == free:
		size := before.size + b.size
		if behind.state == free {
			a.unfile(n)
			size += behind.size
			a.dropBlock(n)
			n = behind.next
		}
		before.next = n
		a.blocks[n].prev = p
		a.dropBlock(id)
		a.refile(p, size)
		id = p
	case behind.state == free:
		behind.addr = b.addr
		behind.prev = p
		before.next = n
		a.dropBlock(id)
		a.refile(n, behind.size+b.size)
		id = n
	default:
		b.state = free
		a.file(id)
	}
	if a.sweep.asks && !a.blocks[id].split() {
		if a.sweep.loose = true; a.sweep.gives {
			a.unfile(id)
			a.part(id)
		}
	}
	return id
}

// part takes a whole segment, in no set, out of the pool that this is.
func (a *Allocator) part(id int32) {
	a.stats.DeviceFrees++
	a.sweep.gone(id)
	a.dropBlock(id)
}

// hold marks a block that the program never frees. Neighbours of the kind become
// one; a segment of nothing else leaves the pool.
func (a *Allocator) hold(id int32) {
	b := &a.blocks[id]
	b.state = held
	if a.blocks[b.prev].state == held {
		a.absorb(id, b.prev)
	}
	if a.blocks[b.next].state == held {
		a.absorb(id, b.next)
	}
	if !b.split() {
		a.part(id)
	}
}

// EmptyCache gives every whole unused segment back to the driver, as
// torch.cuda.empty_cache does.
func (a *Allocator) EmptyCache() { a.flush() }

func (a *Allocator) emit(action Action, addr uint64, size int64, set uint16) {
	if a.observe != nil {
		a.observe(Event{Action: action, Addr: addr, Size: size, Stream: a.streams.handles[set/2]})
	}
}

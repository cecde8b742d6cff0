package allocator

// blockState is what a block of the arena stands for.
type blockState uint8

const (
	vacant   blockState = iota // a slot of the arena that is not in use
	free                       // mapped, in a free set
	used                       // handed to the program
	pending                    // freed by the program, awaited by other streams
	unmapped                   // address space of an expandable range
	held                       // handed to the program for good (see pool)
)

// none is the absence of a block. Slot 0 of the arena is never handed out and
// stays vacant, so that links to it need no test before they are followed.
const none = int32(0)

// block is a piece of a driver segment or of an expandable range. prev and next
// are its neighbours by address within that segment, before and after those in
// its free set.
type block struct {
	addr      uint64
	size      int64
	requested int64
	prev      int32
	next      int32
	before    int32
	after     int32
	gcBase    int32 // the pool's calls when it was filed
	segment   int32 // >= 0: index of its range; < 0: minus its segment's number
	set       uint16
	state     blockState
}

// split is whether the block shares its segment with another.
func (b *block) split() bool { return b.prev != none || b.next != none }

// vacantSlot takes a slot of the arena, whose content is stale. So are pointers
// into the arena after it.
func (a *Allocator) vacantSlot() int32 {
	id := a.vacancy
	if id == none {
		a.blocks = append(a.blocks, block{})
		return int32(len(a.blocks) - 1)
	}
	a.vacancy = a.blocks[id].after
	return id
}

// newBlock puts a block into the arena. Pointers into the arena are stale after.
func (a *Allocator) newBlock(b block) int32 {
	id := a.vacantSlot()
	a.blocks[id] = b
	return id
}

// dropBlock gives a slot back.
func (a *Allocator) dropBlock(id int32) {
	b := &a.blocks[id]
	b.state = vacant
	b.after = a.vacancy
	a.vacancy = id
}

// cut takes size bytes off the front of block id, which keeps them, and returns
// the rest as a block of its own behind it, in the same state and in no set.
func (a *Allocator) cut(id int32, size int64) int32 {
	at := a.vacantSlot()
	b, rest := &a.blocks[id], &a.blocks[at]
	// Field by field: a copy of the whole waits for the stores that made b.
	rest.addr, rest.size, rest.requested = b.addr+uint64(size), b.size-size, b.requested
	rest.prev, rest.next = id, b.next
	rest.gcBase, rest.segment, rest.set, rest.state = b.gcBase, b.segment, b.set, b.state
	a.blocks[b.next].prev = at
	b.next, b.size = at, size
	return at
}

// carve takes size bytes off the front of a block that is in its set, where it
// stays with the rest, and returns them as a block of their own.
func (a *Allocator) carve(id int32, size int64) int32 {
	at := a.vacantSlot()
	b, front := &a.blocks[id], &a.blocks[at]
	front.addr, front.size = b.addr, size
	front.prev, front.next = b.prev, id
	front.segment, front.set = b.segment, b.set
	a.blocks[b.prev].next = at
	b.prev = at
	b.addr += uint64(size)
	a.refile(id, b.size-size)
	return at
}

// absorb merges the neighbour src, which is in no set any more, into dst.
func (a *Allocator) absorb(dst, src int32) {
	d, s := &a.blocks[dst], &a.blocks[src]
	if s.addr > d.addr {
		d.next = s.next
		a.blocks[s.next].prev = dst
	} else {
		d.addr = s.addr
		d.prev = s.prev
		a.blocks[s.prev].next = dst
	}
	d.size += s.size
	a.dropBlock(src)
}

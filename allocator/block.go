package allocator

// none is the absence of a block, segment or stream.
const none = int32(-1)

// poolKind tells the two pools apart; small comes first in arrays.
type poolKind uint8

const (
	smallPool poolKind = iota
	largePool
)

// block flags.
const (
	inUse      uint8 = 1 << iota // handed to the program
	mapped                       // backed by memory; always set outside expandable ranges
	expandable                   // part of an expandable range
	pinned                       // freed by the program, kept by events of other streams
)

// block is a piece of a driver segment. prev and next are its neighbours by
// address within the same segment; none at the ends.
type block struct {
	addr      uint64
	size      int64
	requested int64
	gcBase    int64
	prev      int32
	next      int32
	stream    int32 // index into Allocator.streams
	seg       int32 // index into Allocator.segments
	pool      poolKind
	flags     uint8
}

func (b *block) has(flag uint8) bool { return b.flags&flag != 0 }

// split is whether the block shares its segment with another.
func (b *block) split() bool { return b.prev != none || b.next != none }

// free is whether the block can be handed out or merged.
func (b *block) free() bool { return b.flags&(inUse|pinned|mapped) == mapped }

// segment is one driver allocation, or one expandable range.
type segment struct {
	head  int32 // first block by address; none when released
	base  uint64
	size  int64 // of a range: its address space; of a driver allocation: its bytes
	pool  poolKind
	exp   bool
	bytes int64 // mapped bytes of a range
	born  int64 // running number of creation
}

// newBlock takes a slot of the arena.
func (a *Allocator) newBlock(b block) int32 {
	if n := len(a.vacant); n > 0 {
		id := a.vacant[n-1]
		a.vacant = a.vacant[:n-1]
		a.blocks[id] = b
		return id
	}
	a.blocks = append(a.blocks, b)
	return int32(len(a.blocks) - 1)
}

// dropBlock gives a slot back.
func (a *Allocator) dropBlock(id int32) { a.vacant = append(a.vacant, id) }

// newSegment takes a slot of the segment table.
func (a *Allocator) newSegment(s segment) int32 {
	a.born++
	s.born = a.born
	if n := len(a.vacantSegs); n > 0 {
		id := a.vacantSegs[n-1]
		a.vacantSegs = a.vacantSegs[:n-1]
		a.segments[id] = s
		return id
	}
	a.segments = append(a.segments, s)
	return int32(len(a.segments) - 1)
}

// splitFront cuts size bytes off the front of block id and returns the rest as
// a new block with the same flags, linked behind it.
func (a *Allocator) splitFront(id int32, size int64) int32 {
	b := a.blocks[id]
	rest := a.newBlock(block{
		addr: b.addr + uint64(size), size: b.size - size, prev: id, next: b.next,
		stream: b.stream, seg: b.seg, pool: b.pool, flags: b.flags, gcBase: b.gcBase,
	})
	if b.next != none {
		a.blocks[b.next].prev = rest
	}
	a.blocks[id].next = rest
	a.blocks[id].size = size
	return rest
}

// absorb merges neighbour src into dst, which keeps its slot. src is not in any
// free set any more.
func (a *Allocator) absorb(dst, src int32) {
	d, s := &a.blocks[dst], &a.blocks[src]
	if s.prev == dst {
		d.next = s.next
		if s.next != none {
			a.blocks[s.next].prev = dst
		}
	} else {
		d.addr = s.addr
		d.prev = s.prev
		if s.prev != none {
			a.blocks[s.prev].next = dst
		} else {
			a.segments[d.seg].head = dst
		}
	}
	d.size += s.size
	a.dropBlock(src)
}

package allocator

import "math/bits"

// Sizes fall into bins: eight to an octave, exact below 8 KiB.
const (
	binBits  = 3
	binCount = 400 // of sizes below 2^60 bytes
	binWords = (binCount + 63) / 64
)

// binOf is the bin of a size; it never falls as the size grows.
func binOf(size int64) int {
	u := uint64(size) / minBlock
	if u < 2<<binBits {
		return int(u)
	}
	e := bits.Len64(u) - (binBits + 1)
	return e<<binBits + int(u>>e)
}

// freeSet is the ordered set of the free blocks of one pool and stream: by
// size, then by address, ascending (the allocator's own comparator, less its
// stream). Each bin is a list in that order, linked through the blocks, and a
// bitmap tells the bins that are not empty: a block leaves the set in constant
// time, and copying the set costs little, which the sweep lives on.
type freeSet struct {
	head [binCount]int32
	full [binWords]uint64
}

// goOn has the meter count the free blocks gone over; false where it ends the
// work. Those who go over them call nothing: they are called too often.
func (a *Allocator) goOn() bool {
	a.meter.spend(a.walked)
	a.walked = 0
	return !a.meter.over()
}

// file puts a free block into its set.
func (a *Allocator) file(id int32) {
	b := &a.blocks[id]
	s := &a.sets[b.set]
	k := binOf(b.size)
	size, addr := b.size, b.addr
	before, after, far := none, s.head[k], 0
	for after != none {
		far++
		n := &a.blocks[after]
		if n.size > size || n.size == size && n.addr > addr {
			n.before = id
			break
		}
		before, after = after, n.after
	}
	a.walked += far
	b.before, b.after = before, after
	b.gcBase = a.calls[b.set&1]
	if before != none {
		a.blocks[before].after = id
		return
	}
	s.head[k] = id
	s.full[uint(k)/64] |= 1 << (uint(k) % 64)
}

// unfile takes a free block out of its set.
func (a *Allocator) unfile(id int32) {
	b := &a.blocks[id]
	if b.after != none {
		a.blocks[b.after].before = b.before
	}
	if b.before != none {
		a.blocks[b.before].after = b.after
		return
	}
	s := &a.sets[b.set]
	k := binOf(b.size)
	s.head[k] = b.after
	if b.after == none {
		s.full[uint(k)/64] &^= 1 << (uint(k) % 64)
	}
}

// refile gives a block another size, and keeps it where it is in its set if that
// is still its place: most blocks that shrink or grow stay in their bin, among
// few others.
func (a *Allocator) refile(id int32, size int64) {
	b := &a.blocks[id]
	if binOf(size) == binOf(b.size) {
		b.size = size
		if p, n := &a.blocks[b.before], &a.blocks[b.after]; (b.before == none || p.precedes(b)) && (b.after == none || b.precedes(n)) {
			b.gcBase = a.calls[b.set&1]
			return
		}
		a.unfile(id)
	} else {
		a.unfile(id)
		b.size = size
	}
	a.file(id)
}

// precedes is the order of a set.
func (b *block) precedes(n *block) bool {
	return b.size < n.size || b.size == n.size && b.addr < n.addr
}

// binFrom is the first bin at or above k that is not empty, -1 without one.
func (s *freeSet) binFrom(k int) int {
	if k >= binCount {
		return -1
	}
	w := uint(k) / 64
	m := s.full[w] &^ (1<<(uint(k)%64) - 1)
	for m == 0 {
		if w++; w == binWords {
			return -1
		}
		m = s.full[w]
	}
	return int(w*64) + bits.TrailingZeros64(m)
}

// atLeast is the first block of a set that has size bytes or more.
func (a *Allocator) atLeast(s *freeSet, size int64) int32 {
	k, far := binOf(size), 0
	for id := s.head[k]; id != none; id = a.blocks[id].after {
		if a.blocks[id].size >= size {
			a.walked += far
			return id
		}
		far++
	}
	a.walked += far
	if k = s.binFrom(k + 1); k < 0 {
		return none
	}
	return s.head[k]
}

// following is the block behind id in its set.
func (a *Allocator) following(id int32) int32 {
	b := &a.blocks[id]
	if b.after != none {
		return b.after
	}
	s := &a.sets[b.set]
	if k := s.binFrom(binOf(b.size) + 1); k >= 0 {
		return s.head[k]
	}
	return none
}

// all appends the blocks of a set to list, in order.
func (a *Allocator) all(s *freeSet, list []int32) []int32 {
	for k := s.binFrom(0); k >= 0; k = s.binFrom(k + 1) {
		for id := s.head[k]; id != none; id = a.blocks[id].after {
			list = append(list, id)
		}
	}
	a.meter.spend(len(list))
	return list
}

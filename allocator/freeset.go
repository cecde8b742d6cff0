package allocator

// entry is a free block with its sort key.
type entry struct {
	size int64
	addr uint64
	id   int32
}

// freeSet is the ordered set of free blocks of one pool and stream: by size,
// then by address, ascending (the allocator's comparator, less its stream).
// It is a sorted slice: sets stay at some hundred blocks, where moving memory
// beats chasing pointers (docs/performance.md).
type freeSet struct {
	entries []entry
}

// at is the position of the first entry that is not below (size, addr).
func (f *freeSet) at(size int64, addr uint64) int {
	lo, hi := 0, len(f.entries)
	for lo < hi {
		mid := int(uint(lo+hi) >> 1)
		e := &f.entries[mid]
		if e.size < size || (e.size == size && e.addr < addr) {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return lo
}

func (f *freeSet) insert(size int64, addr uint64, id int32) {
	i := f.at(size, addr)
	f.entries = append(f.entries, entry{})
	copy(f.entries[i+1:], f.entries[i:])
	f.entries[i] = entry{size, addr, id}
}

// remove takes out the block of this key; it is there by construction.
func (f *freeSet) remove(size int64, addr uint64) {
	f.removeAt(f.at(size, addr))
}

func (f *freeSet) removeAt(i int) {
	copy(f.entries[i:], f.entries[i+1:])
	f.entries = f.entries[:len(f.entries)-1]
}

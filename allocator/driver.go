package allocator

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"sort"
)

// chunkSize is the unit in which the driver takes address space. Seen, like all
// of this file, in the segment addresses of recorded runs on H200s with driver
// 580.159.04; docs/adr/0005-driver-addresses.md says how well it holds.
const chunkSize = 32 << 20

// gapSlack is how much more than a chunk a gap must have to be used again: the
// driver asks for so much more to align what it gets, and gives the rest back.
const gapSlack = 30 << 20

// chunk is address space that the driver took at once, for a first segment and
// for smaller ones in what that left over.
type chunk struct {
	lo, hi uint64
	live   int // segments in it
	// shared: something else than the allocator lies in it too, so it stays
	// when the last segment has gone. strange: it was there before the first
	// segment that told of it.
	shared, strange bool
}

// driverSpace is the process's address space as the driver hands it out: in the
// lowest chunk that has room, the smallest hole that fits; else a new chunk, at
// the top of the highest gap that holds it with its slack, else below all. A
// chunk that empties becomes a gap. The lists are ascending.
type driverSpace struct {
	chunks []chunk
	holes  []span // free parts of chunks; they touch at a border of chunks only
	held   []span // parts of chunks that something else was seen to hold
	gaps   []span // given back between chunks
	front  uint64 // nothing lies below; 0 before the first chunk
	meter  *meter // counts what the lists take; not copied
}

// choice is where the driver would put something: into a hole, into a gap, or,
// with neither, below all.
type choice struct {
	addr      uint64
	hole, gap int
}

func (d *driverSpace) choose(size int64) choice {
	for i, h := range d.holes {
		if h.size < size {
			continue
		}
		d.meter.scan(i)
		end := d.chunks[d.chunkAt(h.addr)].hi
		for j := i + 1; j < len(d.holes) && d.holes[j].addr < end; j++ {
			if n := d.holes[j].size; n >= size && n < d.holes[i].size {
				i = j
			}
		}
		return choice{addr: d.holes[i].addr, hole: i, gap: -1}
	}
	d.meter.scan(len(d.holes) + len(d.gaps))
	length := chunksOf(size)
	for i := len(d.gaps) - 1; i >= 0; i-- {
		if g := d.gaps[i]; g.size >= length+gapSlack {
			return choice{addr: g.end() - uint64(length), hole: -1, gap: i}
		}
	}
	front := d.front
	if front == 0 {
		front = 1 << 46
	}
	if front < uint64(length) { // addresses end below: go on above all
		front = uint64(length)
		if n := len(d.chunks); n > 0 {
			front += d.chunks[n-1].hi
		}
		if n := len(d.gaps); n > 0 {
			front = max(front, d.gaps[n-1].end()+uint64(length))
		}
	}
	return choice{addr: front - uint64(length), hole: -1, gap: -1}
}

func chunksOf(size int64) int64 { return (size + chunkSize - 1) / chunkSize * chunkSize }

// take hands out an address.
func (d *driverSpace) take(size int64) uint64 {
	d.charge()
	c := d.choose(size)
	s := span{c.addr, size}
	if c.hole >= 0 {
		d.chunks[d.chunkAt(c.addr)].live++
		d.holes = cut(d.holes, s)
		return c.addr
	}
	k := chunk{lo: c.addr, hi: c.addr + uint64(chunksOf(size)), live: 1}
	d.add(k)
	d.holes = file(d.holes, span{s.end(), int64(k.hi - s.end())}, k)
	return c.addr
}

// charge counts what it takes to put something into the lists.
func (d *driverSpace) charge() {
	d.meter.scan((len(d.chunks) + len(d.holes) + len(d.held) + len(d.gaps)) / 4)
}

// hide takes space for something else than the allocator, for good.
func (d *driverSpace) hide(size int64) {
	at := d.take(size)
	d.chunks[d.chunkAt(at)].shared = true
}

// add makes a chunk of address space that no other has.
func (d *driverSpace) add(k chunk) {
	at, _ := slices.BinarySearchFunc(d.chunks, k.lo, func(k chunk, addr uint64) int { return cmp.Compare(k.lo, addr) })
	d.chunks = slices.Insert(d.chunks, at, k)
	d.gaps = cut(d.gaps, k.span())
	if d.front == 0 || k.lo < d.front {
		d.front = k.lo
	}
}

func (k chunk) span() span { return span{k.lo, int64(k.hi - k.lo)} }

// chunkAt is the number of the chunk that an address lies in, -1 without one.
func (d *driverSpace) chunkAt(addr uint64) int {
	i, found := slices.BinarySearchFunc(d.chunks, addr, func(k chunk, addr uint64) int { return cmp.Compare(k.lo, addr) })
	if !found {
		i--
	}
	if i < 0 || addr >= d.chunks[i].hi {
		return -1
	}
	return i
}

// give takes a segment back.
func (d *driverSpace) give(s span) {
	d.charge()
	i := d.chunkAt(s.addr)
	d.chunks[i].live--
	k := d.chunks[i]
	d.holes = file(d.holes, s, k)
	if k.live > 0 || k.shared {
		return
	}
	d.chunks = slices.Delete(d.chunks, i, i+1)
	d.holes = cut(d.holes, k.span())
	d.gaps = file(d.gaps, k.span(), chunk{hi: math.MaxUint64})
	if g := d.gaps[0]; g.addr == d.front {
		d.front = g.end()
		d.gaps = slices.Delete(d.gaps, 0, 1)
	}
}

// noteHidden follows a recording and notes what its places show of others: where a
// segment got a chunk of its own, but not at the end of the free space, what lies
// between was taken by someone else. It fails on places that are strewn so wildly
// that they take more than so many steps to follow.
func noteHidden(segments []recorded, most int64) error {
	d := driverSpace{meter: &meter{most: most, every: 1 << 16}}
	for i := range segments {
		s := &segments[i]
		if s.given > 0 || d.meter.over() {
			break
		}
		front := d.front
		d.record(s.span)
		if front > 0 && s.addr < front && s.addr%chunkSize == 0 {
			s.hidden = max(0, int64(front)-int64(s.addr)-chunksOf(s.size))
		}
	}
	if err := d.meter.why(); err != nil {
		return fmt.Errorf("%w: to follow where its %d segments lie", err, len(segments))
	}
	return nil
}

// hiddenWork bounds noteHidden of a trace, in steps: some seconds.
const hiddenWork = 1 << 31

// record takes the address at which a segment was recorded, and learns from it
// what else lies where: a place that the driver would have preferred was held.
func (d *driverSpace) record(s span) {
	d.charge()
	d.learn(s)
	i := d.chunkAt(s.addr)
	if i < 0 || s.end() > d.chunks[i].hi {
		d.discover(s)
		return
	}
	k := &d.chunks[i]
	k.live++
	d.holes = cut(d.holes, s)
	if !k.strange {
		d.held = cut(d.held, s)
		return
	}
	// What others held here they gave back, and with it what they held above.
	for j := range d.held {
		if h := d.held[j]; h.addr < s.end() && s.addr < h.end() {
			rest := span{s.addr, int64(h.end() - s.addr)}
			d.held = cut(d.held, rest)
			d.holes = cut(file(d.holes, rest, *k), s)
			return
		}
	}
}

func (d *driverSpace) learn(s span) {
	home := d.chunkAt(s.addr)
	fresh := home < 0 && s.addr%chunkSize == 0 // it was given a chunk of its own
	for !d.meter.over() {
		c := d.choose(s.size)
		switch {
		case c.addr == s.addr:
			return
		case c.hole >= 0:
			h, in := d.holes[c.hole], d.chunkAt(c.addr)
			if in == home || s.addr < h.addr && !fresh {
				return
			}
			// It has less room than this, if any: at its end, since the lower
			// parts go first.
			h.size -= max(0, s.size-roundLarge)
			d.chunks[in].shared = true
			d.holes = cut(d.holes, h)
			d.held = file(d.held, h, d.chunks[in])
		case c.gap < 0 || !fresh || s.addr > d.gaps[c.gap].addr:
			return
		default:
			d.gaps = slices.Delete(d.gaps, c.gap, c.gap+1)
		}
	}
}

// discover makes the chunk of a segment that was recorded outside all known
// ones. One that does not lie at a chunk's beginning tells of a chunk that was
// there before: what lies below it is held, since a lower place would have been
// taken; what lies above it, up to the next known chunk, is free until learn
// knows better. What was held when the first segment came (the context's own
// beginnings) was seen to be given back before the first pass.
func (d *driverSpace) discover(s span) {
	d.meter.scan(len(d.chunks) + len(d.gaps) + len(d.held))
	c := chunk{lo: s.addr / chunkSize * chunkSize, hi: (s.end() + chunkSize - 1) / chunkSize * chunkSize, live: 1}
	c.strange = c.lo != s.addr
	if next := d.after(c.hi); c.strange && next != 0 && !slices.ContainsFunc(d.gaps, func(g span) bool { return g.addr < next && g.end() > c.hi }) {
		c.hi = next
	}
	parts := []span{c.span()}
	first, below := len(d.chunks) == 0, false
	for i := 0; i < len(d.chunks); {
		k := d.chunks[i]
		if touches := c.strange && k.strange && (k.hi == c.lo || k.lo == c.hi); !touches && (k.hi <= c.lo || k.lo >= c.hi) {
			i++
			continue
		}
		d.chunks = slices.Delete(d.chunks, i, i+1)
		parts = cut(parts, k.span())
		below = below || k.lo < s.addr/chunkSize*chunkSize
		c = chunk{lo: min(c.lo, k.lo), hi: max(c.hi, k.hi), live: c.live + k.live, shared: true, strange: true}
	}
	d.add(c)
	for _, h := range d.held { // above it nobody holds anything any more
		if h.addr >= s.addr && h.end() <= c.hi {
			parts = append(parts, h)
		}
	}
	for _, p := range cut(parts, s) {
		if p.end() <= s.addr && !below {
			d.chunks[d.chunkAt(c.lo)].shared = true
			if !first {
				d.held = file(d.held, p, c)
				continue
			}
		}
		d.held = cut(d.held, p)
		d.holes = file(d.holes, p, c)
	}
	d.holes, d.held = cut(d.holes, s), cut(d.held, s)
}

// expect takes the segments that were recorded later: nothing lies there yet.
// Those that made chunks of their own show gaps, and the highest below all
// chunks shows where the driver would have gone on; moved is whether that is not
// right below them.
func (d *driverSpace) expect(later []recorded) (moved bool) {
	var front uint64
	for _, s := range later {
		if d.meter.over() {
			break
		}
		d.meter.scan(len(d.chunks) + len(d.held))
		i := d.chunkAt(s.addr)
		k := span{s.addr, chunksOf(s.size)}
		switch {
		case i >= 0:
			held := func(h span) bool { return h.addr < s.end() && s.addr < h.end() }
			if s.end() <= d.chunks[i].hi && slices.ContainsFunc(d.held, held) {
				d.held = cut(d.held, s.span)
				d.holes = file(cut(d.holes, s.span), s.span, d.chunks[i])
			}
		case s.addr%chunkSize != 0:
		case s.addr < d.front:
			front = max(front, k.end())
		case !slices.ContainsFunc(d.chunks, func(c chunk) bool { return c.lo < k.end() && k.addr < c.hi }):
			d.gaps = file(cut(d.gaps, k), k, chunk{hi: math.MaxUint64})
		}
	}
	moved = front > 0 && front < d.front
	if moved {
		d.front = front
	}
	return moved
}

// after is where the first chunk at or above an address begins, 0 without one.
func (d *driverSpace) after(addr uint64) uint64 {
	for _, k := range d.chunks {
		if k.lo >= addr {
			return k.lo
		}
	}
	return 0
}

// cut takes a range out of whatever covers it.
func cut(list []span, s span) []span {
	i := sort.Search(len(list), func(i int) bool { return list[i].end() > s.addr })
	for i < len(list) && list[i].addr < s.end() {
		h := list[i]
		before, behind := span{h.addr, int64(s.addr) - int64(h.addr)}, span{s.end(), int64(h.end()) - int64(s.end())}
		switch {
		case before.size > 0 && behind.size > 0:
			list[i] = before
			return slices.Insert(list, i+1, behind)
		case before.size > 0:
			list[i] = before
			i++
		case behind.size > 0:
			list[i] = behind
			return list
		default:
			list = slices.Delete(list, i, i+1)
		}
	}
	return list
}

// file adds a range of a chunk and merges it with its neighbours there.
func file(list []span, s span, k chunk) []span {
	if s.size <= 0 {
		return list
	}
	i := sort.Search(len(list), func(i int) bool { return list[i].addr > s.addr })
	if i < len(list) && s.end() == list[i].addr && list[i].addr < k.hi {
		s.size += list[i].size
		list = slices.Delete(list, i, i+1)
	}
	if i > 0 && list[i-1].end() == s.addr && list[i-1].addr >= k.lo {
		list[i-1].size += s.size
		return list
	}
	return slices.Insert(list, i, s)
}

// copyFrom makes d what src is, in d's own memory.
func (d *driverSpace) copyFrom(src *driverSpace) {
	d.chunks = append(d.chunks[:0], src.chunks...)
	d.holes = append(d.holes[:0], src.holes...)
	d.held = append(d.held[:0], src.held...)
	d.gaps = append(d.gaps[:0], src.gaps...)
	d.front = src.front
}

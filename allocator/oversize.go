package allocator

import (
	"cmp"
	"math"
	"slices"
)

// oversize is what a path holds for requests of max_split_size or more. Each gets
// a segment of its own, which is never split and serves, while it is cached, such
// requests only, and not those that it exceeds by max_non_split_rounding. There
// are few, and what becomes of them follows the limit closely, so that a path does
// these ops itself instead of looking up what a pool does.
type oversize struct {
	at   int    // next op of the part
	live []span // by slot
	free []span // by size, then address
}

func (v *oversize) copyLists(old, src *oversize) {
	v.live = append(old.live[:0], src.live...)
	v.free = append(old.free[:0], src.free...)
}

// from is the first free segment of a size or more.
func (v *oversize) from(size int64) int {
	i := 0
	for i < len(v.free) && v.free[i].size < size {
		i++
	}
	return i
}

func (v *oversize) file(s span) {
	i, _ := slices.BinarySearchFunc(v.free, s, func(a, b span) int {
		return cmp.Or(cmp.Compare(a.size, b.size), cmp.Compare(a.addr, b.addr))
	})
	v.free = slices.Insert(v.free, i, s)
}

// overBefore is whether an oversize op comes before a time.
func (s *paths) overBefore(time int32) bool {
	ops := s.pools[1].over.ops
	return s.now.over.at < len(ops) && ops[s.now.over.at].event < time
}

// nextOversize is when the first oversize request behind a time comes.
func (s *paths) nextOversize(time int32) int32 {
	ops := s.pools[1].over.ops
	for i, o := range ops[s.now.over.at:] {
		if o.kind != opFree && o.event > time {
			s.meter.scan(i)
			return o.event
		}
	}
	s.meter.scan(len(ops) - s.now.over.at)
	return math.MaxInt32
}

// advance does the oversize ops before a time, up to and with the first that
// flushes; false where a request is refused for good.
func (s *paths) advance(time int32) bool {
	x, part := &s.now, s.pools[1].over
	for retries := x.retries; x.over.at < len(part.ops) && x.retries == retries; x.over.at++ {
		o := &part.ops[x.over.at]
		if o.event >= time {
			break
		}
		if s.meter.over() {
			return false
		}
		s.meter.spend(opSteps + len(x.over.free))
		s.passes++
		if o.kind == opFree {
			x.over.file(x.over.live[o.slot])
			continue
		}
		got, ok := s.serveOversize(o)
		if !ok {
			return false
		}
		if o.kind == opAlloc {
			x.over.live[o.slot] = got
		}
	}
	return true
}

// serveOversize is Allocator.malloc for an oversize request.
func (s *paths) serveOversize(o *op) (got span, ok bool) {
	x, set := &s.now, &s.pools[1].run.a.set
	size := set.round(o.size)
	if i := x.over.from(size); i < len(x.over.free) && x.over.free[i].size < size+set.maxNonSplit() {
		got = x.over.free[i]
		x.over.free = slices.Delete(x.over.free, i, i+1)
		return got, true
	}
	got.size = set.ask(size)
	s.save(x.reserved + got.size)
	if got.addr, ok = x.ask(got.size); !ok && x.releaseOversize(size) {
		got.addr, ok = x.ask(got.size)
	}
	if !ok {
		s.flushLarge(o.event)
		x.drop(o.event)
		x.retries++
		got.addr, ok = x.ask(got.size)
	}
	return got, ok
}

// releaseOversize is the allocator's of the name, for an oversize request.
func (x *path) releaseOversize(size int64) bool {
	i := x.over.from(size)
	if i < len(x.over.free) {
		x.release(i)
		return true
	}
	var released int64
	for i--; i >= 0 && released < size; i-- {
		released += x.over.free[i].size
		x.release(i)
	}
	return released >= size
}

// release gives a free oversize segment back to the driver.
func (x *path) release(i int) {
	s := x.over.free[i]
	x.place.space.meter.scan(len(x.over.free) / 4)
	x.over.free = slices.Delete(x.over.free, i, i+1)
	x.place.give(s.addr, s.size)
	x.reserved -= s.size
}

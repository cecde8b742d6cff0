package allocator

import (
	"maps"
	"slices"
)

// copyFrom makes r a replay that stands where src stands, in r's own memory.
// Hooks and checks are not copied.
func (r *replay) copyFrom(src *replay) {
	r.p, r.at, r.oomAt = src.p, src.at, src.oomAt
	r.live = append(r.live[:0], src.live...)
	r.flushes = append(r.flushes[:0], src.flushes...)
	if src.flushes == nil {
		r.flushes = nil
	}
	if r.a == nil {
		r.a = &Allocator{}
	}
	r.a.copyFrom(src.a)
}

// bytes is about what a copy of r takes.
func (r *replay) bytes() int {
	a := r.a
	return len(a.blocks)*blockBytes + len(a.sets)*setBytes +
		(len(r.live)+2*len(r.flushes)+4*len(a.ranges))*4 + (len(a.place.log)+len(a.place.freed)+len(a.place.space.chunks)+len(a.place.space.holes))*32
}

func (a *Allocator) copyFrom(src *Allocator) {
	a.rules, a.gate, a.stats = src.rules, src.gate, src.stats
	a.vacancy, a.calls, a.born = src.vacancy, src.calls, src.born
	a.blocks = append(a.blocks[:0], src.blocks...)
	a.sets = append(a.sets[:0], src.sets...)
	a.ranges = append(a.ranges[:0], src.ranges...)
	place := src.place
	place.copyLists(&a.place, &src.place)
	a.place = place
	a.streams.copyFrom(&src.streams)
}

// copyLists copies what src has given and taken into the memory of old.
func (p *placer) copyLists(old, src *placer) {
	p.log = append(old.log[:0], src.log...)
	p.freed = append(old.freed[:0], src.freed...)
	p.space = old.space
	p.space.copyFrom(&src.space)
}

func (s *streams) copyFrom(src *streams) {
	s.handles = append(s.handles[:0], src.handles...)
	s.order = append(s.order[:0], src.order...)
	s.unmapped = copyLists(s.unmapped, src.unmapped)
	s.events = copyLists(s.events, src.events)
	s.finished = append(s.finished[:0], src.finished...)
	s.deferred = append(s.deferred[:0], src.deferred...)
	s.flushes = src.flushes
	s.waits = maps.Clone(src.waits)
	s.uses = maps.Clone(src.uses)
	for id, list := range s.uses {
		s.uses[id] = slices.Clone(list)
	}
}

func copyLists(dst, src [][]int32) [][]int32 {
	for len(dst) < len(src) {
		dst = append(dst, nil)
	}
	for i := range src {
		dst[i] = append(dst[i][:0], src[i]...)
	}
	return dst[:len(src)]
}

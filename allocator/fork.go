package allocator

import (
	"maps"
	"slices"
)

// fork copies a replay in progress, so that it can be continued under another
// limit. Observers and checks are not copied.
func (r *replay) fork() *replay {
	out := *r
	out.a = r.a.clone()
	out.live = slices.Clone(r.live)
	out.check = nil
	return &out
}

// clone copies the whole state of an allocator.
func (a *Allocator) clone() *Allocator {
	c := *a
	c.observe = nil
	c.blocks = slices.Clone(a.blocks)
	c.vacant = slices.Clone(a.vacant)
	c.segments = slices.Clone(a.segments)
	c.vacantSegs = slices.Clone(a.vacantSegs)
	c.order = slices.Clone(a.order)
	c.uses = make(map[int32][]int32, len(a.uses))
	for id, s := range a.uses {
		c.uses[id] = slices.Clone(s)
	}
	c.waits = maps.Clone(a.waits)
	c.place.taken, c.place.freed, c.place.holes = slices.Clone(a.place.taken), slices.Clone(a.place.freed), slices.Clone(a.place.holes)
	c.streams = make([]streamState, len(a.streams))
	for i, s := range a.streams {
		s.events = slices.Clone(s.events)
		for pool := range s.free {
			s.free[pool].entries = slices.Clone(s.free[pool].entries)
			s.unmapped[pool] = slices.Clone(s.unmapped[pool])
		}
		c.streams[i] = s
	}
	return &c
}

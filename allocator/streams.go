package allocator

import (
	"maps"
	"slices"
)

// RecordStream notes that another stream uses a block, so that its free waits
// for that stream. The stream that the block was allocated on is ignored.
func (a *Allocator) RecordStream(id int32, streamHandle int64) {
	st := a.stream(streamHandle)
	if st == a.blocks[id].stream {
		return
	}
	for _, s := range a.uses[id] {
		if s == st {
			return
		}
	}
	a.uses[id] = append(a.uses[id], st)
}

// hold keeps a freed block out of reach until each of the streams has passed
// the event that is recorded for it now.
func (a *Allocator) hold(id int32, streams []int32) {
	b := &a.blocks[id]
	b.flags = b.flags&^inUse | pinned
	a.waits[id] = len(streams)
	for _, s := range streams {
		a.streams[s].events = append(a.streams[s].events, id)
	}
}

// Complete says that a stream has passed all events recorded on it so far. The
// blocks come free at the next Malloc, as in the real allocator.
func (a *Allocator) Complete(streamHandle int64) {
	s := &a.streams[a.stream(streamHandle)]
	s.finished = len(s.events)
}

// reap frees the blocks of which every event has passed.
func (a *Allocator) reap() {
	for i := range a.streams {
		s := &a.streams[i]
		for ; s.finished > 0; s.finished-- {
			id := s.events[0]
			s.events = s.events[1:]
			a.passed(id)
		}
	}
}

// finishAll waits for every event, as a flush does.
func (a *Allocator) finishAll() {
	for i := range a.streams {
		s := &a.streams[i]
		for _, id := range s.events {
			a.passed(id)
		}
		s.events, s.finished = nil, 0
	}
	for _, id := range slices.Sorted(maps.Keys(a.waits)) { // deferred by replay, no stream named
		delete(a.waits, id)
		a.complete(id)
	}
}

func (a *Allocator) passed(id int32) {
	if a.waits[id]--; a.waits[id] == 0 {
		delete(a.waits, id)
		a.complete(id)
	}
}

// freeDeferred frees a block whose completion a recording shows later.
func (a *Allocator) freeDeferred(id int32) {
	b := &a.blocks[id]
	a.stats.Allocated -= b.size
	a.emit(FreeRequested, b.addr, b.requested, b.stream)
	b.flags = b.flags&^inUse | pinned
	a.waits[id] = 1
}

// completeDeferred ends a deferred free, unless a flush has done so already.
func (a *Allocator) completeDeferred(id int32) {
	if a.waits[id] > 0 {
		delete(a.waits, id)
		a.complete(id)
	}
}

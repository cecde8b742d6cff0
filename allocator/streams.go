package allocator

import "slices"

// streams is what the allocator keeps by CUDA stream, and the frees that wait
// for other streams than their block's own.
type streams struct {
	handles  []int64   // by index
	order    []int32   // indices by handle, as a flush goes over them
	unmapped [][]int32 // by set: unmapped blocks of expandable ranges, by address
	uses     map[int32][]int32
	waits    map[int32]int
	events   [][]int32 // by stream: blocks whose free waits for it, oldest first
	finished []int     // by stream: how many of events it has passed
	deferred []int32   // blocks that a recording completes later
	flushes  int       // so that a recorded completion knows it comes too late
}

// stream is the index of a stream, added on first use.
func (a *Allocator) stream(handle int64) int32 {
	s := &a.streams
	if i := slices.Index(s.handles, handle); i >= 0 {
		return int32(i)
	}
	i := int32(len(s.handles))
	s.handles = append(s.handles, handle)
	s.events = append(s.events, nil)
	s.finished = append(s.finished, 0)
	s.unmapped = append(s.unmapped, nil, nil)
	a.sets = append(a.sets, freeSet{}, freeSet{})
	at := 0
	for at < len(s.order) && uint64(s.handles[s.order[at]]) < uint64(handle) {
		at++
	}
	s.order = slices.Insert(s.order, at, i)
	return i
}

// RecordStream notes that another stream uses a block, so that its free waits
// for that stream. The stream that the block was allocated on is ignored.
func (a *Allocator) RecordStream(id int32, stream int64) {
	st := a.stream(stream)
	s := &a.streams
	if st == int32(a.blocks[id].set/2) || slices.Contains(s.uses[id], st) {
		return
	}
	if s.uses == nil {
		s.uses, s.waits = map[int32][]int32{}, map[int32]int{}
	}
	s.uses[id] = append(s.uses[id], st)
}

// await keeps a freed block out of reach until each of the streams has passed
// the event that is recorded on it now.
func (a *Allocator) await(id int32, uses []int32) {
	a.streams.waits[id] = len(uses)
	for _, st := range uses {
		a.streams.events[st] = append(a.streams.events[st], id)
	}
}

// Complete says that a stream has passed all events recorded on it so far. The
// blocks come free at the next Malloc, as in the real allocator.
func (a *Allocator) Complete(stream int64) {
	st := a.stream(stream)
	a.streams.finished[st] = len(a.streams.events[st])
}

// reap completes the blocks of which every event has passed.
func (a *Allocator) reap() {
	s := &a.streams
	for st, n := range s.finished {
		for _, id := range s.events[st][:n] {
			a.passed(id)
		}
		s.events[st] = s.events[st][n:]
		s.finished[st] = 0
	}
}

// finishAll waits for every event, as a flush does.
func (a *Allocator) finishAll() {
	s := &a.streams
	for st := range s.events {
		s.finished[st] = len(s.events[st])
	}
	a.reap()
	for _, id := range s.deferred {
		a.complete(id)
	}
	s.deferred = s.deferred[:0]
	s.flushes++
}

func (a *Allocator) passed(id int32) {
	s := &a.streams
	if s.waits[id]--; s.waits[id] == 0 {
		delete(s.waits, id)
		a.complete(id)
	}
}

// freeDeferred frees a block whose completion a recording shows later. The
// value returned is for completeDeferred.
func (a *Allocator) freeDeferred(id int32) (flushes int) {
	a.suspend(id)
	a.streams.deferred = append(a.streams.deferred, id)
	return a.streams.flushes
}

// completeDeferred ends a deferred free, unless a flush has ended it already.
func (a *Allocator) completeDeferred(id int32, flushes int) {
	s := &a.streams
	if s.flushes != flushes {
		return
	}
	i := slices.Index(s.deferred, id)
	a.meter.scan(i + (len(s.deferred)-i)/4)
	s.deferred = slices.Delete(s.deferred, i, i+1)
	a.complete(id)
}

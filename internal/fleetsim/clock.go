package fleetsim

import (
	"container/heap"
	"time"
)

// clock is simulated time: a heap of what is still to happen.
type clock struct {
	now time.Duration
	// wall is by how much the machines' clocks are ahead of it: nights in which
	// nothing happens.
	wall   time.Duration
	seq    uint64
	events eventHeap
	// fired counts what has happened.
	fired int
}

type event struct {
	at  time.Duration
	seq uint64 // events of one instant happen in the order in which they were made
	do  func()
}

// after lets something happen in a while; d below zero is now.
func (c *clock) after(d time.Duration, do func()) {
	c.seq++
	heap.Push(&c.events, event{at: c.now + max(0, d), seq: c.seq, do: do})
}

// step lets the next event happen and reports whether there was one.
func (c *clock) step() bool {
	if len(c.events) == 0 {
		return false
	}
	e := heap.Pop(&c.events).(event)
	c.now = e.at
	c.fired++
	e.do()
	return true
}

type eventHeap []event

func (h eventHeap) Len() int { return len(h) }
func (h eventHeap) Less(i, j int) bool {
	if h[i].at != h[j].at {
		return h[i].at < h[j].at
	}
	return h[i].seq < h[j].seq
}
func (h eventHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *eventHeap) Push(x any)   { *h = append(*h, x.(event)) }
func (h *eventHeap) Pop() any {
	old := *h
	e := old[len(old)-1]
	old[len(old)-1] = event{}
	*h = old[:len(old)-1]
	return e
}

package memq

import (
	"container/heap"
	"time"
)

// item is one message. It is ready, or held until due.
type item struct {
	key   string
	data  []byte
	seq   uint64
	fence uint64
	due   time.Time // held until then; the zero time when ready
	gone  bool
}

// lane is a line of messages that are taken in order and come back when their
// lease is up. The caller holds the store's mutex.
type lane struct {
	items map[string]*item
	ready ready
	held  held
}

func newLane() *lane { return &lane{items: map[string]*item{}} }

func (l *lane) add(it *item) {
	l.items[it.key] = it
	heap.Push(&l.ready, it)
}

// take hands out the oldest ready item until due, or returns nil.
func (l *lane) take(now, due time.Time) *item {
	l.release(now)
	for l.ready.Len() > 0 {
		it := heap.Pop(&l.ready).(*item)
		if !it.gone && it.due.IsZero() {
			l.hold(it, due)
			return it
		}
	}
	return nil
}

// hold keeps an item from being taken until due.
func (l *lane) hold(it *item, due time.Time) {
	if it.gone {
		return
	}
	it.due = due
	heap.Push(&l.held, hold{it, due})
}

// release makes items ready whose time is up. An entry whose item is due at
// another time by now is out of date.
func (l *lane) release(now time.Time) {
	for l.held.Len() > 0 && !l.held[0].due.After(now) {
		h := heap.Pop(&l.held).(hold)
		if !h.gone && h.item.due.Equal(h.due) {
			h.item.due = time.Time{}
			heap.Push(&l.ready, h.item)
		}
	}
}

// remove takes an item out, whoever holds it.
func (l *lane) remove(it *item) {
	if !it.gone {
		it.gone, it.data = true, nil
		delete(l.items, it.key)
	}
}

// next is when the first held item may come back; ok is false if none is held.
func (l *lane) next() (due time.Time, ok bool) {
	if l.held.Len() == 0 {
		return time.Time{}, false
	}
	return l.held[0].due, true
}

// ready is a heap by age.
type ready []*item

func (r ready) Len() int           { return len(r) }
func (r ready) Less(i, j int) bool { return r[i].seq < r[j].seq }
func (r ready) Swap(i, j int)      { r[i], r[j] = r[j], r[i] }
func (r *ready) Push(x any)        { *r = append(*r, x.(*item)) }
func (r *ready) Pop() any {
	last := (*r)[len(*r)-1]
	*r = (*r)[:len(*r)-1]
	return last
}

// hold is one time at which an item was to come back.
type hold struct {
	*item
	due time.Time
}

// held is a heap by due time.
type held []hold

func (h held) Len() int           { return len(h) }
func (h held) Less(i, j int) bool { return h[i].due.Before(h[j].due) }
func (h held) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *held) Push(x any)        { *h = append(*h, x.(hold)) }
func (h *held) Pop() any {
	last := (*h)[len(*h)-1]
	*h = (*h)[:len(*h)-1]
	return last
}

package memq

import (
	"sync"
	"time"
)

// Clock is what a queue reads and waits on. Inside a testing/synctest bubble
// the default, wall time, is virtual by itself.
type Clock interface {
	Now() time.Time
	// After sends once when d has passed, as time.After does.
	After(d time.Duration) <-chan time.Time
}

type wall struct{}

func (wall) Now() time.Time                         { return time.Now() }
func (wall) After(d time.Duration) <-chan time.Time { return time.After(d) }

// Manual is a clock that moves only when it is told to. All methods are safe
// for concurrent use.
type Manual struct {
	mu     sync.Mutex // guards the rest
	now    time.Time
	alarms []alarm
}

type alarm struct {
	at time.Time
	ch chan time.Time
}

// NewManual returns a clock that stands at start.
func NewManual(start time.Time) *Manual { return &Manual{now: start} }

// Now is where the clock stands.
func (m *Manual) Now() time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.now
}

// After sends when Advance has moved the clock by d.
func (m *Manual) After(d time.Duration) <-chan time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	ch := make(chan time.Time, 1)
	if d <= 0 {
		ch <- m.now
		return ch
	}
	m.alarms = append(m.alarms, alarm{m.now.Add(d), ch})
	return ch
}

// Advance moves the clock and wakes those whose time has come.
func (m *Manual) Advance(d time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.now = m.now.Add(d)
	rest := m.alarms[:0]
	for _, a := range m.alarms {
		if a.at.After(m.now) {
			rest = append(rest, a)
			continue
		}
		a.ch <- m.now // capacity 1, sent once
	}
	clear(m.alarms[len(rest):])
	m.alarms = rest
}

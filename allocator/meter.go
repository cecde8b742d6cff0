package allocator

import (
	"cmp"
	"errors"
	"fmt"
)

// ErrTooMuchWork is returned where a trace, though it is well formed, takes more
// work than any recording of a real program was seen to come near.
var ErrTooMuchWork = errors.New("the trace takes too much work")

// meter counts the work of one sweep, replay or comparison, and ends it. A step
// is about a nanosecond or a few: an op, a block or a range that is gone over,
// four that are moved. A nil meter counts nothing and ends nothing.
//
// What costs the same every time is counted ahead or not at all. What grows with
// what lies there (lists, copies) is counted where it is done, once it is long.
type meter struct {
	work int64
	most int64       // 0 is no bound
	stop func() bool // asked every lookEvery steps; may be nil
	next int64       // work at which it is asked
	// every is how many steps lie between looks at most and stop; 0 is lookEvery.
	every int64
	kept  int64 // bytes of states that are kept
	err   error // why the work has to end
}

const (
	// lookEvery is how many steps lie between looks: some hundredths of a second.
	lookEvery = 1 << 22
	// longScan is how many elements make a scan worth counting.
	longScan = 64
)

// What a state is made of, in bytes (TestSizes).
const (
	blockBytes   = 56
	setBytes     = 1656
	keptSize     = 1744
	nodeBytes    = 112
	edgeBytes    = 48
	passingBytes = 24
)

// spend counts steps.
func (m *meter) spend(n int) {
	if m == nil {
		return
	}
	if m.work += int64(n); m.work >= m.next {
		m.look()
	}
}

// scan counts steps of a scan, if they are many.
func (m *meter) scan(n int) {
	if n > longScan {
		m.spend(n)
	}
}

func (m *meter) look() {
	m.next = m.work + cmp.Or(m.every, lookEvery)
	switch {
	case m.err != nil:
	case m.stop != nil && m.stop():
		m.err = ErrStopped
	case m.most > 0 && m.work > m.most:
		m.err = ErrTooMuchWork
	}
}

// gaveUp is why the work ended, with what it was for.
func (m *meter) gaveUp(what string) error {
	if !errors.Is(m.err, ErrTooMuchWork) {
		return m.err
	}
	return fmt.Errorf("%w: more than %d steps %s", m.err, m.most, what)
}

// over is whether the work has to end.
func (m *meter) over() bool { return m != nil && m.err != nil }

// why is the reason, nil while there is none.
func (m *meter) why() error {
	if m == nil {
		return nil
	}
	return m.err
}

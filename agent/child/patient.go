package child

import (
	"time"

	"github.com/oomfleet/oomfleet/agent/probe"
)

// patient is a Meter that gives up on the one below it: a call into a driver
// that hangs cannot be interrupted, and keeps whoever waits for it. Of such
// calls one is left behind at most, as no other is made before it has ended.
type patient struct {
	meter Meter
	limit time.Duration
	open  chan struct{} // holds one while a call lasts
}

func newPatient(m Meter, limit time.Duration) *patient {
	return &patient{meter: m, limit: limit, open: make(chan struct{}, 1)}
}

// Identify implements Meter.
func (p *patient) Identify() (probe.Identity, error) { return await(p, p.meter.Identify) }

// Sample implements Meter.
func (p *patient) Sample() (probe.Sample, error) { return await(p, p.meter.Sample) }

func await[T any](p *patient, call func() (T, error)) (T, error) {
	type answer struct {
		value T
		err   error
	}
	timeout, stop := after(p.limit)
	defer stop()
	answered := make(chan answer, 1)
	select {
	case p.open <- struct{}{}:
		go func() {
			value, err := call()
			<-p.open
			answered <- answer{value, err}
		}()
	case <-timeout:
		return *new(T), probe.Silent(p.limit)
	}
	select {
	case a := <-answered:
		return a.value, a.err
	case <-timeout:
		return *new(T), probe.Silent(p.limit)
	}
}

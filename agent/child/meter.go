package child

import (
	"cmp"
	"errors"
	"maps"
	"time"

	"github.com/oomfleet/oomfleet/agent/probe"
	"github.com/oomfleet/oomfleet/agent/runner"
	"github.com/oomfleet/oomfleet/proto"
)

// mergeMeters copies what the runner has read over what was known.
func mergeMeters(into *proto.Meters, from runner.Meters) {
	for _, m := range []struct {
		to   **proto.Bytes
		from *int64
	}{
		{&into.PeakAllocated, from.PeakAllocated}, {&into.PeakReserved, from.PeakReserved},
		{&into.LoadedAllocated, from.LoadedAllocated}, {&into.LoadedReserved, from.LoadedReserved},
		{&into.Weights, from.Weights}, {&into.ProcessPeak, from.ProcessPeak}, {&into.Context, from.Context},
		{&into.DeviceFreeBefore, from.DeviceFreeBefore}, {&into.DeviceTotal, from.DeviceTotal},
	} {
		if m.from != nil {
			v := proto.Bytes(*m.from)
			*m.to = &v
		}
	}
	into.NumAllocRetries = cmp.Or(from.NumAllocRetries, into.NumAllocRetries)
	into.NumOOMs = cmp.Or(from.NumOOMs, into.NumOOMs)
	if len(from.Missing) > 0 {
		into.Missing = maps.Clone(from.Missing)
	}
}

// sampler looks at the card at every tick while a run lasts. A nil sampler
// (simulated runner) does nothing.
type sampler struct {
	meter  Meter
	guard  int
	timing Timing

	before    *probe.Sample
	beforeSum proto.Bytes  // of the strangers
	strangers map[int]bool // processes of others; the watching goroutine's own once started
	halt      chan struct{}
	result    chan sampled
	err       error
	started   bool
	stopped   bool
}

// sampled is what the sampler saw.
type sampled struct {
	ownPeak   *proto.Bytes
	strangers int
	// low and high are the ends between which the strangers' sum moved.
	low, high proto.Bytes
	looks     int
	err       error
}

// newSampler takes the look before the run.
func newSampler(meter Meter, guard int, timing Timing) *sampler {
	s := &sampler{meter: meter, guard: guard, timing: timing, strangers: map[int]bool{},
		halt: make(chan struct{}), result: make(chan sampled, 1)}
	sample, err := meter.Sample()
	if err != nil {
		s.err = err
		return s
	}
	s.before = &sample
	for _, p := range sample.Processes {
		if !isBelow(p.PID, guard) {
			s.strangers[p.PID] = true
			if p.Used != nil {
				s.beforeSum += *p.Used
			}
		}
	}
	return s
}

// start begins to look at the run's process.
func (s *sampler) start(pid int) {
	if s == nil || s.started {
		return
	}
	s.started = true
	go func() { s.result <- s.watch(pid) }()
}

// stop ends the looking; finish takes what was seen.
func (s *sampler) stop() {
	if s != nil && !s.stopped {
		s.stopped = true
		close(s.halt)
	}
}

func (s *sampler) watch(pid int) sampled {
	tick := time.NewTicker(s.timing.Sample)
	defer tick.Stop()
	var seen sampled
	own := map[int]bool{}
	for {
		sample, err := s.meter.Sample()
		if err != nil {
			seen.err = err
		} else if _, gone := readProcess(pid); gone == nil {
			// With the run's process gone, its ballast may be going too: such
			// a look says nothing about the run.
			s.add(&seen, sample, pid, own)
		}
		select {
		case <-s.halt:
			return seen
		case <-tick.C:
		}
	}
}

// add takes one look into account. Processes below our guard are the run's own,
// its ballast's and its MPS server's. One that is unknown and not ours is a
// stranger, unless NVML shows ids of another pid namespace: then none can be
// told, which shows in that our own run is not among them either.
func (s *sampler) add(seen *sampled, sample probe.Sample, pid int, own map[int]bool) {
	seesUs := false
	for _, p := range sample.Processes {
		seesUs = seesUs || p.PID == pid
	}
	var sum proto.Bytes
	for _, p := range sample.Processes {
		used := proto.Bytes(0)
		if p.Used != nil {
			used = *p.Used
		}
		if p.PID == pid && p.Used != nil && (seen.ownPeak == nil || used > *seen.ownPeak) {
			seen.ownPeak = &used
		}
		if !s.strangers[p.PID] && seesUs && !own[p.PID] {
			if isBelow(p.PID, s.guard) {
				own[p.PID] = true
			} else {
				s.strangers[p.PID] = true
			}
		}
		if s.strangers[p.PID] {
			sum += used
		}
	}
	if seen.looks == 0 {
		seen.low, seen.high = sum, sum
	}
	seen.low, seen.high, seen.looks = min(seen.low, sum), max(seen.high, sum), seen.looks+1
	seen.strangers = len(s.strangers)
}

// finish puts what was seen into the evidence. Where the meter and the runner
// both know the process's peak, the larger holds: each can miss a moment.
func (s *sampler) finish(e *proto.Evidence) {
	if s == nil {
		return
	}
	s.stop()
	var seen sampled
	if s.started {
		timer := time.NewTimer(s.timing.Kill)
		defer timer.Stop()
		select {
		case seen = <-s.result:
		case <-timer.C:
			seen.err = errors.New("the meter does not answer")
		}
	}
	if s.before != nil {
		if seen.looks > 0 {
			seen.low, seen.high = min(seen.low, s.beforeSum), max(seen.high, s.beforeSum)
		}
		if e.Meters.DeviceFreeBefore == nil {
			e.Meters.DeviceFreeBefore = &s.before.Free
		}
		if e.Meters.DeviceTotal == nil {
			e.Meters.DeviceTotal = &s.before.Total
		}
	}
	e.Neighbours, e.NeighbourMoved = seen.strangers, seen.high-seen.low
	if seen.ownPeak != nil && (e.Meters.ProcessPeak == nil || *seen.ownPeak > *e.Meters.ProcessPeak) {
		e.Meters.ProcessPeak = seen.ownPeak
	}
	missing := func(meter, why string) {
		if e.Meters.Missing == nil {
			e.Meters.Missing = map[string]string{}
		}
		e.Meters.Missing[meter] = why
	}
	if err := errors.Join(s.err, seen.err); err != nil {
		missing("neighbours", err.Error())
	}
	if e.Meters.ProcessPeak == nil && s.started {
		missing("process_peak_bytes", "the driver shows no memory of the run's process, and the runner knows none")
	}
}

package allocator

// forks replays whole states, under any settings: a replay is resumed from a
// checkpoint. Checkpoints lie along the current path, each before an allocation
// for which a limit passes more than ever before; those beyond the point where
// the next path leaves are dropped.
type forks struct {
	p           *Program
	o           *SweepOptions
	layout      Layout
	floor       int64 // no checkpoint for limits below
	run         *replay
	checkpoints []*replay
	spare       []*replay // memory of dropped checkpoints
	decided     bool      // by addresses, on some path
	meter       *meter
}

const (
	// maxCheckpoints bounds the memory of a sweep, at about 200 KiB each.
	maxCheckpoints = 256
	// keptBytes bounds it for traces whose states are larger.
	keptBytes = 512 << 20
	// apart is how many ops lie between checkpoints at least: executing so many
	// again takes no longer than to save a state.
	apart = 512
)

// options are a replay's, for a limit in bytes of the swept kind.
func (s *forks) options(limit int64) ReplayOptions {
	o := ReplayOptions{Layout: s.layout, DeviceTotal: s.o.DeviceTotal, meter: s.meter}
	o.Limit = Limit{Cap: limit}
	if s.o.Kind == SweepDevice {
		o.Limit = Limit{Device: limit}
	}
	return o
}

// replay runs under a limit that is lower than those before, leaving
// checkpoints.
func (s *forks) replay(limit int64) ReplayResult {
	s.resume(limit)
	s.run.a.sweep.want = s.checkpoint
	if !s.decided {
		s.run.a.sweep.tie = s.decide
	}
	s.run.run(len(s.p.ops))
	return s.run.result()
}

func (s *forks) reach() (passed, idle int64) {
	g := &s.run.a.gate
	if !s.run.a.ages {
		return g.passed, 0
	}
	return g.passed, g.idle
}

func (s *forks) tied() bool { return s.decided }

func (s *forks) steps() int { return s.run.steps }

func (s *forks) decide() {
	s.decided = true
	s.run.a.sweep.tie = nil // once is enough
}

// checkpoint saves the state before the current op, if the op asks the driver
// for more than ever before on this path.
func (s *forks) checkpoint() {
	a, at := s.run.a, s.run.at
	g := &a.gate
	size := a.set.round(s.p.ops[at].size)
	v := a.stats.Reserved + a.set.ask(size)
	if a.set.Expandable {
		v = a.stats.Reserved + upTo(size, a.set.largeSegment())
	}
	raises := v > g.passed && v >= s.floor || a.ages && a.stats.Reserved > g.idle
	if !raises {
		return
	}
	c := s.slot(g, at)
	if c == nil {
		return
	}
	a.place.learn() // once for all paths that are resumed here
	c.copyFrom(s.run)
	s.meter.scan(s.run.bytes() / 16)
	if a.ages { // the op has counted its call already
		pool := 0
		if size > smallSize {
			pool = 1
		}
		c.a.calls[pool]--
	}
}

// slot is the checkpoint to write to, nil when there are enough. One that is
// good for as many quotas as the new one, but earlier, is overwritten.
func (s *forks) slot(g *gate, at int) *replay {
	n := len(s.checkpoints)
	if n > 0 {
		c := s.checkpoints[n-1]
		if at-c.at < apart {
			return nil
		}
		if c.a.gate.passed == g.passed && c.a.gate.idle == g.idle {
			return c
		}
	}
	if n == maxCheckpoints || n > 0 && (n+1)*s.run.bytes() > keptBytes {
		return nil
	}
	c := &replay{}
	if k := len(s.spare); k > 0 {
		c, s.spare = s.spare[k-1], s.spare[:k-1]
	}
	s.checkpoints = append(s.checkpoints, c)
	return c
}

// resume puts the current replay under a lower limit, at the last checkpoint up
// to which its path is the one just replayed.
func (s *forks) resume(limit int64) {
	idle := int64(unlimited)
	if s.o.Kind == SweepCap && s.o.Settings.GCThreshold > 0 {
		idle = collectAbove(s.o.Settings.GCThreshold, limit)
	}
	n := len(s.checkpoints)
	for ; n > 0; n-- {
		c := s.checkpoints[n-1]
		if c.a.gate.passed <= limit && c.a.gate.idle <= idle {
			break
		}
		s.spare = append(s.spare, c)
	}
	s.checkpoints = s.checkpoints[:n]
	if n == 0 {
		steps := 0
		if s.run != nil {
			steps = s.run.steps
		}
		s.run = s.p.start(s.o.Settings, s.options(limit))
		s.run.steps = steps
		return
	}
	s.run.copyFrom(s.checkpoints[n-1])
	s.meter.scan(s.run.bytes() / 16)
	s.run.a.setLimit(s.options(limit).Limit)
}

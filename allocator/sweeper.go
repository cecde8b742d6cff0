package allocator

import (
	"fmt"
	"math"
)

// sweeper walks down the quotas under one layout.
//
// A replay depends on its quota only through comparisons, all of the form
// v <= limit where the limit grows with the quota (under garbage collection,
// also v <= share of the limit). So one replay answers for every quota down to
// the smallest under which the same comparisons pass, and the next one starts a
// step below. That one goes the same way up to the first comparison that passes no
// longer, and is resumed there (see forks and paths).
type sweeper struct {
	o      *SweepOptions
	floor  int64 // every quota below fails
	engine engine
	meter  *meter // the engine's

	edges
	against *SweepResult // under another layout: stop when the edges differ
	differs bool
}

// engine replays a program under one layout and ever lower limits.
type engine interface {
	// replay's result has retries and peak of reserved bytes.
	replay(limit int64) ReplayResult
	// reach is the largest value that the last replay's limit let through, and
	// the largest that was small enough not to collect garbage; 0 without any.
	reach() (passed, idle int64)
	// tied is whether addresses decided something on some path.
	tied() bool
	// steps is how many ops were executed so far.
	steps() int
}

// noQuota is larger than any quota and still counts as one, so that a replay
// under it notes its comparisons.
const noQuota = int64(1) << 62

// newSweeper returns a sweeper that goes down to quotas that let the program hold
// lowest bytes (see Program.lowest).
func newSweeper(o *SweepOptions, lowest int64, e engine) *sweeper {
	s := &sweeper{o: o, engine: e, edges: edges{last: math.MaxInt64}}
	s.floor = max(lowest+s.overhead(), o.Step)
	return s
}

// quotaUp is the smallest quota on the grid whose limit is at least limit.
func (s *sweeper) quotaUp(limit int64) int64 {
	return (limit + s.overhead() + s.o.Step - 1) / s.o.Step * s.o.Step
}

func (s *sweeper) overhead() int64 {
	if s.o.Kind == SweepDevice {
		return s.o.Overhead
	}
	return 0
}

// walk goes down from no quota, or from the card's total where that is lower.
func (s *sweeper) walk() error {
	first := s.replay(noQuota)
	if s.meter.over() {
		return s.meter.gaveUp("to map quotas, from the first")
	}
	if first.OOM {
		return ErrUncapped
	}
	top := s.lowest(noQuota)
	s.result.NoRetry = top
	quota := top - s.o.Step
	highest := s.o.DeviceTotal
	if c := s.o.Ceiling; c > 0 && (highest == 0 || c < highest) {
		highest = c
	}
	if highest = highest / s.o.Step * s.o.Step; highest > 0 && highest < top {
		quota = highest
		s.last = highest + s.o.Step
	} else {
		s.note(top, first)
	}
	for quota >= s.floor && !s.differs {
		if s.o.Stop != nil && s.o.Stop() {
			return ErrStopped
		}
		if s.result.Replays >= s.o.MaxReplays {
			return fmt.Errorf("%w: more than %d, the last at a quota of %d bytes", ErrTooManyReplays, s.o.MaxReplays, quota)
		}
		r := s.replay(max(quota-s.overhead(), 1))
		if s.meter.over() {
			return s.meter.gaveUp(fmt.Sprintf("to map quotas down from %d bytes", quota))
		}
		low := s.lowest(quota)
		s.note(low, r)
		quota = low - s.o.Step
	}
	s.finish(top)
	s.differs = s.differs || s.against != nil && s.result.NoRetry != s.against.NoRetry
	return nil
}

func (s *sweeper) replay(limit int64) ReplayResult {
	s.result.Replays++
	return s.engine.replay(limit)
}

// lowest is the smallest quota on the grid that takes the path just replayed,
// which one of quota does.
func (s *sweeper) lowest(quota int64) int64 {
	passed, idle := s.engine.reach()
	low := max(s.quotaUp(passed), s.o.Step)
	if idle == 0 {
		return min(low, quota)
	}
	t := s.o.Settings.GCThreshold
	below := float64(idle) / t * (1 - 1e-9) // then up to the grid, in the allocator's own arithmetic
	low = max(low, s.quotaUp(int64(min(below, float64(noQuota/2)))))
	for low < quota && collectAbove(t, low) < idle {
		low += s.o.Step
	}
	return min(low, quota)
}

// lowest is the smallest limit under which the program can pass: its own live
// bytes must fit.
func (p *Program) lowest(o *SweepOptions) int64 {
	low := p.peakLive(&o.Settings)
	if o.Settings.Expandable && o.Kind == SweepCap {
		low -= max(o.Settings.largeSegment(), smallSegment) // reserved may exceed a cap by less than a page
	}
	return low
}

// peakLive is the most that the program holds at once, every request rounded.
func (p *Program) peakLive(set *Settings) int64 {
	sizes := make([]int64, p.slots)
	divided := set.Divisions != [16]int64{}
	var live, peak int64
	for i := range p.ops {
		switch o := &p.ops[i]; o.kind {
		case opAlloc:
			sizes[o.slot] = upTo(o.size, minBlock)
			if divided {
				sizes[o.slot] = set.round(o.size)
			}
			live += sizes[o.slot]
			peak = max(peak, live)
		case opFree, opFreeDeferred:
			live -= sizes[o.slot]
		}
	}
	return peak
}

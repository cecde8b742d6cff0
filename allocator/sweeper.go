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
// step below (allocator specification, "Exact sweep without a grid"). That one
// goes the same way up to the first comparison that passes no longer, and is
// resumed from a checkpoint taken there: checkpoints lie along the current path,
// each before an allocation for which a limit passes more than ever before, and
// those beyond the point where the next path leaves are dropped.
type sweeper struct {
	p           *Program
	o           SweepOptions
	layout      Layout
	floor       int64 // every quota below fails
	run         *replay
	checkpoints []*replay
	spare       []*replay // memory of dropped checkpoints
	tied        bool      // addresses decided something on some path

	edges
	against *SweepResult // under another layout: stop when the edges differ
	differs bool
}

const (
	// noQuota is larger than any quota and still counts as one, so that a
	// replay under it notes its comparisons.
	noQuota = int64(1) << 62
	// maxCheckpoints bounds the memory of a sweep, at about 200 KiB each.
	maxCheckpoints = 256
	// apart is how many ops lie between checkpoints at least: executing so many
	// again takes no longer than to save a state.
	apart = 512
)

func newSweeper(p *Program, o SweepOptions, layout Layout) *sweeper {
	s := &sweeper{p: p, o: o, layout: layout, edges: edges{last: math.MaxInt64}}
	low := p.peakLive(&o.Settings) // the program's own live bytes must fit
	if o.Settings.Expandable && o.Kind == SweepCap {
		low -= max(o.Settings.largeSegment(), smallSegment) // reserved may exceed a cap by less than a page
	}
	s.floor = max(low+s.overhead(), o.Step)
	return s
}

// options are a replay's, for a limit in bytes of the swept kind.
func (s *sweeper) options(limit int64) ReplayOptions {
	o := ReplayOptions{Layout: s.layout, DeviceTotal: s.o.DeviceTotal}
	o.Limit = Limit{Cap: limit}
	if s.o.Kind == SweepDevice {
		o.Limit = Limit{Device: limit}
	}
	return o
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
	s.run = s.p.start(s.o.Settings, s.options(noQuota))
	s.replay()
	first := s.run.result()
	if first.OOM {
		return ErrUncapped
	}
	s.result.Uncapped = first
	top := s.lowest(noQuota)
	s.result.NoRetry = top
	quota := top - s.o.Step
	if total := s.o.DeviceTotal / s.o.Step * s.o.Step; total > 0 && total < top {
		quota = total
		s.last = total + s.o.Step
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
		s.resume(max(quota-s.overhead(), 1))
		s.replay()
		low := s.lowest(quota)
		s.note(low, s.run.result())
		quota = low - s.o.Step
	}
	s.finish(top)
	s.differs = s.differs || s.against != nil && s.result.NoRetry != s.against.NoRetry
	return nil
}

// replay runs the current replay to its end, leaving checkpoints.
func (s *sweeper) replay() {
	s.result.Replays++
	s.run.a.sweep.want = s.checkpoint
	if !s.tied && s.against == nil {
		s.run.a.sweep.tie = s.noteTied
	}
	s.run.run(len(s.p.ops))
}

func (s *sweeper) noteTied() {
	s.tied = true
	s.run.a.sweep.tie = nil // once is enough
}

// lowest is the smallest quota on the grid that takes the path just replayed,
// which one of quota does.
func (s *sweeper) lowest(quota int64) int64 {
	g := &s.run.a.gate
	low := max(s.quotaUp(g.passed), s.o.Step)
	if !s.run.a.ages || g.idle == 0 {
		return min(low, quota)
	}
	t := s.o.Settings.GCThreshold
	below := float64(g.idle) / t * (1 - 1e-9) // then up to the grid, in the allocator's own arithmetic
	low = max(low, s.quotaUp(int64(min(below, float64(noQuota/2)))))
	for low < quota && collectAbove(t, low) < g.idle {
		low += s.o.Step
	}
	return min(low, quota)
}

// checkpoint saves the state before the current op, if the op asks the driver
// for more than ever before on this path.
func (s *sweeper) checkpoint() {
	a, at := s.run.a, s.run.at
	g := &a.gate
	size := a.set.round(s.p.ops[at].size)
	v := a.stats.Reserved + a.set.ask(size)
	if a.set.Expandable {
		v = a.stats.Reserved + upTo(size, a.set.largeSegment())
	}
	raises := v > g.passed && v+s.overhead() >= s.floor || a.ages && a.stats.Reserved > g.idle
	if !raises {
		return
	}
	c := s.slot(g, at)
	if c == nil {
		return
	}
	c.copyFrom(s.run)
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
func (s *sweeper) slot(g *gate, at int) *replay {
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
	if n == maxCheckpoints {
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
func (s *sweeper) resume(limit int64) {
	idle := int64(unlimited)
	if s.run.a.ages {
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
		s.run = s.p.start(s.o.Settings, s.options(limit))
		return
	}
	s.run.copyFrom(s.checkpoints[n-1])
	s.run.a.setLimit(s.options(limit).Limit)
}

// peakLive is the most that the program holds at once, every request rounded.
func (p *Program) peakLive(set *Settings) int64 {
	sizes := make([]int64, p.slots)
	var live, peak int64
	for i := range p.ops {
		switch o := &p.ops[i]; o.kind {
		case opAlloc:
			sizes[o.slot] = set.round(o.size)
			live += sizes[o.slot]
			peak = max(peak, live)
		case opFree, opFreeDeferred:
			live -= sizes[o.slot]
		}
	}
	return peak
}

package allocator

import (
	"errors"
	"fmt"
	"slices"
)

// maxReplays bounds a sweep that names no bound of its own; only settings under
// which reserved memory follows the quota (expandable segments with
// max_split_size) come near it.
const maxReplays = 20_000

var (
	// ErrUncapped is returned by a sweep whose replay without a limit is
	// refused: the settings themselves forbid every allocation.
	ErrUncapped = errors.New("the program runs out of memory without any quota")
	// ErrStopped is returned by a sweep that SweepOptions.Stop ended.
	ErrStopped = errors.New("the sweep was stopped")
	// ErrTooManyReplays is returned by a sweep that would take more replays
	// than SweepOptions.MaxReplays. No partial map is given.
	ErrTooManyReplays = errors.New("the sweep takes too many replays")
)

// Sweep maps the outcome of a trace over all quotas. It is Compile followed by
// Program.Sweep.
func Sweep(events []Event, o SweepOptions) (SweepResult, error) {
	p, err := Compile(events)
	if err != nil {
		return SweepResult{}, err
	}
	return p.Sweep(o)
}

// Sweep maps the outcome over all quotas on the grid, exactly: a replay depends
// on its limit only through comparisons v <= limit, so one replay answers for
// every limit from the largest v that passed to the smallest that failed, and
// the next replay starts just below (allocator specification, "Exact sweep
// without a grid"). Garbage collection compares with a share of the limit, in
// the same way.
//
// It refuses to predict from a recording that fails its self-check: then only
// SelfCheckMismatches is set.
func (p *Program) Sweep(o SweepOptions) (SweepResult, error) {
	if o.Step <= 0 {
		o.Step = roundLarge
	}
	if o.MaxReplays <= 0 {
		o.MaxReplays = maxReplays
	}
	if check := p.SelfCheck(o.Recorded); check.Mismatches > 0 {
		return SweepResult{SelfCheckMismatches: check.Mismatches}, nil
	}
	if p.oomAt >= 0 {
		return SweepResult{}, fmt.Errorf("the recording ends in an out-of-memory at event %d: record without a quota", p.oomAt)
	}
	result, err := p.sweepLayout(o, LayoutDriver)
	if err != nil {
		return SweepResult{}, err
	}
	for _, layout := range []Layout{LayoutAscending, LayoutDescending, LayoutReuse} {
		other, err := p.sweepLayout(o, layout)
		if err != nil {
			return SweepResult{}, err
		}
		if !result.sameMap(other) {
			result.LayoutSensitive = true
			break
		}
	}
	return result, nil
}

func (r SweepResult) sameMap(o SweepResult) bool {
	return r.Boundary == o.Boundary && r.LowestPass == o.LowestPass && r.NoRetry == o.NoRetry && slices.Equal(r.FailBands, o.FailBands)
}

// sweeper walks down the quotas of one layout.
type sweeper struct {
	p       *Program
	o       SweepOptions
	layout  Layout
	rungs   []*replay // forks along the current path, by position, ascending
	spacing int
	// The map so far, descending: the outcome of every grid quota from the top
	// down to last.
	result  SweepResult
	noted   bool
	passed  bool
	retried bool
	last    int64
}

func (p *Program) sweepLayout(o SweepOptions, layout Layout) (SweepResult, error) {
	s := &sweeper{p: p, o: o, layout: layout, spacing: max(len(p.ops)/64, 512)}
	first := p.start(o.Settings, s.options(unlimited))
	s.advance(first)
	if first.oomAt >= 0 {
		return SweepResult{}, ErrUncapped
	}
	s.result.Uncapped = first.result()
	err := s.walk(s.top(first))
	return s.result, err
}

// options are a replay's, for a limit in bytes of the swept kind.
func (s *sweeper) options(limit int64) ReplayOptions {
	o := ReplayOptions{Layout: s.layout, DeviceTotal: s.o.DeviceTotal}
	if s.o.Kind == SweepDevice {
		o.Limit.Device = min(limit, unlimited-1)
	} else if limit != unlimited {
		o.Limit.Cap = limit
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

// floor is the lowest quota that could pass at all: the program's own live
// bytes must fit (an expandable segment may exceed a cap by less than a page).
func (s *sweeper) floor() int64 {
	low := s.p.peakLive(s.o.Settings)
	if s.o.Settings.Expandable && s.o.Kind == SweepCap {
		low -= s.o.Settings.largeSegment()
	}
	return max(low+s.overhead(), s.o.Step)
}

// collects is whether the quota enters garbage collection.
func (s *sweeper) collects() bool {
	return s.o.Settings.GCThreshold > 0 && s.o.Kind == SweepCap
}

// lowest is the smallest quota on the grid under which every comparison that
// passed in r passes too: the low end of the interval that r answers for.
func (s *sweeper) lowest(r *replay) int64 {
	return s.admitting(max(r.a.highPass, 1), r.a.gcPass)
}

func (s *sweeper) admitting(highPass, gcPass int64) int64 {
	quota := s.quotaUp(highPass)
	if s.collects() && gcPass > 0 {
		// a little below gcPass divided by the threshold, then up to the grid
		below := float64(gcPass) / s.o.Settings.GCThreshold * (1 - 1e-9)
		quota = max(quota, s.quotaUp(int64(min(below, 1<<50))))
		for quota < 1<<50 && s.o.Settings.gcLimit(quota) < gcPass {
			quota += s.o.Step
		}
	}
	return quota
}

// top is the smallest quota from which on every replay is like first, the one
// without a limit.
func (s *sweeper) top(first *replay) int64 {
	if !s.collects() {
		return s.lowest(first)
	}
	s.rungs = nil // made without a cap: they do not count the calls
	return s.admitting(first.a.highPass, first.a.stats.ReservedPeak)
}

// walk goes down from the top quota, or from the card's total where that is
// lower.
func (s *sweeper) walk(top int64) error {
	floor := s.floor()
	s.result.NoRetry = top
	quota := top - s.o.Step
	if total := s.o.DeviceTotal / s.o.Step * s.o.Step; total > 0 && total < top {
		quota = total
	} else {
		s.note(top, ReplayResult{})
	}
	for quota >= floor {
		if s.o.Stop != nil && s.o.Stop() {
			return ErrStopped
		}
		if s.result.Replays >= s.o.MaxReplays {
			return fmt.Errorf("%w: more than %d, the last at a quota of %d bytes", ErrTooManyReplays, s.o.MaxReplays, quota)
		}
		r := s.resume(quota)
		s.advance(r)
		low := min(s.lowest(r), quota)
		s.note(low, r.result())
		quota = low - s.o.Step
	}
	s.finish(top)
	return nil
}

// note files the outcome of the grid quotas from low up to the last one noted.
func (s *sweeper) note(low int64, r ReplayResult) {
	out := &s.result
	s.retried = s.retried || r.Retries > 0
	if !s.retried {
		out.NoRetry = low
	}
	high := low
	if s.noted {
		high = s.last - s.o.Step
	} else if r.OOM {
		high = s.o.DeviceTotal / s.o.Step * s.o.Step
	}
	switch {
	case !r.OOM:
		out.LowestPass = low
		if len(out.FailBands) == 0 {
			out.Boundary = low
		}
	case s.noted && !s.passed:
		out.FailBands[len(out.FailBands)-1].From = low
	default:
		out.FailBands = append(out.FailBands, Band{From: low, To: high})
	}
	s.noted, s.passed, s.last = true, !r.OOM, low
}

// finish drops the failing region below the lowest pass, which is no band, and
// says so where nothing passes up to the card's total.
func (s *sweeper) finish(top int64) {
	if s.result.Boundary == 0 {
		s.result.Boundary, s.result.AboveDevice = top, true
		if s.result.LowestPass == 0 {
			s.result.LowestPass = top
		}
	}
	bands := s.result.FailBands
	if len(bands) > 0 && bands[len(bands)-1].To < s.result.LowestPass {
		bands = bands[:len(bands)-1]
	}
	slices.Reverse(bands)
	s.result.FailBands = bands
}

// resume returns a replay under quota, positioned as late as the path is known
// to agree: at the last rung before which no comparison exceeded the new limit.
func (s *sweeper) resume(quota int64) *replay {
	limit := max(quota-s.overhead(), 1)
	gcLimit := int64(unlimited)
	if s.collects() {
		gcLimit = s.o.Settings.gcLimit(limit)
	}
	n := len(s.rungs)
	for n > 0 && (s.rungs[n-1].a.highPass > limit || s.rungs[n-1].a.gcPass > gcLimit) {
		n--
	}
	s.rungs = s.rungs[:n]
	if n == 0 {
		return s.p.start(s.o.Settings, s.options(limit))
	}
	r := s.rungs[n-1].fork()
	r.a.setLimit(s.options(limit).Limit)
	return r
}

// advance runs a replay to its end and leaves rungs behind for the next one.
func (s *sweeper) advance(r *replay) {
	s.result.Replays++
	for r.at < len(s.p.ops) && r.oomAt < 0 {
		if n := len(s.rungs); n == 0 || r.at >= s.rungs[n-1].at+s.spacing {
			s.rungs = append(s.rungs, r.fork())
		}
		r.run(min(r.at+s.spacing, len(s.p.ops)))
	}
}

// peakLive is the most that the program holds at once, every request rounded.
func (p *Program) peakLive(set Settings) int64 {
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

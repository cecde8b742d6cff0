package allocator

import (
	"errors"
	"fmt"
	"slices"
)

// maxReplays bounds a sweep; only settings under which reserved memory follows
// the quota (expandable segments with max_split_size) come near it.
const maxReplays = 200_000

// ErrUncapped is returned by a sweep whose replay without a limit is refused:
// the settings themselves forbid every allocation.
var ErrUncapped = errors.New("the program runs out of memory without any quota")

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
// without a grid"). Under garbage collection the limit enters elsewhere too;
// then every quota of the grid is replayed.
//
// It refuses to predict from a recording that fails its self-check: then only
// SelfCheckMismatches is set.
func (p *Program) Sweep(o SweepOptions) (SweepResult, error) {
	if o.Step <= 0 {
		o.Step = roundLarge
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
	// map so far, descending: outcome of every grid quota down to next.
	result SweepResult
	passed bool // the last quota walked over passed
	lastNo int64
}

func (p *Program) sweepLayout(o SweepOptions, layout Layout) (SweepResult, error) {
	s := &sweeper{p: p, o: o, layout: layout, spacing: max(len(p.ops)/64, 512)}
	first := p.start(o.Settings, s.options(unlimited))
	s.advance(first)
	if first.oomAt >= 0 {
		return SweepResult{}, ErrUncapped
	}
	s.result.Uncapped = first.result()
	s.result.NoRetry = s.quotaUp(first.a.highPass)
	s.walk(first.a.highPass)
	return s.result, nil
}

// options are a replay's, for a limit in bytes of the swept kind.
func (s *sweeper) options(limit int64) ReplayOptions {
	o := ReplayOptions{Layout: s.layout}
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

// walk goes down from the path whose largest passing comparison was highPass.
func (s *sweeper) walk(highPass int64) {
	floor := s.floor()
	from := s.quotaUp(highPass) // smallest quota of the interval just replayed
	s.note(from, true)
	for quota := from - s.o.Step; quota >= floor; {
		r := s.resume(quota)
		s.advance(r)
		low := min(s.quotaUp(max(r.a.highPass, 1)), quota)
		if s.o.Settings.GCThreshold > 0 {
			low = quota
		}
		s.note(low, r.oomAt < 0)
		if s.result.Replays > maxReplays {
			break
		}
		quota = low - s.o.Step
	}
	s.finish()
}

// note files the outcome of the grid quotas from low up to the last one noted.
func (s *sweeper) note(low int64, pass bool) {
	switch {
	case pass && s.result.Boundary == 0, pass && s.passed && len(s.result.FailBands) == 0:
		s.result.Boundary, s.result.LowestPass = low, low
	case pass:
		s.result.LowestPass = low
	case s.passed:
		s.result.FailBands = append(s.result.FailBands, Band{From: low, To: s.lastNo - s.o.Step})
	default:
		s.result.FailBands[len(s.result.FailBands)-1].From = low
	}
	s.passed, s.lastNo = pass, low
}

// finish drops the failing region below the lowest pass, which is no band.
func (s *sweeper) finish() {
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
	for n := len(s.rungs); n > 0 && s.rungs[n-1].a.highPass > limit; n = len(s.rungs) {
		s.rungs = s.rungs[:n-1]
	}
	n := len(s.rungs)
	if n == 0 {
		return s.p.start(s.o.Settings, s.options(limit))
	}
	r := s.rungs[n-1].fork()
	highPass, lowFail := r.a.highPass, r.a.lowFail
	r.a.setLimit(s.options(limit).Limit)
	r.a.highPass, r.a.lowFail = highPass, lowFail
	return r
}

// advance runs a replay to its end and leaves rungs behind for the next one.
// Under garbage collection there are none: the limit enters everywhere.
func (s *sweeper) advance(r *replay) {
	s.result.Replays++
	for r.at < len(s.p.ops) && r.oomAt < 0 {
		if n := len(s.rungs); s.o.Settings.GCThreshold == 0 && (n == 0 || r.at >= s.rungs[n-1].at+s.spacing) {
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

package allocator

import (
	"cmp"
	"errors"
	"fmt"
)

// maxReplays bounds a sweep that names no bound of its own; only settings under
// which reserved memory follows the quota (expandable segments with
// max_split_size) come near it.
const maxReplays = 20_000

// maxWork bounds the steps of a sweep that names no bound of its own: some
// minutes, a hundred times what the longest sweeps of recordings take.
const maxWork = 1 << 36

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

// Sweep maps the outcome over all quotas on the grid, exactly (see sweeper). It
// refuses to predict from a recording that fails its self-check: then only
// SelfCheckMismatches is set.
//
// The map is that under the driver's layout. Addresses of a what-if run are
// never certain; where they decided anything on any path, the sweep is done
// again under the other layouts, and LayoutSensitive says whether the edges
// differ.
func (p *Program) Sweep(o SweepOptions) (SweepResult, error) {
	if o.Step <= 0 {
		o.Step = roundLarge
	}
	if o.MaxReplays <= 0 {
		o.MaxReplays = maxReplays
	}
	m := &meter{most: cmp.Or(o.MaxWork, maxWork), stop: o.Stop}
	check, run := p.selfCheck(o.Recorded, m)
	if m.over() {
		return SweepResult{}, m.gaveUp("to check the recording")
	}
	if check.Mismatches > 0 {
		return SweepResult{SelfCheckMismatches: check.Mismatches}, nil
	}
	if p.oomAt >= 0 {
		return SweepResult{}, fmt.Errorf("the recording ends in an out-of-memory at event %d: record without a quota", p.oomAt)
	}
	if o.Settings.ZeroFraction {
		return SweepResult{}, ErrUncapped
	}
	if run == nil || o.Settings != o.Recorded || o.Settings.Expandable {
		old := run
		run = p.start(o.Settings, ReplayOptions{DeviceTotal: o.DeviceTotal, meter: m})
		run.run(len(p.ops))
		if m.over() {
			return SweepResult{}, m.gaveUp("to replay the recording")
		}
		if old != nil {
			run.steps += old.steps
		}
	}
	b := sweeps{p: p, o: &o, lowest: p.lowest(&o), steps: run.steps, meter: m}
	if p.divisible(&o.Settings) {
		b.pools = newPools(p, &o.Settings, m)
	}
	result, err := b.all()
	if errors.Is(err, errManyStates) { // without them it takes longer, and little memory
		result, err = b.fewerStates()
	}
	if err != nil {
		return SweepResult{}, err
	}
	result.Uncapped = run.result()
	return result, nil
}

// sweeps are the sweeps of one program under all layouts.
type sweeps struct {
	p      *Program
	o      *SweepOptions
	lowest int64
	pools  *[2]*pool // nil where the program cannot be divided
	steps  int       // ops executed so far
	meter  *meter
}

// all sweeps under the driver's layout, and under the others as far as it takes
// to know whether they differ.
func (b *sweeps) all() (SweepResult, error) {
	first := b.sweeper(LayoutDriver)
	if err := first.walk(); err != nil {
		return SweepResult{}, err
	}
	b.steps += first.engine.steps()
	result := first.result
	if first.engine.tied() {
		// the likeliest to differ come first (docs/performance.md)
		for _, layout := range []Layout{LayoutDescending, LayoutReuse, LayoutAscending} {
			other := b.sweeper(layout)
			other.against = &result
			if err := other.walk(); err != nil {
				return SweepResult{}, err
			}
			b.steps += other.engine.steps()
			if other.differs {
				result.LayoutSensitive = true
				break
			}
		}
	}
	result.Steps = b.steps
	return result, nil
}

// fewerStates is all once more, without pools.
func (b *sweeps) fewerStates() (SweepResult, error) {
	b.steps += b.pools[0].run.steps + b.pools[1].run.steps
	b.pools, b.meter.err, b.meter.kept = nil, nil, 0
	return b.all()
}

func (b *sweeps) sweeper(layout Layout) *sweeper {
	var e engine = &forks{p: b.p, o: b.o, layout: layout, floor: b.lowest, meter: b.meter}
	if b.pools != nil {
		e = newPaths(b.p, layout, b.lowest, *b.pools)
	}
	s := newSweeper(b.o, b.lowest, e)
	s.meter = b.meter
	return s
}

// At is the path that a quota takes, found in Map. False says that the quota
// lies below the map, where all fail, or above the card's total.
func (r *SweepResult) At(quota int64) (Interval, bool) {
	for _, v := range r.Map {
		if v.From <= quota && quota < v.To {
			return v, true
		}
	}
	return Interval{}, false
}

// EdgeWithin is whether a quota no further than margin from this one comes to
// another outcome than it.
func (r *SweepResult) EdgeWithin(quota, margin int64) bool {
	at, _ := r.At(quota)
	bottom := int64(0)
	for _, v := range r.Map {
		if v.Pass != at.Pass && v.From <= quota+margin && v.To > quota-margin {
			return true
		}
		bottom = v.From
	}
	return at.Pass && quota-margin < bottom
}

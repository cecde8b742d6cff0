package allocator

import (
	"errors"
	"fmt"
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
	if check := p.SelfCheck(o.Recorded); check.Mismatches > 0 {
		return SweepResult{SelfCheckMismatches: check.Mismatches}, nil
	}
	if p.oomAt >= 0 {
		return SweepResult{}, fmt.Errorf("the recording ends in an out-of-memory at event %d: record without a quota", p.oomAt)
	}
	if o.Settings.ZeroFraction {
		return SweepResult{}, ErrUncapped
	}
	first := newSweeper(p, o, LayoutDriver)
	if err := first.walk(); err != nil {
		return SweepResult{}, err
	}
	result := first.result
	if !first.tied {
		return result, nil
	}
	// the likeliest to differ come first (docs/performance.md)
	for _, layout := range []Layout{LayoutDescending, LayoutReuse, LayoutAscending} {
		other := newSweeper(p, o, layout)
		other.against = &result
		if err := other.walk(); err != nil {
			return SweepResult{}, err
		}
		if other.differs {
			result.LayoutSensitive = true
			break
		}
	}
	return result, nil
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

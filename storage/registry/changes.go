package registry

import (
	"cmp"
	"slices"
)

// ChangeKind is what a change is about.
type ChangeKind string

const (
	ChangeCoefficients ChangeKind = "coefficients"
	ChangeBoundary     ChangeKind = "boundaries"
	ChangeSweep        ChangeKind = "sweeps"
	ChangeProgram      ChangeKind = "programs"
)

// ChangeKinds lists the kinds in the order in which help texts show them.
func ChangeKinds() []ChangeKind {
	return []ChangeKind{ChangeCoefficients, ChangeBoundary, ChangeSweep, ChangeProgram}
}

// Change is one thing as it stands since an entry of the log. Exactly one of the
// pointers is set, by Kind.
type Change struct {
	Index        uint64
	Kind         ChangeKind
	Coefficients *CoefficientSet
	Record       *Record // settled
	Sweep        *Sweep
	Program      *Program
}

// Changes are all things of the view by the entry that made them what they are,
// oldest first. What changed twice is there once, so whoever has seen all up to
// an index, and then sees all above it, misses nothing that still holds.
//
// A sweep changes when it is submitted, has settled or is cancelled, and a cell
// when it settles.
func (v View) Changes() []Change {
	out := make([]Change, 0, len(v.Coefficients)+len(v.Records)+len(v.Sweeps)+len(v.Programs))
	for _, set := range v.Coefficients {
		out = append(out, Change{Index: set.Index, Kind: ChangeCoefficients, Coefficients: set})
	}
	for _, record := range v.Records {
		if record.Settled != nil {
			out = append(out, Change{Index: record.Settled.Index, Kind: ChangeBoundary, Record: record})
		}
	}
	for _, sweep := range v.Sweeps {
		out = append(out, Change{Index: v.sweepChanged(sweep), Kind: ChangeSweep, Sweep: sweep})
	}
	for _, program := range v.Programs {
		out = append(out, Change{Index: program.Index, Kind: ChangeProgram, Program: program})
	}
	slices.SortFunc(out, Change.compare)
	return out
}

func (c Change) compare(o Change) int {
	rank := func(k ChangeKind) int { return slices.Index(ChangeKinds(), k) }
	if r := cmp.Or(cmp.Compare(c.Index, o.Index), cmp.Compare(rank(c.Kind), rank(o.Kind))); r != 0 {
		return r
	}
	switch c.Kind {
	case ChangeCoefficients:
		return c.Coefficients.Key.Compare(o.Coefficients.Key)
	case ChangeBoundary:
		return c.Record.Key.Compare(o.Record.Key)
	case ChangeSweep:
		return cmp.Compare(c.Sweep.ID, o.Sweep.ID)
	case ChangeProgram:
		return c.Program.Family.Compare(o.Program.Family)
	}
	panic("registry: change kind " + string(c.Kind) + " has no order")
}

// sweepChanged is the entry since which the sweep is in its state.
func (v View) sweepChanged(s *Sweep) uint64 {
	switch v.sweepState(s, v.counts(s)) {
	case SweepCancelled:
		return max(s.Index, s.CancelledIndex)
	case SweepRunning:
		return s.Index
	}
	last := s.Index
	for _, cell := range s.Cells {
		record := v.Records[Key{Origin: s.Origin, Cell: cell}]
		last = max(last, record.Settled.Index)
		if n := len(record.Runs); repeats(s.Rollout) > 0 && n > 0 {
			last = max(last, record.Runs[n-1].Index)
		}
	}
	return last
}

package plan

import (
	"slices"

	"github.com/oomfleet/oomfleet/storage/registry"
)

// Planner is Next for a caller that asks after every change: it decides again
// only for the records that are other ones than in the last view. What it
// remembers is derived from the views alone, so a Planner that has seen
// anything before, and one that has seen nothing, give the same actions. The
// zero value is ready. One goroutine at a time may use it.
type Planner struct {
	cells map[registry.Key]*memo
	// order is the canonical order of the keys in cells.
	order []registry.Key
}

// memo is what was decided for a record. Records are never changed in place, so
// the pointer says whether it is still true.
type memo struct {
	record *registry.Record
	step   step
	member member
}

// Next says what to do in this view; see the function Next.
func (p *Planner) Next(v registry.View) Actions {
	if p.cells == nil || len(v.Records) < len(p.cells) {
		p.cells, p.order = make(map[registry.Key]*memo, len(v.Records)), nil
	}
	for key, rec := range v.Records {
		m := p.cells[key]
		if m == nil {
			m = &memo{}
			p.cells[key] = m
			p.order = append(p.order, key)
		}
		if m.record != rec {
			*m = memo{record: rec, step: decide(rec), member: memberOf(rec)}
		}
	}
	if len(p.order) > len(v.Records) { // a view that is no successor of the last
		*p = Planner{}
		return p.Next(v)
	}
	if !slices.IsSortedFunc(p.order, registry.Key.Compare) {
		slices.SortFunc(p.order, registry.Key.Compare)
	}
	var a Actions
	for _, key := range p.order {
		m := p.cells[key]
		a.add(m.record, m.step, v.AppliedIndex)
	}
	a.Fit = p.fits(v)
	return a
}

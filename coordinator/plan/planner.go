package plan

import (
	"maps"
	"slices"

	"github.com/oomfleet/oomfleet/proto"
	"github.com/oomfleet/oomfleet/storage/registry"
)

// Planner is Next for a caller that asks after every change: it decides again
// only for the records that are other ones than in the last view, and for those
// whose family changed. What it remembers is derived from the views alone, so a
// Planner that has seen anything before, and one that has seen nothing, give
// the same actions. The zero value is ready. One goroutine at a time may use it.
type Planner struct {
	cells map[registry.Key]*memo
	// order is the canonical order of the keys in cells.
	order    []registry.Key
	families map[registry.FamilyKey]*family
}

// memo is what was decided for a record. Records are never changed in place, so
// the pointer says whether it is still true.
type memo struct {
	record *registry.Record
	family *family
	// settings are the cell's allocator settings as text.
	settings string
	face     face
	place    place
	// decided: step is what record and place come to.
	decided bool
	step    step
	member  member
}

// Next says what to do in this view; see the function Next.
func (p *Planner) Next(v registry.View) Actions {
	if p.cells == nil || len(v.Records) < len(p.cells) {
		*p = Planner{cells: make(map[registry.Key]*memo, len(v.Records)), families: make(map[registry.FamilyKey]*family)}
	}
	for key, rec := range v.Records {
		m := p.cells[key]
		if m == nil {
			m = p.join(rec)
		}
		if m.record != rec {
			m.see(rec)
		}
	}
	if len(p.order) > len(v.Records) { // a view that is no successor of the last
		*p = Planner{}
		return p.Next(v)
	}
	if !slices.IsSortedFunc(p.order, registry.Key.Compare) {
		slices.SortFunc(p.order, registry.Key.Compare)
	}
	for key, f := range p.families {
		if f.dirty || f.program != v.Programs[key] {
			f.program, f.dirty = v.Programs[key], false
			f.arrange()
		}
	}
	return p.actions(v)
}

func (p *Planner) actions(v registry.View) Actions {
	var a Actions
	for _, key := range p.order {
		m := p.cells[key]
		if !m.decided {
			m.step, m.decided = decide(m.record, m.place), true
		}
		a.add(m.record, m.step, v.AppliedIndex)
	}
	for _, key := range slices.SortedFunc(maps.Keys(p.families), registry.FamilyKey.Compare) {
		if build := p.families[key].build; build != nil {
			a.Build = append(a.Build, *build)
		}
	}
	a.Fit = p.fits(v)
	return a
}

// join remembers a new record and puts it into its family.
func (p *Planner) join(rec *registry.Record) *memo {
	m := &memo{settings: proto.EnvString(rec.Cell.AllocatorEnv())}
	p.cells[rec.Key] = m
	p.order = append(p.order, rec.Key)
	key := registry.FamilyOf(rec.Key.Origin, rec.Cell)
	if p.families[key] == nil {
		p.families[key] = &family{key: key}
	}
	m.family = p.families[key]
	m.family.members = append(m.family.members, m)
	m.family.dirty = true
	return m
}

// see takes the newest state of a record.
func (m *memo) see(rec *registry.Record) {
	m.record, m.member, m.decided = rec, memberOf(rec), false
	if next := faceOf(rec); next != m.face {
		m.face, m.family.dirty = next, true
	}
}

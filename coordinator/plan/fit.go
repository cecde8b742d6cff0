package plan

import (
	"cmp"
	"slices"

	"github.com/oomfleet/oomfleet/proto"
	"github.com/oomfleet/oomfleet/storage/registry"
)

// member is what a record is to the fits: in work it holds back its family,
// settled it is a point of its group.
type member struct {
	settled bool
	family  registry.GroupKey
	// group and task are of the recording; task is empty without one.
	group registry.GroupKey
	task  proto.TaskID
}

func memberOf(rec *registry.Record) member {
	m := member{settled: rec.Settled != nil, family: registry.FamilyOf(rec)}
	if run := rec.Recording(); run != nil {
		m.group, m.task = registry.GroupOf(rec), run.Task
	}
	return m
}

// fits lists the groups of which every cell has settled and of which a
// recording is not yet in the committed coefficients.
//
// The group of a cell with no recording is not known (its CUDA and torch are
// not), so a cell in work holds back every group that it may come to.
func (p *Planner) fits(v registry.View) []registry.GroupKey {
	waiting := make(map[registry.GroupKey]bool)
	fresh := make(map[registry.GroupKey]registry.GroupKey) // group to family
	for _, c := range p.cells {
		m := c.member
		if !m.settled {
			waiting[m.family] = true
			continue
		}
		if m.task == "" {
			continue
		}
		if set := v.Coefficients[m.group]; set == nil || !holds(set.Evidence, m.task) {
			fresh[m.group] = m.family
		}
	}
	var due []registry.GroupKey
	for group, family := range fresh {
		if !waiting[family] {
			due = append(due, group)
		}
	}
	slices.SortFunc(due, func(a, b registry.GroupKey) int {
		return cmp.Or(cmp.Compare(a.Origin, b.Origin), cmp.Compare(a.QuotaKind, b.QuotaKind), cmp.Compare(a.Group, b.Group))
	})
	return due
}

// holds searches committed evidence, which the registry keeps sorted.
func holds(evidence []proto.TaskID, task proto.TaskID) bool {
	_, found := slices.BinarySearch(evidence, task)
	return found
}

// Recordings are the records of a group that have a recording, by length,
// batch and cell; none when the view has no such group. They are what a fit of
// the group takes.
func Recordings(v registry.View, key registry.GroupKey) []*registry.Record {
	var found []*registry.Record
	for _, rec := range v.Records {
		if rec.Recording() != nil && registry.GroupOf(rec) == key {
			found = append(found, rec)
		}
	}
	slices.SortFunc(found, func(a, b *registry.Record) int {
		return cmp.Or(a.Cell.SeqLen-b.Cell.SeqLen, a.Cell.Batch-b.Cell.Batch, cmp.Compare(a.Key.Cell, b.Key.Cell))
	})
	return found
}

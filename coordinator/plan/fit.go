package plan

import (
	"cmp"
	"maps"
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
	m := member{settled: rec.Settled != nil, family: registry.AwaitedGroupOf(rec)}
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
func (p *Planner) fits(v registry.View) []Fit {
	waiting := make(map[registry.GroupKey]bool)
	fresh := make(map[registry.GroupKey]bool) // groups with a recording that no fit has seen
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
			fresh[m.group] = true
		}
	}
	due := make(map[registry.GroupKey][]*registry.Record)
	for _, c := range p.cells {
		if m := c.member; m.task != "" && fresh[m.group] && !waiting[m.family] {
			due[m.group] = append(due[m.group], c.record)
		}
	}
	var fits []Fit
	for _, key := range slices.SortedFunc(maps.Keys(due), registry.GroupKey.Compare) {
		slices.SortFunc(due[key], func(a, b *registry.Record) int {
			return cmp.Or(a.Cell.SeqLen-b.Cell.SeqLen, a.Cell.Batch-b.Cell.Batch, cmp.Compare(a.Key.Cell, b.Key.Cell))
		})
		fits = append(fits, Fit{Key: key, Records: due[key]})
	}
	return fits
}

// holds searches committed evidence, which the registry keeps sorted.
func holds(evidence []proto.TaskID, task proto.TaskID) bool {
	_, found := slices.BinarySearch(evidence, task)
	return found
}

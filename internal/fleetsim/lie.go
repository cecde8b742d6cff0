package fleetsim

import (
	"github.com/oomfleet/oomfleet/proto"
	"github.com/oomfleet/oomfleet/storage/registry"
)

// lie is a result that no run gave: of a cell that this registry never knew, or
// nearly the answer to a task that is out, with one thing wrong in it. So speaks an
// agent of a registry that was restored, or whoever stole an agent's credential.
func (s *sim) lie() proto.Result {
	d := s.dice.of("lie")
	var open []proto.Task
	view := s.view()
	for _, key := range s.town.keys {
		if rec := view.Records[key]; rec != nil {
			for _, o := range rec.Open {
				open = append(open, o.Task)
			}
		}
	}
	if len(open) == 0 || d.IntN(4) == 0 {
		cell := s.town.truths[s.town.keys[0]].cell
		cell.SeqLen++
		id := cell.ID()
		return proto.Result{Task: proto.TaskID("s-" + id + "-1"), Protocol: proto.Version, Fence: 7, CellID: id, Origin: proto.OriginSimulated,
			Kind: proto.TaskRecord, Agent: "stranger", Outcome: proto.OutcomePass}
	}
	t := one(d, open...)
	r := proto.Result{Task: t.ID, Protocol: proto.Version, Fence: t.Fence, CellID: t.CellID, Origin: t.Origin, Kind: t.Kind, Quota: t.Quota,
		Agent: "stranger", Outcome: one(d, proto.OutcomePass, proto.OutcomeOOMQuota, proto.OutcomeCrash),
		Stack: proto.Stack{GPU: t.Cell.GPU, Driver: t.Cell.Driver, CUDA: cudaName, Torch: torchVer}, Card: proto.Card{UUID: "GPU-stranger", Total: cardTotal}}
	switch d.IntN(5) {
	case 0:
		r.Fence-- // of before a leader issued it anew
	case 1:
		r.Fence += proto.Fence(1 + d.IntN(50))
	case 2:
		r.Quota += t.Cell.Step
	case 3:
		r.Stack.Driver = "570.0-other"
	case 4: // what is out of another cell of the town, if there is one
		other := one(d, s.town.keys...)
		if other == (registry.Key{Origin: t.Origin, Cell: t.CellID}) {
			r.Fence--
		}
		r.CellID = other.Cell
	}
	return r
}

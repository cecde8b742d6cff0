package registry

import (
	"fmt"
	"slices"
	"strings"

	"github.com/oomfleet/oomfleet/proto"
)

func (m *Machine) setPredictionLocked(cmd *SetPrediction) Reply {
	record := m.records.m[cmd.Key]
	switch {
	case record == nil:
		return Reply{Refused: fmt.Sprintf("there is no %s cell %q", cmd.Key.Origin, cmd.Key.Cell)}
	case record.Settled != nil:
		return Reply{Refused: fmt.Sprintf("cell %s has settled", cmd.Key.Cell)}
	case (cmd.Prediction.Trace == "") == (cmd.Prediction.Program == ""):
		return Reply{Refused: fmt.Sprintf("the prediction for cell %s names no trace, and no program in place of it", cmd.Key.Cell)}
	case record.Prediction != nil && record.Prediction.Trace == cmd.Prediction.Trace && record.Prediction.Program == cmd.Prediction.Program:
		return Reply{}
	}
	prediction := cmd.Prediction
	prediction.FailBands = notNil(prediction.FailBands)
	m.updateLocked(record, func(r *Record) { r.Prediction = &prediction })
	return Reply{Accepted: true}
}

func (m *Machine) settleLocked(cmd *Settle) Reply {
	record := m.records.m[cmd.Key]
	switch {
	case record == nil:
		return Reply{Refused: fmt.Sprintf("there is no %s cell %q", cmd.Key.Origin, cmd.Key.Cell)}
	case record.Settled != nil:
		return Reply{Refused: fmt.Sprintf("cell %s has settled as %s", cmd.Key.Cell, record.Settled.State)}
	case len(record.Open) > 0:
		return Reply{Refused: fmt.Sprintf("cell %s has %d open tasks", cmd.Key.Cell, len(record.Open))}
	case len(record.Runs) != cmd.Runs:
		return Reply{Refused: fmt.Sprintf("cell %s has %d runs, the plan saw %d", cmd.Key.Cell, len(record.Runs), cmd.Runs)}
	case cmd.Seen != 0 && record.LastIndex > cmd.Seen:
		return Reply{Refused: fmt.Sprintf("cell %s changed at entry %d, the plan saw %d", cmd.Key.Cell, record.LastIndex, cmd.Seen)}
	case !slices.Contains(settledStates(), cmd.Settlement.State):
		return Reply{Refused: fmt.Sprintf("cell %s cannot settle as %q", cmd.Key.Cell, cmd.Settlement.State)}
	}
	settlement := cmd.Settlement
	settlement.Index, settlement.Revision = m.appliedIndex, m.revisionLocked(cmd.Key)
	settlement.Boundary.FailBands = notNil(settlement.Boundary.FailBands)
	m.updateLocked(record, func(r *Record) { r.Settled = &settlement })
	return Reply{Accepted: true}
}

// revisionLocked is the number of a cell's next settlement.
func (m *Machine) revisionLocked(key Key) int {
	if earlier := m.settlements.m[key]; len(earlier) > 0 {
		return earlier[len(earlier)-1].Revision + 1
	}
	return 1
}

// reopenLocked keeps the settlement that a record is about to lose.
func (m *Machine) reopenLocked(key Key, lost *Settlement) {
	earlier := append(slices.Clip(m.settlements.m[key]), lost)
	m.settlements.put(key, slices.Clone(earlier[max(0, len(earlier)-HistoryLimit):]))
}

// settledStates are the states that a plan may settle a cell in. Cancelled is
// not one: only CancelSweep knows whether another sweep wants the cell.
func settledStates() []proto.CellState {
	return []proto.CellState{proto.CellCertified, proto.CellPredicted, proto.CellBisected, proto.CellAdaptive, proto.CellFailed}
}

func (m *Machine) setCoefficientsLocked(cmd *SetCoefficients) Reply {
	if why := refuseCoefficients(cmd); why != "" {
		return Reply{Refused: why}
	}
	evidence := slices.Clone(cmd.Evidence)
	slices.Sort(evidence)
	evidence = slices.Compact(evidence)
	set := &CoefficientSet{Key: cmd.Key, Models: cmd.Models, Evidence: evidence, Revision: 1,
		Index: m.appliedIndex, Fitted: m.appliedTime}
	if before := m.coefficients.m[cmd.Key]; before != nil {
		if slices.Equal(before.Evidence, evidence) && canonical(before.Models) == canonical(set.Models) {
			return Reply{}
		}
		set.Revision = before.Revision + 1
		earlier := append(slices.Clip(m.history.m[cmd.Key]), before)
		m.history.put(cmd.Key, slices.Clone(earlier[max(0, len(earlier)-HistoryLimit):]))
	}
	m.coefficients.put(cmd.Key, set)
	return Reply{Accepted: true}
}

// refuseCoefficients holds apart what must never be mixed: a model of another
// group, quota kind or origin, and evidence of another origin.
func refuseCoefficients(cmd *SetCoefficients) string {
	if _, err := proto.ParseOrigin(string(cmd.Key.Origin)); err != nil {
		return err.Error()
	}
	if len(cmd.Models) == 0 {
		return "a set of coefficients needs at least one model"
	}
	for _, model := range cmd.Models {
		if key := groupKey(model.Origin, model.QuotaKind, model.Group); key != cmd.Key {
			return fmt.Sprintf("a model of %s %s %s is not of the set's group", key.Origin, key.QuotaKind, key.Group)
		}
	}
	prefix := originPrefix(cmd.Key.Origin)
	for _, task := range cmd.Evidence {
		if !strings.HasPrefix(string(task), prefix) {
			return fmt.Sprintf("task %s is no evidence for %s coefficients", task, cmd.Key.Origin)
		}
	}
	return ""
}

func (m *Machine) setMemberLocked(cmd *SetMember) Reply {
	if cmd.Member.ID == "" {
		return Reply{Refused: "a member needs an id"}
	}
	known, ok := m.members.m[cmd.Member.ID]
	switch {
	case cmd.Member.API == "" && !ok, ok && known == cmd.Member:
		return Reply{}
	case cmd.Member.API == "":
		m.members.remove(cmd.Member.ID)
		return Reply{Accepted: true}
	}
	m.members.put(cmd.Member.ID, cmd.Member)
	return Reply{Accepted: true}
}

// notNil keeps an empty list from becoming null in JSON.
func notNil[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}

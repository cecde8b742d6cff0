package registry

import (
	"fmt"
	"slices"

	"github.com/oomfleet/oomfleet/proto"
)

// SetVerdict stores what came of comparing a sweep with the one that it
// replaces. The same verdict again changes nothing; another one, made when
// there were more recordings, takes its place.
type SetVerdict struct {
	ID      proto.MatrixID     `json:"id"`
	Verdict proto.SweepVerdict `json:"verdict"`
}

func (m *Machine) setVerdictLocked(cmd *SetVerdict) Reply {
	known := m.sweeps.m[cmd.ID]
	if known == nil {
		return Reply{Refused: fmt.Sprintf("there is no sweep %q", cmd.ID)}
	}
	switch cmd.Verdict.Verdict {
	case proto.VerdictSame, proto.VerdictChanged, proto.VerdictNeedMore:
	default:
		return Reply{Refused: fmt.Sprintf("a comparison says same, changed or need more, not %q", cmd.Verdict.Verdict)}
	}
	var rollout proto.Rollout
	if known.Rollout != nil {
		rollout = *known.Rollout
	}
	if rollout.Verdict != nil && *rollout.Verdict == cmd.Verdict {
		return Reply{}
	}
	verdict := cmd.Verdict
	rollout.Verdict = &verdict
	sweep := *known
	sweep.Rollout = &rollout
	m.sweeps.put(sweep.ID, &sweep)
	return Reply{Accepted: true}
}

// Standing reports whether the sweep is a standing order for stacks to come.
func (s *Sweep) Standing() bool {
	return s.Rollout != nil && s.Rollout.Policy != nil && !s.Rollout.Ended && !s.Cancelled
}

// endOrderLocked ends the standing order of a sweep that has settled.
func (m *Machine) endOrderLocked(known *Sweep) {
	rollout := *known.Rollout
	rollout.Ended = true
	sweep := *known
	sweep.Rollout = &rollout
	m.sweeps.put(sweep.ID, &sweep)
}

// repeatTries is how many recordings of a repeat may come to nothing, and
// strangerTries how many may come from agents of another torch or CUDA, before
// the cell is left as it is.
const (
	repeatTries   = 3
	strangerTries = 20
)

// repeats is how many recordings of each cell a sweep asks for beside its
// matrix; 0 for a sweep that is no repeat.
func repeats(r *proto.Rollout) int {
	if r == nil || r.Trigger == nil {
		return 0
	}
	return r.Trigger.Repeats
}

// Missing is how many recordings a repeating sweep still waits for of one of
// its records. What was recorded before the sweep does not count, nor what an
// agent of another torch or CUDA recorded where the sweep is for one stack; a
// cell whose recordings fail is given up.
func (s *Sweep) Missing(r *Record) int {
	wanted := repeats(s.Rollout)
	if wanted == 0 || s.Cancelled || !repeatable(r) {
		return 0
	}
	passed, failed, strange := 0, 0, 0
	on := s.Rollout.Trigger.Stack
	for i := range r.Runs {
		run := &r.Runs[i]
		switch {
		case run.Index <= s.Index || run.Kind != proto.TaskRecord:
		case run.recording() && on != nil && (run.Stack.CUDA != on.CUDA || run.Stack.Torch != on.Torch):
			strange++
		case run.recording():
			passed++
		default:
			failed++
		}
	}
	if failed >= repeatTries || strange >= strangerTries {
		return 0
	}
	return max(0, wanted-passed)
}

// repeatable reports whether a recording more of the record means anything: its
// search has ended with a result.
func repeatable(r *Record) bool {
	return r.Settled != nil && r.Settled.State != proto.CellFailed && r.Settled.State != proto.CellCancelled
}

// issuable reports whether a record takes a request: one in work takes what its
// search asks for, one that has settled takes repeats.
func issuable(r *Record, request IssueRequest) bool {
	if request.Repeat {
		return repeatable(r)
	}
	return r.Settled == nil
}

// refuseRepeatLocked refuses a repeat of what has no result.
func (m *Machine) refuseRepeatLocked(cmd *AddSweep, ids []proto.CellID) string {
	if repeats(cmd.Rollout) == 0 {
		return ""
	}
	for _, id := range ids {
		if r := m.records.m[Key{Origin: cmd.Origin, Cell: id}]; r == nil || !repeatable(r) && m.sweeps.m[cmd.ID] == nil {
			return fmt.Sprintf("cell %s has no result yet, so there is nothing to repeat", id)
		}
	}
	return ""
}

// closeRepeatsLocked closes the open repeats of a settled record that no other
// live sweep waits for.
func (m *Machine) closeRepeatsLocked(record *Record) []proto.Task {
	if len(record.Open) == 0 || slices.ContainsFunc(record.Sweeps, func(id proto.MatrixID) bool { return m.sweeps.m[id].Missing(record) > 0 }) {
		return nil
	}
	var closed []proto.Task
	for _, open := range record.Open {
		closed = append(closed, open.Task)
	}
	m.updateLocked(record, func(r *Record) { r.Open = nil })
	return closed
}

// repeating reports whether a sweep waits for recordings of settled cells.
func (v View) repeating(s *Sweep) bool {
	return repeats(s.Rollout) > 0 && slices.ContainsFunc(s.Cells, func(id proto.CellID) bool {
		return s.Missing(v.Records[Key{Origin: s.Origin, Cell: id}]) > 0
	})
}

// recording reports whether the run is an uncapped recording that passed.
func (r *Run) recording() bool {
	return r.Kind == proto.TaskRecord && r.Quota == 0 && r.Outcome.Verdict() == proto.VerdictPass
}

// recordings are what all of the record's recordings showed, in log order.
func (r *Record) recordings() []proto.Recording {
	var out []proto.Recording
	for i := range r.Runs {
		run := &r.Runs[i]
		if !run.recording() {
			continue
		}
		m := run.Meters
		out = append(out, proto.Recording{
			PeakAllocated: known(m.PeakAllocated), PeakReserved: known(m.PeakReserved), ProcessPeak: known(m.ProcessPeak),
			Context: known(m.Context), Weights: known(m.Weights), LoadedReserved: known(m.LoadedReserved),
			CUDA: run.Stack.CUDA, Torch: run.Stack.Torch,
		})
	}
	return out
}

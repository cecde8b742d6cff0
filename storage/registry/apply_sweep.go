package registry

import (
	"fmt"
	"slices"
	"strings"

	"github.com/oomfleet/oomfleet/proto"
)

func (m *Machine) addSweepLocked(cmd *AddSweep) Reply {
	if why := refuseSweep(cmd); why != "" {
		return Reply{Refused: why}
	}
	cells, ids := canonicalCells(cmd.Cells)
	if reply, again := m.againLocked(cmd, ids); again {
		return reply
	}
	if why := m.refuseRepeatLocked(cmd, ids); why != "" {
		return Reply{Refused: why}
	}
	if known := m.sweeps.m[cmd.ID]; known != nil {
		if known.Origin != cmd.Origin || !slices.Equal(known.Cells, ids) {
			return Reply{Refused: fmt.Sprintf("sweep %s exists with other cells: submit under another id", cmd.ID)}
		}
		reply := m.countCellsLocked(cmd.Origin, ids, nil)
		reply.Sweep = cmd.ID
		return reply
	}
	m.sweeps.put(cmd.ID, &Sweep{ID: cmd.ID, Name: cmd.Name, Origin: cmd.Origin, Search: cmd.Search, Source: cmd.Source,
		Set: cmd.Set, Cells: ids, Submission: Submission{m.appliedTime, m.appliedIndex, cmd.Request}, Rollout: cmd.Rollout})
	created := make(map[proto.CellID]bool)
	for i, cell := range cells {
		key := Key{Origin: cmd.Origin, Cell: ids[i]}
		record := m.records.m[key]
		if record == nil {
			created[ids[i]] = true
			m.records.put(key, &Record{Key: key, Cell: cell, Search: cmd.Search, Sweeps: []proto.MatrixID{cmd.ID},
				NextRun: 1, LastIndex: m.appliedIndex})
			continue
		}
		m.joinLocked(record, cmd)
	}
	reply := m.countCellsLocked(cmd.Origin, ids, created)
	reply.Accepted, reply.Sweep = true, cmd.ID
	return reply
}

func refuseSweep(cmd *AddSweep) string {
	switch {
	case cmd.ID == "" || strings.Trim(string(cmd.ID), "abcdefghijklmnopqrstuvwxyz0123456789-") != "":
		return fmt.Sprintf("sweep id %q is not of [a-z0-9-]", cmd.ID)
	case cmd.Origin != proto.OriginMeasured && cmd.Origin != proto.OriginSimulated:
		return fmt.Sprintf("a sweep is measured or simulated, not %q: nothing else can be run", cmd.Origin)
	case len(cmd.Cells) == 0:
		return "a sweep needs at least one cell"
	}
	return refuseRequestKey(cmd.Request)
}

// canonicalCells sorts cells and leaves out doubles. Cells come sorted from the
// matrix as a rule; sorting them again would cost most of the command's time.
func canonicalCells(cells []proto.Cell) ([]proto.Cell, []proto.CellID) {
	if !slices.IsSortedFunc(cells, proto.Cell.Compare) {
		cells = slices.Clone(cells)
		slices.SortFunc(cells, proto.Cell.Compare)
	}
	kept := make([]proto.Cell, 0, len(cells))
	ids := make([]proto.CellID, 0, len(cells))
	for _, cell := range cells {
		if cell.Env == nil {
			cell.Env = map[string]string{}
		}
		id := cell.ID()
		if n := len(ids); n > 0 && ids[n-1] == id {
			continue
		}
		kept, ids = append(kept, cell), append(ids, id)
	}
	return kept, ids
}

func (m *Machine) countCellsLocked(origin proto.Origin, ids []proto.CellID, created map[proto.CellID]bool) Reply {
	var reply Reply
	for _, id := range ids {
		switch record := m.records.m[Key{Origin: origin, Cell: id}]; {
		case created[id]:
			reply.New++
		case record.Settled != nil:
			reply.Settled++
		default:
			reply.Known++
		}
	}
	return reply
}

// joinLocked adds a known record to a new sweep and reopens it if need be.
func (m *Machine) joinLocked(record *Record, cmd *AddSweep) {
	if repeats(cmd.Rollout) > 0 { // what has settled stays as it is
		m.updateLocked(record, func(r *Record) { r.Sweeps = append(slices.Clip(r.Sweeps), cmd.ID) })
		return
	}
	m.updateLocked(record, func(r *Record) {
		merged := widen(r.Search, cmd.Search)
		more := merged != r.Search
		r.Search = merged
		r.Sweeps = append(slices.Clip(r.Sweeps), cmd.ID)
		if s := r.Settled; s != nil && (more || s.State == proto.CellCancelled || s.State == proto.CellFailed) {
			m.reopenLocked(r.Key, s)
			r.Settled = nil
			r.RunsBefore = len(r.Runs)
		}
	})
}

// updateLocked replaces a record by a changed copy; change must replace slices
// and pointers, never write through them.
func (m *Machine) updateLocked(record *Record, change func(*Record)) {
	next := *record
	change(&next)
	next.LastIndex = m.appliedIndex
	m.records.put(next.Key, &next)
}

// widen is the search that satisfies both a and b. Prediction wins over
// bisection, because it answers what a bisection does and more.
func widen(a, b proto.Search) proto.Search {
	out := a
	if b.Strategy == proto.StrategyPredict {
		out.Strategy = b.Strategy
	}
	if certifyRank(b.Certify) > certifyRank(a.Certify) {
		out.Certify = b.Certify
	}
	out.SamplePercent = max(a.SamplePercent, b.SamplePercent)
	if out.Certify != proto.CertifySample {
		out.SamplePercent = 0
	}
	out.Min = min(a.Min, b.Min)
	if out.Max = max(a.Max, b.Max); a.Max == 0 || b.Max == 0 {
		out.Max = 0 // zero is the card's total memory, the widest there is
	}
	return out
}

func certifyRank(c proto.Certify) int {
	return slices.Index([]proto.Certify{proto.CertifyNone, proto.CertifySample, proto.CertifyEdges, proto.CertifyAll}, c)
}

func (m *Machine) cancelSweepLocked(cmd *CancelSweep) Reply {
	known := m.sweeps.m[cmd.ID]
	if known == nil {
		return Reply{Refused: fmt.Sprintf("there is no sweep %q", cmd.ID)}
	}
	if known.Cancelled {
		return Reply{}
	}
	if !slices.ContainsFunc(known.Cells, func(id proto.CellID) bool {
		record := m.records.m[Key{Origin: known.Origin, Cell: id}]
		return record.Settled == nil || known.Missing(record) > 0
	}) {
		if known.Standing() {
			m.endOrderLocked(known)
			return Reply{Accepted: true}
		}
		return Reply{Refused: fmt.Sprintf("sweep %s has settled: there is nothing to cancel, and its results stay", cmd.ID)}
	}
	sweep := *known
	sweep.Cancelled, sweep.CancelledIndex = true, m.appliedIndex
	m.sweeps.put(sweep.ID, &sweep)
	reply := Reply{Accepted: true}
	for _, id := range sweep.Cells {
		record := m.records.m[Key{Origin: sweep.Origin, Cell: id}]
		if record.Settled != nil {
			reply.Closed = append(reply.Closed, m.closeRepeatsLocked(record)...)
			continue
		}
		if m.wantedLocked(record) {
			continue
		}
		for _, open := range record.Open {
			reply.Closed = append(reply.Closed, open.Task)
		}
		m.updateLocked(record, func(r *Record) {
			r.Open = nil
			r.Settled = &Settlement{State: proto.CellCancelled, Reason: "every sweep that wanted this cell was cancelled",
				Boundary: proto.Boundary{FailBands: []proto.Band{}}, Index: m.appliedIndex, Revision: m.revisionLocked(r.Key)}
		})
	}
	return reply
}

// wantedLocked reports whether a live sweep wants the record.
func (m *Machine) wantedLocked(record *Record) bool {
	return slices.ContainsFunc(record.Sweeps, func(id proto.MatrixID) bool { return !m.sweeps.m[id].Cancelled })
}

package registry

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/oomfleet/oomfleet/proto"
)

// States of a sweep in a proto.Report and a Summary.
const (
	SweepRunning   = "running"   // at least one cell is in work
	SweepSettled   = "settled"   // every cell has settled
	SweepCancelled = "cancelled" // cancelled; cells that had settled before keep their results
)

// Report is the status document of a sweep; false when there is none of that
// id. Role is left to whoever answers.
func (v View) Report(id proto.MatrixID) (proto.Report, bool) {
	sweep := v.Sweeps[id]
	if sweep == nil {
		return proto.Report{}, false
	}
	report := proto.Report{
		Matrix: proto.MatrixRef{Name: sweep.Name, ID: sweep.ID}, Origin: sweep.Origin,
		Cells: make([]proto.CellReport, 0, len(sweep.Cells)), Coefficients: []proto.Coefficients{},
		AppliedIndex: v.AppliedIndex, Rollout: sweep.Rollout,
	}
	groups := make(map[GroupKey]bool)
	for _, cell := range sweep.Cells {
		record := v.Records[Key{Origin: sweep.Origin, Cell: cell}]
		row := record.Report()
		if sweep.Cancelled && record.Settled == nil {
			row.State, row.Reason = proto.CellCancelled, "this sweep was cancelled; the cell goes on for another one"
		}
		count(&report.Counts, row.State, record.Settled != nil)
		report.Cells = append(report.Cells, row)
		groups[GroupOf(record)] = true
	}
	if report.State = v.sweepState(sweep, report.Counts); report.State == SweepRunning {
		report.Open = v.open(sweep)
	}
	for _, key := range slices.SortedFunc(maps.Keys(groups), GroupKey.Compare) {
		if set := v.Coefficients[key]; set != nil {
			report.Coefficients = append(report.Coefficients, set.Models...)
		}
	}
	return report, true
}

// open are the cells of a sweep that have an open task, by stack. A task of a
// settled cell is a repeat, of this sweep or of another one.
func (v View) open(sweep *Sweep) []proto.OpenCells {
	type stack struct{ gpu, driver string }
	found := make(map[stack]*proto.OpenCells)
	var out []proto.OpenCells
	for _, id := range sweep.Cells {
		r := v.Records[Key{Origin: sweep.Origin, Cell: id}]
		if len(r.Open) == 0 || r.Settled != nil && sweep.Missing(r) == 0 {
			continue
		}
		on := stack{r.Cell.GPU, r.Cell.Driver}
		if found[on] == nil {
			found[on] = &proto.OpenCells{GPU: on.gpu, Driver: on.driver, Since: r.Open[0].Issued}
		}
		found[on].Cells++
		for _, o := range r.Open {
			if o.Issued.Before(found[on].Since) {
				found[on].Since = o.Issued
			}
		}
	}
	for _, cells := range found {
		out = append(out, *cells)
	}
	slices.SortFunc(out, func(a, b proto.OpenCells) int {
		return cmp.Or(strings.Compare(a.GPU, b.GPU), strings.Compare(a.Driver, b.Driver))
	})
	return out
}

// State is how far the cell has come.
func (r *Record) State() proto.CellState {
	switch {
	case r.Settled != nil:
		return r.Settled.State
	case len(r.Open) > 0:
		return proto.CellRunning
	case r.Prediction != nil && r.Prediction.Refused == "":
		return proto.CellPredicted
	case r.Recording() != nil:
		return proto.CellRecorded
	case len(r.Runs) > 0:
		return proto.CellRunning // between two runs
	}
	return proto.CellPending
}

// Report is the record as one row. The boundary is filled in once the cell has
// settled; until then PredictedBytes is all that is claimed.
func (r *Record) Report() proto.CellReport {
	row := proto.CellReport{
		ID: r.Key.Cell, GPU: r.Cell.GPU, Driver: r.Cell.Driver, Workload: r.Cell.Workload,
		SeqLen: r.Cell.SeqLen, Batch: r.Cell.Batch, ChunkSize: r.Cell.ChunkSize, Env: r.Cell.Env,
		QuotaKind: r.Cell.QuotaKind, Step: r.Cell.Step, Origin: r.Key.Origin, State: r.State(), LateResults: r.Late,
		Recordings: r.recordings(),
	}
	if row.Env == nil {
		row.Env = map[string]string{}
	}
	if p := r.Prediction; p != nil {
		row.PredictedBytes, row.PredictedFrom, row.Program = p.Boundary.Boundary, r.PredictedFrom(), p.Program
		row.PredictedPeakAllocated, row.PredictedPeakReserved = p.PeakAllocated, p.PeakReserved
	}
	if r.Settled != nil {
		row.Boundary, row.Reason = r.Settled.Boundary, r.Settled.Reason
	}
	row.FailBands = notNil(row.FailBands)
	for i := range r.Runs {
		run := &r.Runs[i]
		row.GPUSeconds += run.Seconds // in log order: the same sum everywhere
		if run.Kind == proto.TaskProbe {
			row.Probes++
		}
	}
	row.Stack = r.stack()
	if recording := r.Recording(); recording != nil {
		row.PeakAllocated = known(recording.Meters.PeakAllocated)
		row.PeakReserved = known(recording.Meters.PeakReserved)
		row.ProcessPeak = known(recording.Meters.ProcessPeak)
		row.Trace = recording.Trace
	}
	return row
}

// known is a meter's value, 0 when it could not be read.
func known(b *proto.Bytes) proto.Bytes {
	if b == nil {
		return 0
	}
	return *b
}

// count puts a cell into its bucket. A cell that is recorded or predicted but
// not settled is in work, hence running.
func count(c *proto.Counts, state proto.CellState, settled bool) {
	c.Total++
	switch {
	case state == proto.CellPending:
		c.Pending++
	case state == proto.CellRunning, state == proto.CellRecorded, state == proto.CellPredicted && !settled:
		c.Running++
	case state == proto.CellPredicted:
		c.Predicted++
	case state == proto.CellCertified:
		c.Certified++
	case state == proto.CellBisected:
		c.Bisected++
	case state == proto.CellAdaptive:
		c.Adaptive++
	case state == proto.CellFailed:
		c.Failed++
	case state == proto.CellCancelled:
		c.Cancelled++
	default:
		panic("registry: cell state " + string(state) + " has no bucket in proto.Counts")
	}
}

func (v View) sweepState(s *Sweep, c proto.Counts) string {
	switch {
	case s.Cancelled:
		return SweepCancelled
	case c.Settled() == c.Total && !v.repeating(s):
		return SweepSettled
	}
	return SweepRunning
}

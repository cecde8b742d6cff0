package registry

import (
	"fmt"
	"slices"

	"github.com/oomfleet/oomfleet/proto"
)

// Whole reports whether a state that came from outside holds together, with
// ErrSnapshotDamaged if not. A checksum tells only that a backup is as somebody
// wrote it; what Apply and View follow without a look must be there, or every
// node that restores it would end at the same entry, for ever.
func (v View) Whole() error {
	if why := v.broken(); why != "" {
		return fmt.Errorf("%w: %s", ErrSnapshotDamaged, why)
	}
	return nil
}

// broken says what does not hold together, empty for nothing.
func (v View) broken() string {
	if v.AppliedIndex > 1<<62 { // the log goes on behind it
		return fmt.Sprintf("no log is %d entries long", v.AppliedIndex)
	}
	for id, sweep := range v.Sweeps {
		if why := refuseSweep(&AddSweep{ID: id, Origin: sweep.Origin, Cells: make([]proto.Cell, len(sweep.Cells))}); why != "" {
			return why
		}
		for _, cell := range sweep.Cells {
			if v.Records[Key{Origin: sweep.Origin, Cell: cell}] == nil {
				return fmt.Sprintf("sweep %.80q has a cell %.80q without a record", id, cell)
			}
		}
	}
	for key, record := range v.Records {
		if key.Origin != proto.OriginMeasured && key.Origin != proto.OriginSimulated {
			return fmt.Sprintf("the record of cell %.80q is of origin %.80q", key.Cell, key.Origin)
		}
		for _, id := range record.Sweeps {
			if v.Sweeps[id] == nil {
				return fmt.Sprintf("the record of cell %.80q names a sweep %.80q that is not there", key.Cell, id)
			}
		}
		if s := record.Settled; s != nil && s.State != proto.CellCancelled && !slices.Contains(settledStates(), s.State) {
			return fmt.Sprintf("the record of cell %.80q has settled as %.80q", key.Cell, s.State)
		}
		for _, run := range record.Runs {
			if !run.Outcome.Known() {
				return fmt.Sprintf("a run of cell %.80q has the outcome %.80q", key.Cell, run.Outcome)
			}
		}
	}
	for key := range v.History {
		if v.Coefficients[key] == nil {
			return fmt.Sprintf("earlier coefficients of %.80q have none that followed them", key.Group)
		}
	}
	for key, set := range v.Coefficients {
		if len(set.Models) == 0 {
			return fmt.Sprintf("coefficients of %.80q have no model", key.Group)
		}
		if _, err := proto.ParseOrigin(string(key.Origin)); err != nil {
			return "coefficients: " + err.Error()
		}
	}
	return ""
}

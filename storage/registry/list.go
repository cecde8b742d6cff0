package registry

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/oomfleet/oomfleet/proto"
)

// Summary is one sweep in a list: its report without the cells.
type Summary struct {
	Matrix    proto.MatrixRef `json:"matrix"`
	Origin    proto.Origin    `json:"origin"`
	State     string          `json:"state"` // SweepRunning, SweepSettled or SweepCancelled
	Counts    proto.Counts    `json:"counts"`
	Submitted time.Time       `json:"submitted"`
	Rollout   *proto.Rollout  `json:"rollout,omitempty"`
}

// SweepList is every sweep, the newest first; empty, never nil, for none.
func (v View) SweepList() []Summary {
	sweeps := make([]*Sweep, 0, len(v.Sweeps))
	for _, sweep := range v.Sweeps {
		sweeps = append(sweeps, sweep)
	}
	slices.SortFunc(sweeps, func(a, b *Sweep) int {
		return cmp.Or(cmp.Compare(b.Index, a.Index), strings.Compare(string(a.ID), string(b.ID)))
	})
	list := make([]Summary, 0, len(sweeps))
	for _, sweep := range sweeps {
		list = append(list, v.Summary(sweep))
	}
	return list
}

// Summary is one sweep as it is listed.
func (v View) Summary(sweep *Sweep) Summary {
	counts := v.counts(sweep)
	return Summary{Matrix: proto.MatrixRef{Name: sweep.Name, ID: sweep.ID}, Origin: sweep.Origin,
		State: v.sweepState(sweep, counts), Counts: counts, Submitted: sweep.Submitted, Rollout: sweep.Rollout}
}

func (v View) counts(sweep *Sweep) proto.Counts {
	var counts proto.Counts
	for _, cell := range sweep.Cells {
		record := v.Records[Key{Origin: sweep.Origin, Cell: cell}]
		state := record.State()
		if sweep.Cancelled && record.Settled == nil {
			state = proto.CellCancelled
		}
		count(&counts, state, record.Settled != nil)
	}
	return counts
}

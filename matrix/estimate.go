package matrix

import (
	"fmt"
	"math/bits"

	"github.com/oomfleet/oomfleet/proto"
)

// Estimate is what a sweep will ask of its agents, before any of it has run.
type Estimate struct {
	Cells int `json:"cells"`
	// Recordings is the uncapped runs: one for each cell at most, fewer where
	// one recording answers for several cells.
	Recordings int `json:"recordings"`
	// Probes is the runs under a quota that are to be expected. Predictions
	// that do not hold, and the fail bands of certify all, come on top.
	Probes int `json:"probes"`
}

// bisectProbes is what a bisection takes when the recording narrows the bracket
// to peak allocated and peak reserved bytes: those lie one to two GiB apart, ten
// halvings of the 2 MiB grid.
const bisectProbes = 10

// EstimateFor returns the estimate for so many cells that are not yet known.
func EstimateFor(cells int, search proto.Search, step proto.Bytes) Estimate {
	e := Estimate{Cells: cells, Recordings: cells}
	switch {
	case search.Strategy == proto.StrategyBisect:
		e.Probes = cells * halvings(search, step)
	case search.Certify == proto.CertifyNone:
	case search.Certify == proto.CertifySample:
		e.Probes = 2 * ((cells*search.SamplePercent + 99) / 100)
	default:
		e.Probes = 2 * cells
	}
	return e
}

// halvings is bisectProbes, or less where the quota range itself is narrower.
func halvings(search proto.Search, step proto.Bytes) int {
	if search.Max <= search.Min || step <= 0 {
		return bisectProbes
	}
	steps := uint64((search.Max - search.Min) / step)
	return min(bisectProbes, bits.Len64(steps))
}

// Estimate returns the estimate for the whole expansion, as if no cell of it had
// run before.
func (e *Expansion) Estimate() Estimate {
	return EstimateFor(len(e.Cells), e.Search, e.Cells[0].Step)
}

// String is the estimate for people.
func (e Estimate) String() string {
	return fmt.Sprintf("%d cells: up to %d recordings and about %d probes", e.Cells, e.Recordings, e.Probes)
}

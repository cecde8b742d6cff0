package plan

import (
	"github.com/oomfleet/oomfleet/proto"
	"github.com/oomfleet/oomfleet/storage/registry"
)

const (
	// expandableSlack: with expandable segments a run may reserve up to just
	// under one 20 MiB page more than its quota, so a quota this much below
	// the allocated peak can still pass.
	expandableSlack = 20 * proto.MiB
	// overheadMargin is how far the non-allocator bytes of a run under a
	// device or process quota may lie from the recording's.
	overheadMargin = 32 * proto.MiB
	// overheadUnknown stands in for an overhead that was not metered: a CUDA
	// context with its modules takes 0.6 to 0.8 GiB.
	overheadUnknown = 1 * proto.GiB
	// largestCard bounds the search where no card told its size.
	largestCard = 1024 * proto.GiB
)

// gridOf is the cell's step.
func gridOf(c proto.Cell) proto.Bytes {
	if c.Step > 0 {
		return c.Step
	}
	return proto.DefaultStep
}

// totalOf is the memory of the card that a run was made on.
func totalOf(run *registry.Run) proto.Bytes {
	if run.Card.Total <= 0 && run.Meters.DeviceTotal != nil {
		return *run.Meters.DeviceTotal
	}
	return run.Card.Total
}

// limitsOf is the range of quotas that probes may use: the matrix's, cut to
// what the recording's card holds, on the grid.
func limitsOf(rec *registry.Record, total proto.Bytes) limits {
	lim := limits{step: gridOf(rec.Cell)}
	lim.min = max(rec.Search.Min.RoundUp(lim.step), lim.step)
	if total <= 0 {
		total = largestCard
	}
	lim.max = total
	if rec.Search.Max > 0 {
		lim.max = min(lim.max, rec.Search.Max)
	}
	lim.max = max(lim.max.RoundDown(lim.step), lim.min)
	return lim
}

// bracketOf reads the assumed edges off the recording: what it had allocated
// cannot fit into less, and what it had reserved is enough. A device or process
// quota pays the non-allocator bytes on top.
func bracketOf(c proto.Cell, run *registry.Run, lim limits) bracket {
	br := bracket{lo: lim.min - lim.step, hi: lim.max}
	overhead, margin := proto.Bytes(0), proto.Bytes(0)
	if c.QuotaKind != proto.QuotaAllocator {
		margin = overheadMargin
		var metered bool
		if overhead, metered = overheadOf(run.Meters); !metered {
			margin = overheadUnknown
		}
	}
	if p := run.Meters.PeakAllocated; p != nil {
		br.lo = (*p + overhead).RoundDown(lim.step) - (expandableSlack + margin).RoundUp(lim.step)
		if margin == overheadUnknown {
			br.lo = p.RoundDown(lim.step) - expandableSlack.RoundUp(lim.step)
		}
	}
	if p := run.Meters.PeakReserved; p != nil {
		br.hi = (*p + overhead + margin).RoundUp(lim.step)
	}
	return br
}

// overheadOf is what the process held on the card beside the allocator's
// reserved bytes, and whether the run's meters tell.
func overheadOf(m proto.Meters) (overhead proto.Bytes, metered bool) {
	if m.ProcessPeak == nil || m.PeakReserved == nil {
		return 0, false
	}
	return max(0, *m.ProcessPeak-*m.PeakReserved), true
}

package trace

import (
	"github.com/oomfleet/oomfleet/proto"
)

// Meta is what a trace file says of its run beside the events. Everything is
// optional: a zero value means that the file does not say.
type Meta struct {
	// Cell is the run's cell. A file that was not written by this fleet knows
	// less: its quota kind, step and environment are empty.
	Cell  proto.Cell
	Stack proto.Stack
	// Origin is measured or simulated; empty in a file from elsewhere.
	Origin proto.Origin
	// Settings are the allocator's effective settings as the run saw them.
	// Values that are not text are kept as compact JSON.
	Settings map[string]string
	// Peaks of the whole run as its meters showed them, and what the process
	// held before its first tensor.
	PeakAllocated proto.Bytes
	PeakReserved  proto.Bytes
	ProcessPeak   proto.Bytes
	Context       proto.Bytes
	Weights       proto.Bytes
	// DeviceTotal is the card's memory.
	DeviceTotal proto.Bytes
	// Truncated says that the start of the trace was lost.
	Truncated bool
	// Extra are the keys of the file that have no field here, kept as they are.
	Extra map[string]string
}

// OutsideAllocator is what the process held beside the allocator's segments at
// its peak (context, modules, libraries): process peak less reserved peak.
// False when one of the two is not known.
func (m Meta) OutsideAllocator() (proto.Bytes, bool) {
	if m.ProcessPeak == 0 || m.PeakReserved == 0 || m.ProcessPeak < m.PeakReserved {
		return 0, false
	}
	return m.ProcessPeak - m.PeakReserved, true
}

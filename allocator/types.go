package allocator

import "fmt"

// Action is what happened in one entry of an allocator trace.
type Action uint8

// The actions of torch's device traces. Alloc and FreeRequested are the
// program's own; every other is an outcome that replay checks and never runs.
const (
	Alloc Action = iota + 1
	FreeRequested
	FreeCompleted
	SegmentAlloc
	SegmentFree
	SegmentMap
	SegmentUnmap
	OOM
	Snapshot
)

// String is torch's own name of the action, as in the Parquet column.
func (a Action) String() string {
	switch a {
	case Alloc:
		return "alloc"
	case FreeRequested:
		return "free_requested"
	case FreeCompleted:
		return "free_completed"
	case SegmentAlloc:
		return "segment_alloc"
	case SegmentFree:
		return "segment_free"
	case SegmentMap:
		return "segment_map"
	case SegmentUnmap:
		return "segment_unmap"
	case OOM:
		return "oom"
	case Snapshot:
		return "snapshot"
	}
	return fmt.Sprintf("action(%d)", uint8(a))
}

// ParseAction reads torch's name of an action.
func ParseAction(name string) (Action, error) {
	for a := Alloc; a <= Snapshot; a++ {
		if a.String() == name {
			return a, nil
		}
	}
	return 0, fmt.Errorf("unknown allocator action %q", name)
}

// Event is one entry of an allocator trace. Size is in bytes: the requested,
// unrounded size for Alloc and the frees, the driver's size for segments, the
// rounded size for OOM (whose Addr is the device's free bytes). TimeUS is
// microseconds since the epoch, 0 where it was not recorded.
type Event struct {
	Addr   uint64
	Size   int64
	Stream int64
	TimeUS int64
	Action Action
}

// Limit bounds a replay. The zero value bounds nothing.
type Limit struct {
	// Cap is the per-process fraction in bytes: the allocator refuses to hold
	// more reserved bytes than this. 0 is no cap.
	Cap int64
	// Device is how many bytes the driver can give this allocator: what the
	// card or the process limit leaves, less the bytes that the process holds
	// outside the allocator. 0 is no limit.
	Device int64
}

// ReplayResult is what a replay came to. Peaks are in bytes.
type ReplayResult struct {
	// OOM is whether an allocation was refused for good; the replay stops
	// there, since what the program would do next is unknown.
	OOM bool
	// OOMAt is the index of the refused event, -1 without one; Tried is what
	// was asked of the driver then (the number in torch's message).
	OOMAt int
	Tried int64
	// Peaks over the run, as torch's memory_stats counts them.
	PeakReserved  int64
	PeakAllocated int64
	PeakActive    int64
	// Reserved and Allocated are the values when the replay stopped.
	Reserved  int64
	Allocated int64
	// Retries is num_alloc_retries, OOMs num_ooms.
	Retries int
	OOMs    int
	// Stopped is whether the replay was ended (ReplayOptions.Stop); nothing else
	// is set then.
	Stopped bool
}

// SelfCheckReport compares a recording with the model's own placement.
type SelfCheckReport struct {
	// Mismatches counts allocations and segments that landed elsewhere, or
	// with another size, than they were recorded. Any mismatch means that the
	// recording holds something that the model does not know: do not predict.
	Mismatches int
	// First says what the first mismatch was, for people; empty without one.
	First string
	// Allocs and Segments are how many were compared.
	Allocs   int
	Segments int
}

// Band is a run of failing quotas between the lowest pass and the boundary, in
// bytes; both ends are inside the band and on the grid.
type Band struct {
	From int64
	To   int64
}

// LimitKind says which limit a sweep varies.
type LimitKind uint8

const (
	// SweepCap varies Limit.Cap (quota kind allocator).
	SweepCap LimitKind = iota
	// SweepDevice varies Limit.Device plus an overhead (quota kinds device
	// and process).
	SweepDevice
)

// SweepOptions says what to sweep over.
type SweepOptions struct {
	// Settings are the allocator's settings to predict for; Recorded are those
	// that the trace was recorded under (for the self-check).
	Settings Settings
	Recorded Settings
	// Kind is the limit to vary; Overhead the bytes that the process holds
	// beside the allocator, counted by SweepDevice only.
	Kind     LimitKind
	Overhead int64
	// Step is the grid of quotas in bytes; 0 is 2 MiB.
	Step int64
	// DeviceTotal is the card's total in bytes: no larger quota is looked at.
	// 0 looks as far up as the program reaches.
	DeviceTotal int64
	// Ceiling, if not 0, is a quota above which none is looked at, as with
	// DeviceTotal: AboveDevice then says that the ceiling itself fails.
	Ceiling int64
	// MaxReplays bounds the replays, for each layout; 0 is 20,000.
	MaxReplays int
	// MaxWork bounds what is done in all, in steps of a nanosecond or a few; 0 is
	// 2^36, a few minutes.
	MaxWork int64
	// Stop, when set, is asked every few hundredths of a second; true ends the
	// sweep.
	Stop func() bool
}

// SweepResult is the exact map of outcomes over all quotas, on the grid.
type SweepResult struct {
	// Boundary is the smallest quota from which on every quota passes;
	// LowestPass the smallest that passes at all.
	Boundary   int64
	LowestPass int64
	// AboveDevice is whether the largest quota of the card fails: Boundary is
	// then a quota above it that passes, not the smallest such.
	AboveDevice bool
	// NoRetry is the smallest quota on the grid from which on the allocator
	// never flushes and tries again: the exact value, rounded up to the grid.
	NoRetry int64
	// FailBands lie between LowestPass and Boundary, ascending.
	FailBands []Band
	// Replays is how many replays the sweep took.
	Replays int
	// Steps is how many allocations and frees were executed for it in all, the
	// self-check included.
	Steps int
	// LayoutSensitive is whether the map depends on the addresses that the
	// driver hands out (ties between equal segments).
	LayoutSensitive bool
	// SelfCheckMismatches is SelfCheck's count; when it is not zero, nothing
	// else in the result is set.
	SelfCheckMismatches int
	// Uncapped is the replay without a limit, under Settings.
	Uncapped ReplayResult
	// Map is every path, by falling quota. Quotas below the last one all fail:
	// the program alone holds more.
	Map []Interval
}

// Interval is a run of quotas under which the program takes one and the same
// path through the allocator: those on the grid from From up to, not including,
// To (math.MaxInt64: no end).
type Interval struct {
	From int64
	To   int64
	// Pass is whether the program ends without an out-of-memory.
	Pass bool
	// Retries and PeakReserved are what the replay shows there.
	Retries      int
	PeakReserved int64
}

package allocator

// Sizes of the caching allocator, in bytes (allocator source, torch 2.11).
const (
	minBlock       = 512      // every block is a multiple
	smallSize      = 1 << 20  // largest rounded size of the small pool
	smallSegment   = 2 << 20  // driver request of the small pool
	minLarge       = 10 << 20 // from here on the driver request follows the size
	roundLarge     = 2 << 20  // and is rounded up to this
	defaultSegment = 20 << 20 // driver request of sizes between small and minLarge
)

// Settings are the effective allocator settings that decide where blocks go.
// The zero value is the default of every setting.
type Settings struct {
	// MaxSplit is max_split_size in bytes; 0 is unlimited.
	MaxSplit int64
	// MaxNonSplit is max_non_split_rounding in bytes; 0 is the large segment.
	MaxNonSplit int64
	// LargeSegment is the driver request for sizes between 1 and 10 MiB; 0 is
	// 20 MiB.
	LargeSegment int64
	// GCThreshold is garbage_collection_threshold, a share of the cap between 0
	// and 1; 0 is off. It works under a cap only.
	GCThreshold float64
	// Divisions is roundup_power2_divisions: one entry for each power of two
	// from 1 MiB to 32 GiB; 0 and 1 are plain rounding.
	Divisions [16]int64
	// Expandable is expandable_segments.
	Expandable bool
	// Fraction is per_process_memory_fraction; 0 is unset. Replay ignores it:
	// whoever knows the card's total turns it into a cap.
	Fraction float64
	// ZeroFraction is a per_process_memory_fraction of exactly 0, under which
	// every request is refused.
	ZeroFraction bool
}

// largeSegment is LargeSegment with its default.
func (s *Settings) largeSegment() int64 {
	if s.LargeSegment > 0 {
		return s.LargeSegment
	}
	return defaultSegment
}

// maxNonSplit is MaxNonSplit with its default.
func (s *Settings) maxNonSplit() int64 {
	if s.MaxNonSplit > 0 {
		return s.MaxNonSplit
	}
	return s.largeSegment()
}

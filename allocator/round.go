package allocator

import "math/bits"

func leadingZeros(n int64) int { return bits.LeadingZeros64(uint64(n)) }

// divisionsFor is the entry of the divisions table for a request of n bytes:
// entry 0 holds for everything below 2 MiB, entry 15 for 32 GiB and more.
func (s *Settings) divisionsFor(n int64) int64 {
	i := 63 - leadingZeros(n) - 20
	return s.Divisions[min(max(i, 0), 15)]
}

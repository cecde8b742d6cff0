package allocator

import "math/bits"

// round is the size of the block that serves a request of n > 0 bytes: a
// multiple of 512, or of a fraction of the power of two below it where
// roundup_power2_divisions says so.
func (s *Settings) round(n int64) int64 {
	if n < minBlock {
		return minBlock
	}
	floor := int64(1) << (bits.Len64(uint64(n)) - 1)
	if d := s.Divisions[min(max(bits.Len64(uint64(n))-21, 0), 15)]; d > 1 && n > minBlock*d {
		step := floor / d
		switch {
		case n == floor:
			return n
		case step == 0:
			return 2 * floor
		}
		return (n + step - 1) / step * step
	}
	return upTo(n, minBlock)
}

// poolOf is the pool that serves a request: 0 is the small one.
func (s *Settings) poolOf(n int64) int {
	if n <= smallSize && (s.Divisions == [16]int64{} || s.round(n) <= smallSize) {
		return 0
	}
	return 1
}

// ask is what the driver is asked for when nothing cached serves a block of
// this size.
func (s *Settings) ask(size int64) int64 {
	switch {
	case size <= smallSize:
		return smallSegment
	case size < minLarge:
		return s.largeSegment()
	}
	return upTo(size, roundLarge)
}

// upTo rounds n up to a multiple of unit.
func upTo(n, unit int64) int64 { return (n + unit - 1) / unit * unit }

package allocator

import "math/bits"

// slots hands out the numbers of a program's live blocks, always the lowest
// that is vacant: few are touched, and a loop whose turns begin with the same
// live blocks uses the same numbers in each (see stretch). Its zero value has
// handed out none.
type slots struct {
	vacant []uint64 // bitmap of numbers below n
	low    int      // no word before this one has a vacant number
	n      int      // numbers ever handed out
}

func (s *slots) take() int32 {
	for ; s.low < len(s.vacant); s.low++ {
		if w := s.vacant[s.low]; w != 0 {
			s.vacant[s.low] = w & (w - 1)
			return int32(s.low*64 + bits.TrailingZeros64(w))
		}
	}
	if s.n%64 == 0 {
		s.vacant = append(s.vacant, 0)
	}
	s.low = s.n / 64
	s.n++
	return int32(s.n - 1)
}

func (s *slots) give(slot int32) {
	w := int(slot / 64)
	s.vacant[w] |= 1 << (slot % 64)
	s.low = min(s.low, w)
}

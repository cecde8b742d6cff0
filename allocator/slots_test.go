package allocator

import "testing"

// TestSlotsTakeTheLowest vacant number, across the words of the bitmap.
func TestSlotsTakeTheLowest(t *testing.T) {
	var s slots
	for want := range int32(130) {
		if got := s.take(); got != want {
			t.Fatalf("take %d, want %d", got, want)
		}
	}
	for _, slot := range []int32{129, 5, 64} {
		s.give(slot)
	}
	for _, want := range []int32{5, 64, 129, 130} {
		if got := s.take(); got != want {
			t.Errorf("take %d, want %d", got, want)
		}
	}
	if s.n != 131 {
		t.Errorf("%d numbers handed out", s.n)
	}
}

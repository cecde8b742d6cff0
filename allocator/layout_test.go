package allocator

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// TestLayoutDriver: the recorded addresses while the sizes agree, then those of
// driverSpace.
func TestLayoutDriver(t *testing.T) {
	const MiB, top = 1 << 20, uint64(0x7f0000000000)
	p := newPlacer(LayoutDriver, []recorded{{span: span{top, 2 * MiB}}, {span: span{top + 2*MiB, 20 * MiB}}, {span: span{top - 32*MiB, 32 * MiB}}})
	take := func(size int64, want uint64) {
		t.Helper()
		if got := p.take(size, size); got != want {
			t.Errorf("take %d MiB: %#x, want %#x", size/MiB, got, want)
		}
	}
	take(2*MiB, top)
	take(20*MiB, top+2*MiB)
	take(4*MiB, top+22*MiB)  // not what was recorded: into the hole of the region
	take(32*MiB, top-32*MiB) // a new region below
	take(40*MiB, top-96*MiB) // two regions, of which 24 MiB are left
	take(6*MiB, top-56*MiB)
	p.give(top+2*MiB, 20*MiB)
	take(18*MiB, top-50*MiB) // the lowest chunk with room
	take(20*MiB, top+2*MiB)
	take(6*MiB, top+26*MiB)
}

// TestLayoutDriverFindsPlaceTaken: a recorded address where a segment of the run
// still lies is not handed out, though as many were given back as in the
// recording.
func TestLayoutDriverFindsPlaceTaken(t *testing.T) {
	const MiB, top = 1 << 20, uint64(0x7f0000000000)
	a, b := span{top, 32 * MiB}, span{top - 32*MiB, 32 * MiB}
	for _, back := range []span{a, b} {
		segments := []recorded{{span: a}, {span: b}, {span: a, given: 1}}
		noteAgain(segments)
		p := newPlacer(LayoutDriver, segments)
		p.take(a.size, a.size)
		p.take(b.size, b.size)
		p.give(back.addr, back.size)
		if got := p.take(a.size, a.size); (got == a.addr) != (back == a) {
			t.Errorf("%#x given back: the next is at %#x", back.addr, got)
		}
	}
}

// TestLayoutsWithoutRecording: what the other layouts hand out.
func TestLayoutsWithoutRecording(t *testing.T) {
	const size = 2 << 20
	for layout, want := range map[Layout][4]int64{
		LayoutAscending:  {0, 1, 2, 3},
		LayoutDescending: {-1, -2, -3, -4},
		LayoutReuse:      {0, 1, 0, 2},
	} {
		p := newPlacer(layout, []recorded{{span: span{1, size}}})
		first := p.take(size, size)
		p.take(size, size)
		p.give(first, size)
		got := [4]int64{int64(first-1<<46) / size, 1, int64(p.take(size, size)-1<<46) / size, int64(p.take(size, size)-1<<46) / size}
		if layout == LayoutDescending {
			got[1] = -2
		}
		if got != want {
			t.Errorf("layout %d: %v, want %v", layout, got, want)
		}
	}
}

// TestLayoutsNeverOverlap: whatever is taken and given, no two live ranges
// share a byte and no hole lies under one.
func TestLayoutsNeverOverlap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := newPlacer(Layout(rapid.IntRange(0, 3).Draw(t, "layout")), nil)
		var live []span
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			if n := len(live); n > 0 && rapid.IntRange(0, 2).Draw(t, "give") == 0 {
				i := rapid.IntRange(0, n-1).Draw(t, "which")
				p.give(live[i].addr, live[i].size)
				live = append(live[:i], live[i+1:]...)
				continue
			}
			size := int64(rapid.IntRange(1, 40).Draw(t, "size")) * 2 << 20
			s := span{p.take(size, size), size}
			for _, other := range slices.Concat(live, p.space.holes, p.space.gaps) {
				if s.addr < other.end() && other.addr < s.end() {
					t.Fatalf("%+v overlaps %+v", s, other)
				}
			}
			live = append(live, s)
		}
	})
}

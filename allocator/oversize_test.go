package allocator

import (
	"reflect"
	"testing"

	"pgregory.net/rapid"
)

// TestOversizePart: with many requests around and above max_split_size, maps pool
// by pool are those of whole states, path for path, under every layout.
func TestOversizePart(t *testing.T) {
	apart := 0
	rapid.Check(t, func(t *rapid.T) {
		var events []Event
		var live []uint64
		for i := range uint64(rapid.IntRange(10, 60).Draw(t, "steps")) {
			if n := len(live); n > 0 && rapid.IntRange(0, 2).Draw(t, "free") > 0 {
				k := rapid.IntRange(0, n-1).Draw(t, "which")
				events = append(events, Event{Action: FreeRequested, Addr: live[k]}, Event{Action: FreeCompleted, Addr: live[k]})
				live = append(live[:k], live[k+1:]...)
				continue
			}
			live = append(live, (i+1)*512)
			events = append(events, Event{Action: Alloc, Addr: (i + 1) * 512, Size: drawMiB(t, "size", 1, 3, 15, 24, 28, 33, 48, 64, 65, 90, 128, 200)})
		}
		p, err := Compile(events)
		if err != nil {
			t.Fatal(err)
		}
		set := Settings{MaxSplit: drawMiB(t, "max split", 20, 25, 48, 64), MaxNonSplit: drawMiB(t, "max non split", 0, 64, 200)}
		if p.keepsApart(&set) {
			apart++
		}
		pools := newPools(p, &set, nil)
		o := SweepOptions{Settings: set, Step: roundLarge, MaxReplays: maxReplays}
		for layout := LayoutDriver; layout <= LayoutReuse; layout++ {
			if got, want := mapPools(t, p, o, layout, pools), mapWhole(t, p, o, layout); !reflect.DeepEqual(got, want) {
				t.Fatalf("%+v layout %d: pool by pool\n%+v\nwhole\n%+v", set, layout, got, want)
			}
		}
	})
	if apart == 0 {
		t.Error("no program had an oversize part")
	}
}

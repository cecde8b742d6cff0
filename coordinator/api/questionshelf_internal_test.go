package api

import (
	"fmt"
	"testing"

	"github.com/oomfleet/oomfleet/proto"
)

// TestShelfIsBounded: what is kept is bounded by number and by events, and what is
// too large for the shelf is answered all the same.
func TestShelfIsBounded(t *testing.T) {
	var k kept[int]
	reads := 0
	get := func(n, events int) {
		t.Helper()
		if got, err := k.get(proto.Digest(fmt.Sprint(n)), func() (int, int, error) { reads++; return n, events, nil }); got != n || err != nil {
			t.Errorf("%d is %d, %v", n, got, err)
		}
	}
	for n := range keptOnShelf + 1 {
		get(n, 1)
	}
	get(1, 1)
	if reads != keptOnShelf+1 || len(k.known) != keptOnShelf || k.events != keptOnShelf {
		t.Errorf("%d reads, %d are kept with %d events", reads, len(k.known), k.events)
	}
	get(100, keptEvents-1) // and one of those before
	if len(k.known) != 2 || k.events != keptEvents {
		t.Errorf("beside a large one %d are kept with %d events", len(k.known), k.events)
	}
	reads = 0
	get(101, keptEvents+1)
	get(101, keptEvents+1)
	if reads != 2 || len(k.known) != 0 || k.events != 0 || len(k.order) != 0 {
		t.Errorf("of one that is too large: %d reads, %d are kept with %d events", reads, len(k.known), k.events)
	}
}

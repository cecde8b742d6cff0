package allocator

import (
	"errors"
	"reflect"
	"testing"
)

const mib = 1 << 20

// e20 is the program of the worked example E20: it passes at 104 MiB, fails at
// 100 to 102, passes at 88 to 98 and fails below.
func e20(t *testing.T) *Program {
	t.Helper()
	for _, e := range readExamples(t) {
		if e.ID[:3] != "E20" {
			continue
		}
		a := New(Settings{}, Limit{}, 0)
		a.place = newPlacer(LayoutDriver, nil)
		var events []Event
		a.observe = func(e Event) { events = append(events, e) }
		names := map[string]int32{}
		for _, ev := range e.Events {
			if ev.Op == "alloc" {
				names[ev.ID], _ = a.Malloc(ev.Size, ev.Stream)
			} else {
				a.Free(names[ev.ID])
			}
		}
		p, err := Compile(events)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	t.Fatal("there is no example E20")
	return nil
}

// TestSweepOfANonMonotoneProgram, with the card's total above, inside and below
// the fail band.
func TestSweepOfANonMonotoneProgram(t *testing.T) {
	for _, c := range []struct {
		total, boundary, lowest int64
		above                   bool
	}{
		{0, 104, 88, false},
		{1000, 104, 88, false},
		{105, 104, 88, false},
		{102, 0, 88, true},
		{90, 88, 88, false},
		{80, 0, 0, true},
	} {
		r, err := e20(t).Sweep(SweepOptions{DeviceTotal: c.total * mib})
		if err != nil {
			t.Fatal(err)
		}
		if capped, err := e20(t).Sweep(SweepOptions{Ceiling: c.total * mib, DeviceTotal: 1000 * mib}); err != nil || !reflect.DeepEqual(capped, r) {
			t.Errorf("a ceiling of %d: %+v, a card of that size: %+v (%v)", c.total, capped, r, err)
		}
		if r.AboveDevice != c.above || !c.above && r.Boundary != c.boundary*mib || c.lowest > 0 && r.LowestPass != c.lowest*mib {
			t.Errorf("total %d: %+v", c.total, r)
		}
		if c.above && (r.Boundary <= c.total*mib || r.LowestPass > r.Boundary) {
			t.Errorf("total %d: the boundary lies above: %+v", c.total, r)
		}
		if c.total == 102 && (len(r.FailBands) != 1 || r.FailBands[0] != Band{100 * mib, 102 * mib}) {
			t.Errorf("bands %+v", r.FailBands)
		}
	}
}

// TestSweepRefuses: every reason not to give a map, and none gives half of one.
func TestSweepRefuses(t *testing.T) {
	p := e20(t)
	for name, c := range map[string]struct {
		o    SweepOptions
		want error
	}{
		"stopped":  {SweepOptions{Stop: func() bool { return true }}, ErrStopped},
		"too many": {SweepOptions{MaxReplays: 2}, ErrTooManyReplays},
		"uncapped": {SweepOptions{Settings: Settings{ZeroFraction: true}}, ErrUncapped},
	} {
		if r, err := p.Sweep(c.o); !errors.Is(err, c.want) || r.Boundary != 0 {
			t.Errorf("%s: %+v, %v", name, r, err)
		}
	}
	wrong, err := Compile([]Event{{Action: SegmentAlloc, Addr: 1 << 20, Size: 2 << 20}, {Action: Alloc, Addr: 1<<20 + 512, Size: 1}})
	if err != nil {
		t.Fatal(err)
	}
	if r, err := wrong.Sweep(SweepOptions{}); err != nil || r.SelfCheckMismatches != 1 || r.Boundary != 0 {
		t.Errorf("a recording that is not placed right: %+v, %v", r, err)
	}
	ended, err := Compile([]Event{{Action: SegmentAlloc, Addr: 1 << 20, Size: 2 << 20}, {Action: Alloc, Addr: 1 << 20, Size: 1}, {Action: OOM, Size: 1}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ended.Sweep(SweepOptions{}); err == nil {
		t.Error("a recording that ends in an out-of-memory was swept")
	}
}

// TestCompileRefuses: traces of which the start or a part is missing.
func TestCompileRefuses(t *testing.T) {
	alloc := Event{Action: Alloc, Addr: 1 << 20, Size: 1}
	for name, events := range map[string][]Event{
		"began late":    {{Action: FreeRequested, Addr: 1 << 20, Size: 1}},
		"address twice": {alloc, alloc},
		"no size":       {{Action: Alloc, Addr: 1 << 20}},
		"no action":     {{Addr: 1 << 20}},
		"empty segment": {{Action: SegmentAlloc, Addr: 1 << 20}},
	} {
		if _, err := Compile(events); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

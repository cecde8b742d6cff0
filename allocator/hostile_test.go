package allocator

import (
	"errors"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
)

// manySegments is a trace in which n segments lie there at once, taken in a
// shuffled order and given back in another, in bursts that completions of frees
// interrupt.
func manySegments(n int, seed uint64) []Event {
	random := rand.New(rand.NewPCG(seed, 1))
	var out []Event
	for _, action := range []Action{SegmentAlloc, SegmentFree, SegmentAlloc} {
		for _, i := range random.Perm(n) {
			out = append(out, Event{Action: action, Addr: 1<<40 + uint64(i)*3*smallSegment, Size: smallSegment})
			if action == SegmentFree {
				out = append(out, Event{Action: FreeCompleted, Addr: 1})
			}
		}
	}
	return out
}

// TestCompileStepsGrowEvenly: twice the segments take little more than twice the
// steps. Steps are counted; what they take does not depend on the machine.
func TestCompileStepsGrowEvenly(t *testing.T) {
	const seed, limit = 11, 2.5
	steps := func(n int) float64 {
		t.Helper()
		// Segments alone, as Compile takes them, but for the driver's address
		// space, which has a bound of its own (TestWildPlacesAreRefused).
		c := &compiler{p: &Program{oomAt: -1}}
		events := manySegments(n, seed)
		for i := 0; i < len(events); i++ {
			if _, err := c.step(events, i); err != nil {
				t.Fatal(err)
			}
		}
		if got, want := len(c.p.segments), 2*n; got != want || c.lying.n != n {
			t.Fatalf("%d segments of %d, %d lie there", got, want, c.lying.n)
		}
		return float64(len(events) + c.lying.moved + c.bursts.looked + noteAgain(c.p.segments))
	}
	last := steps(1 << 13)
	for n := 1 << 14; n <= 1<<17; n *= 2 {
		now := steps(n)
		t.Logf("%d segments: %.0f steps, %.2f times those of half as many", n, now, now/last)
		if now > limit*last {
			t.Errorf("%d segments take %.2f times the steps of half as many (seed %d)", n, now/last, seed)
		}
		last = now
	}
}

// TestSpanSetIsASortedList: it does what one sorted slice does.
func TestSpanSetIsASortedList(t *testing.T) {
	const seed = 5
	random := rand.New(rand.NewPCG(seed, 2))
	var set, union spanSet
	var list, whole []span
	for range 30_000 {
		s := span{uint64(random.IntN(1 << 20)), int64(1 + random.IntN(60))}
		at := slices.IndexFunc(list, func(x span) bool { return x.end() > s.addr })
		free := at < 0 || list[at].addr >= s.end()
		if got := set.place(s); got != free {
			t.Fatalf("placed %v: %t (seed %d)", s, got, seed)
		}
		if free {
			if at < 0 {
				at = len(list)
			}
			list = slices.Insert(list, at, s)
		} else if random.IntN(2) == 0 {
			set.take(list[at].addr)
			list = slices.Delete(list, at, at+1)
		} else {
			set.take(list[at].addr + 1) // none begins there, or that one does
			list = slices.DeleteFunc(list, func(x span) bool { return x.addr == list[at].addr+1 })
		}
		if random.IntN(8) == 0 {
			over := slices.ContainsFunc(whole, func(x span) bool { return x.addr < s.end() && s.addr < x.end() })
			if got := union.cover(s); got != over {
				t.Fatalf("%v covered: %t (seed %d)", s, got, seed)
			}
			whole = file(cut(whole, s), s, chunk{hi: 1 << 62})
		}
	}
	if got := slices.Concat(set.runs...); !slices.Equal(got, list) || set.n != len(list) || len(set.runs) < 8 {
		t.Errorf("%d spans in %d runs, want %d (seed %d)", set.n, len(set.runs), len(list), seed)
	}
	if got := slices.Concat(union.runs...); !slices.Equal(got, whole) {
		t.Errorf("covers %d ranges, want %d (seed %d)", len(got), len(whole), seed)
	}
}

// TestWildPlacesAreRefused: a trace whose segments lie so that the driver's lists
// grow with each of them is refused after so many steps, and not followed.
func TestWildPlacesAreRefused(t *testing.T) {
	wild := make([]recorded, 4000)
	for i, at := range rand.New(rand.NewPCG(3, 3)).Perm(len(wild)) {
		wild[i].span = span{1<<45 + uint64(at)*(5*chunkSize), chunkSize + smallSegment}
	}
	if err := noteHidden(slices.Clone(wild), 1<<17); !errors.Is(err, ErrTooMuchWork) {
		t.Errorf("got %v", err)
	}
	if err := noteHidden(wild, hiddenWork); err != nil {
		t.Errorf("4,000 are no reason to refuse: %v", err)
	}
}

func TestManyStreamsAreRefused(t *testing.T) {
	var events []Event
	for i := range int64(maxStreams + 1) {
		events = append(events, Event{Action: Alloc, Addr: uint64(i) << 20, Size: 512, Stream: i})
	}
	if _, err := Compile(events[:maxStreams]); err != nil {
		t.Error(err)
	}
	if _, err := Compile(events); err == nil {
		t.Error("one more is compiled")
	}
}

// holes is a program whose free blocks are of one size and n in number, so that
// each that comes free has all of them to pass.
func holes(t *testing.T, n int) *Program {
	t.Helper()
	var events []Event
	for i := range 2 * n {
		events = append(events, Event{Action: Alloc, Addr: 1<<40 + uint64(i)*minBlock, Size: minBlock})
	}
	for i := 0; i < 2*n; i += 2 {
		at := events[i].Addr
		events = append(events, Event{Action: FreeRequested, Addr: at, Size: minBlock}, Event{Action: FreeCompleted, Addr: at, Size: minBlock})
	}
	p, err := Compile(events)
	if err != nil {
		t.Fatal(err)
	}
	p.synthetic = true // no segments were recorded
	return p
}

// TestWorkIsBounded: what takes too many steps is given up, with a reason, in each
// way of sweeping and under each kind of settings.
func TestWorkIsBounded(t *testing.T) {
	p := holes(t, 3000)
	for name, set := range map[string]Settings{
		"pools": {}, "garbage collection": {GCThreshold: 0.5}, "expandable": {Expandable: true}, "max_split": {MaxSplit: 32 << 20},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := p.Sweep(SweepOptions{Settings: set, MaxWork: 1 << 20})
			if !errors.Is(err, ErrTooMuchWork) {
				t.Errorf("got %v", err)
			}
			asked := 0
			_, err = p.Sweep(SweepOptions{Settings: set, Stop: func() bool { asked++; return asked > 1 }})
			if !errors.Is(err, ErrStopped) || asked != 2 {
				t.Errorf("got %v, asked %d times", err, asked)
			}
			if _, err = p.Sweep(SweepOptions{Settings: set}); err != nil {
				t.Errorf("3,000 holes are no reason to give up: %v", err)
			}
		})
	}
	if r := p.Replay(Settings{}, ReplayOptions{Stop: func() bool { return true }}); r != (ReplayResult{OOMAt: -1, Stopped: true}) {
		t.Errorf("a replay that was stopped says %+v", r)
	}
	if r := p.Replay(Settings{}, ReplayOptions{Stop: func() bool { return false }}); r.Stopped || r != p.Replay(Settings{}, ReplayOptions{}) {
		t.Errorf("one that was not says %+v", r)
	}
}

// TestLargeStates: where the pools' states would take too much memory, the map is
// made without them, and is the same.
func TestLargeStates(t *testing.T) {
	p := holes(t, 2000)
	want, err := p.Sweep(SweepOptions{})
	if err != nil {
		t.Fatal(err)
	}
	o := SweepOptions{Step: roundLarge, MaxReplays: maxReplays}
	m := &meter{kept: statesBytes - 1<<20}
	b := sweeps{p: p, o: &o, lowest: p.lowest(&o), meter: m, pools: newPools(p, &o.Settings, m)}
	if _, err := b.all(); !errors.Is(err, errManyStates) {
		t.Fatalf("got %v", err)
	}
	m.kept = statesBytes - 1<<20
	got, err := b.fewerStates()
	if err != nil || b.pools != nil || !slices.Equal(got.Map, want.Map) {
		t.Errorf("%v: %d paths, want %d", err, len(got.Map), len(want.Map))
	}
}

// TestFarFrees: a program that frees in the order in which it allocates is read
// as one that frees the other way round is.
func TestFarFrees(t *testing.T) {
	p := holes(t, 400)
	steps, _ := shapeOf(p)
	var live []int32
	for i := range p.ops {
		if o := &p.ops[i]; o.kind == opAlloc {
			live = append(live, o.slot)
		} else if want := takeOut(&live, o.slot); steps[i].arg != want {
			t.Fatalf("op %d frees the %d-th from the end, not the %d-th", i, want, steps[i].arg)
		}
	}
}

// TestLoopsAreSoughtWithinBounds: two runs of which one repeats itself endlessly
// are given up.
func TestLoopsAreSoughtWithinBounds(t *testing.T) {
	m := &meter{most: 1 << 20, every: 1 << 10}
	long := make([]step, 1<<14)
	if turnLength(m, []step{{kind: opFree}}, long, seam{1 << 13, 1}); !m.over() {
		t.Errorf("%d steps", m.work)
	}
}

// TestSizes: what is reckoned for the parts of a state is what they take.
func TestSizes(t *testing.T) {
	for of, want := range map[reflect.Type]int{
		reflect.TypeFor[block](): blockBytes, reflect.TypeFor[freeSet](): setBytes, reflect.TypeFor[kept](): keptSize,
		reflect.TypeFor[node](): nodeBytes, reflect.TypeFor[edge](): edgeBytes, reflect.TypeFor[passing](): passingBytes,
	} {
		if got := int(of.Size()); got != want {
			t.Errorf("%v takes %d bytes, not %d", of, got, want)
		}
	}
}

package allocator

import (
	"errors"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// sweptOf is the map of a program under default settings.
func sweptOf(t *rapid.T, p *Program) SweepResult {
	p.synthetic = true // nothing to check: its segments are not recorded
	r, err := p.Sweep(SweepOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// drawRun is the trace of a random program whose sizes tell its steps apart,
// as those of a workload do.
func drawRun(t *rapid.T) []Event {
	a := New(Settings{}, Limit{}, 0)
	var events []Event
	a.observe = func(e Event) { events = append(events, e) }
	var live []int32
	for i := range rapid.IntRange(20, 120).Draw(t, "steps") {
		if n := len(live); n > 3 && rapid.IntRange(0, 9).Draw(t, "step") < 5 {
			at := rapid.IntRange(0, n-1).Draw(t, "which")
			a.Free(live[at])
			live = slices.Delete(live, at, at+1)
			continue
		}
		id, _ := a.Malloc(int64(rapid.IntRange(1, 40).Draw(t, "size"))<<20+int64(i)<<9, 0)
		live = append(live, id)
	}
	return events
}

// requestsOf are the program's own events: what every run of it asks for.
func requestsOf(events []Event) []Event {
	return slices.DeleteFunc(slices.Clone(events), func(e Event) bool { return e.Action != Alloc && e.Action != FreeRequested && e.Action != FreeCompleted })
}

// runUnder is the trace of a run of these requests under a cap.
func runUnder(t *rapid.T, requests []Event, quota int64) (trace []Event, r ReplayResult) {
	p, err := Compile(requests)
	if err != nil {
		t.Fatal(err)
	}
	r = p.Replay(Settings{}, ReplayOptions{Limit: Limit{Cap: quota}, Observe: func(e Event) { trace = append(trace, e) }})
	return trace, r
}

const strange = uint64(1) << 60 // addresses that no drawn program has

// TestSpliceFindsExtraBlocks: a run that holds blocks which the program lacks is
// refused; what it did and the rest of the program are the changed program.
func TestSpliceFindsExtraBlocks(t *testing.T) {
	spliced := 0
	rapid.Check(t, func(t *rapid.T) {
		events := drawRun(t)
		whole, err := Compile(events)
		if err != nil {
			t.Fatal(err)
		}
		b := max(2<<20, sweptOf(t, whole).Boundary-int64(rapid.IntRange(0, 20).Draw(t, "steps below"))<<21)
		changed := requestsOf(events)
		for i := range rapid.IntRange(1, 3).Draw(t, "extra") {
			at := rapid.IntRange(0, len(changed)).Draw(t, "at")
			if at > 0 && at < len(changed) && changed[at].Action == FreeCompleted {
				continue
			}
			size := int64(rapid.IntRange(1, 64).Draw(t, "bytes"))<<20 + 7 + int64(i)
			changed = slices.Insert(changed, at, Event{Action: Alloc, Addr: strange + uint64(i)<<40, Size: size})
		}
		trace, r := runUnder(t, changed, b)
		if !r.OOM {
			return
		}
		run, err := ReadCapped(trace)
		if err != nil || !run.Refused || run.Caught {
			t.Fatalf("%+v, %v", run, err)
		}
		got, change, err := Splice(run, whole, Settings{})
		if errors.Is(err, ErrSplice) {
			return // refused at a block of its own: nothing of the program is left to compare
		}
		if err != nil {
			t.Fatal(err)
		}
		extra := 0
		for _, e := range changed[:r.OOMAt] {
			if e.Addr >= strange && e.Addr < strange<<1 {
				extra++
			}
		}
		if change.Extra != extra || change.Reordered {
			t.Fatalf("%+v, it holds %d blocks more", change, extra)
		}
		if extra == 0 {
			return
		}
		// Blocks that come later are not known yet: up to the refusal it is the
		// changed program, and behind it the whole.
		want := slices.Clone(changed)
		for i := len(want) - 1; i > r.OOMAt; i-- {
			if want[i].Addr >= strange && want[i].Addr < strange<<1 {
				want = slices.Delete(want, i, i+1)
			}
		}
		p, err := Compile(want)
		if err != nil {
			t.Fatal(err)
		}
		if a, b := sweptOf(t, got), sweptOf(t, p); a.Boundary != b.Boundary || a.LowestPass != b.LowestPass || !slices.Equal(a.FailBands, b.FailBands) {
			t.Fatalf("spliced: %d %v, want %d %v", a.Boundary, a.FailBands, b.Boundary, b.FailBands)
		}
		spliced++
	})
	if spliced < 20 {
		t.Errorf("%d programs spliced: too few to say anything", spliced)
	}
}

// TestSpliceFindsDelayedFrees: a run that frees some blocks one allocation later.
func TestSpliceFindsDelayedFrees(t *testing.T) {
	spliced := 0
	rapid.Check(t, func(t *rapid.T) {
		events := drawRun(t)
		whole, err := Compile(events)
		if err != nil {
			t.Fatal(err)
		}
		b := max(2<<20, sweptOf(t, whole).Boundary-int64(rapid.IntRange(0, 20).Draw(t, "steps below"))<<21)
		delays := rapid.SliceOfN(rapid.Bool(), len(events), len(events)).Draw(t, "delays")
		delayed := func(until int) []Event {
			out := requestsOf(events)
			for i := 0; i+2 < len(out) && i <= until; i++ {
				free, done, next := out[i], out[i+1], out[i+2]
				if free.Action == FreeRequested && next.Action == Alloc && next.Addr != free.Addr && delays[i] {
					out[i], out[i+1], out[i+2] = next, free, done
					i += 2
				}
			}
			return out
		}
		trace, r := runUnder(t, delayed(len(events)), b)
		if !r.OOM {
			return
		}
		run, err := ReadCapped(trace)
		if err != nil {
			t.Fatal(err)
		}
		got, change, err := Splice(run, whole, Settings{})
		if err != nil || change.Extra != 0 {
			t.Fatalf("%+v, %v", change, err)
		}
		p, err := Compile(delayed(r.OOMAt)) // what it does later is not known yet
		if err != nil {
			t.Fatal(err)
		}
		if a, b := sweptOf(t, got), sweptOf(t, p); a.Boundary != b.Boundary || !slices.Equal(a.FailBands, b.FailBands) {
			t.Fatalf("spliced: %d %v, want %d %v", a.Boundary, a.FailBands, b.Boundary, b.FailBands)
		}
		spliced++
	})
	if spliced < 10 {
		t.Errorf("%d programs spliced: too few to say anything", spliced)
	}
}

// TestSpliceRefusesAnotherProgram: what cannot be laid over the whole is said.
func TestSpliceRefusesAnotherProgram(t *testing.T) {
	alloc := func(addr uint64, mib int64) Event { return Event{Action: Alloc, Addr: addr << 32, Size: mib << 20} }
	whole, err := Compile([]Event{alloc(1, 30), alloc(2, 31), alloc(3, 32), alloc(4, 33), alloc(5, 34)})
	if err != nil {
		t.Fatal(err)
	}
	refused := func(mib int64) Event { return Event{Action: OOM, Size: mib << 20} }
	for name, trace := range map[string][]Event{
		"other sizes":         {alloc(1, 30), alloc(2, 40), alloc(3, 41), alloc(4, 42), alloc(5, 43), alloc(6, 44), refused(45)},
		"refused other bytes": {alloc(1, 30), alloc(2, 31), refused(90)},
		"behind the end":      {alloc(1, 30), alloc(2, 31), alloc(3, 32), alloc(4, 33), alloc(5, 34), refused(35)},
		"not refused":         {alloc(1, 30), alloc(2, 31)},
		"block given back":    {alloc(1, 30), alloc(2, 31), {Action: FreeRequested, Addr: 1 << 32, Size: 30 << 20}, {Action: FreeCompleted, Addr: 1 << 32, Size: 30 << 20}, refused(32)},
	} {
		run, err := ReadCapped(trace)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if _, change, err := Splice(run, whole, Settings{}); !errors.Is(err, ErrSplice) {
			t.Errorf("%s: spliced with %+v, %v", name, change, err)
		}
	}
	if _, err := ReadCapped([]Event{{Action: FreeRequested, Addr: 1 << 32, Size: 5}}); err == nil {
		t.Error("a trace that lost its start is read")
	}
}

// TestReadCapped: what a run asked for behind a refusal that it caught, and what
// it kept.
func TestReadCapped(t *testing.T) {
	alloc := func(addr uint64, mib int64) Event { return Event{Action: Alloc, Addr: addr << 32, Size: mib << 20} }
	free := func(addr uint64, mib int64) []Event {
		return []Event{{Action: FreeRequested, Addr: addr << 32, Size: mib << 20}, {Action: FreeCompleted, Addr: addr << 32, Size: mib << 20}}
	}
	trace := slices.Concat(
		[]Event{{Action: SegmentAlloc, Addr: 1 << 32, Size: 30 << 20}, alloc(1, 30), alloc(2, 50), {Action: SegmentFree, Addr: 9 << 32, Size: 2 << 20}, {Action: OOM, Size: 60 << 20}},
		free(2, 50), []Event{alloc(2, 25), alloc(3, 26)}, free(3, 26), []Event{alloc(3, 27)})
	want := slices.Concat([]Event{alloc(1, 30), alloc(2, 25), alloc(3, 26)}, free(3, 26), []Event{alloc(3, 27)})
	run, err := ReadCapped(trace)
	if err != nil || !run.Caught || run.Refused {
		t.Fatalf("%+v, %v", run, err)
	}
	p, err := Compile(want)
	if err != nil {
		t.Fatal(err)
	}
	if change := run.Compare(p); change != (Change{}) || len(run.Program.segments) != 1 {
		t.Errorf("another program: %+v, %d segments", change, len(run.Program.segments))
	}
	again, err := ReadCapped(append(slices.Clone(trace), Event{Action: OOM, Size: 28 << 20}))
	if err != nil || !again.Caught || !again.Refused || again.Wanted != 28<<20 {
		t.Errorf("refused at last: %+v, %v", again, err)
	}
	late := slices.Concat([]Event{alloc(1, 30), alloc(2, 25), alloc(3, 26), alloc(4, 27)}, free(3, 26))
	if p, err = Compile(late); err != nil {
		t.Fatal(err)
	}
	if change := run.Compare(p); !change.Reordered {
		t.Errorf("freed later: %+v", change)
	}
	if p, err = Compile(late[:3]); err != nil {
		t.Fatal(err)
	}
	if change := run.Compare(p); change.Extra != 1 {
		t.Errorf("one block less: %+v", change)
	}
}

// TestReplayCaught: the second attempt begins with an empty cache and what was
// there before the first.
func TestReplayCaught(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		events := drawRun(t)
		requests := requestsOf(events)
		from := rapid.IntRange(0, len(requests)/2).Draw(t, "from")
		for from > 0 && requests[from].Action != Alloc {
			from--
		}
		// What is freed behind From was allocated there, as weights stay.
		before := map[uint64]bool{}
		for _, e := range requests[:from] {
			before[e.Addr] = e.Action == Alloc
		}
		for _, e := range requests[from:] {
			if e.Action == FreeRequested && before[e.Addr] {
				return
			}
			if e.Action == Alloc {
				before[e.Addr] = false
			}
		}
		less := slices.Clone(requests)
		for i := from; i < len(less); i++ {
			less[i].Size = max(1, less[i].Size/2)
		}
		p, err := Compile(requests)
		if err != nil {
			t.Fatal(err)
		}
		then, err := Compile(less)
		if err != nil {
			t.Fatal(err)
		}
		quota := sweptOf(t, p).Boundary - 2<<20
		var trace []Event
		r := p.ReplayCaught(Settings{}, ReplayOptions{Limit: Limit{Cap: quota}, Observe: func(e Event) { trace = append(trace, e) }}, Caught{From: from, Then: then})
		if r.Refused < 0 {
			if !r.OOM || r.OOMAt >= from {
				t.Fatalf("a step below the boundary: %+v", r)
			}
			return
		}
		run, err := ReadCapped(trace)
		if err != nil || !run.Caught || run.Refused != r.OOM {
			t.Fatalf("%+v: %+v, %v", r, run, err)
		}
		if change := run.Compare(then); !r.OOM && from == 0 && change != (Change{}) {
			t.Fatalf("the trace shows another program: %+v", change)
		}
	})
}

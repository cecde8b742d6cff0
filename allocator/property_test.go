package allocator

import (
	"cmp"
	"fmt"
	"reflect"
	"testing"

	"pgregory.net/rapid"
)

// drawTrace drives an allocator through random steps and returns the trace that
// a recording of them would be.
func drawTrace(t *rapid.T, recorded Settings, steps int) []Event {
	a := New(recorded, Limit{}, 0)
	a.place = newPlacer(LayoutDriver, nil)
	var events []Event
	a.observe = func(e Event) { events = append(events, e) }
	sizes := []int64{1, 513, 700 << 10, 1<<20 + 1, 3 << 20, 8 << 20, 10 << 20, 15<<20 + 5, 21 << 20, 40 << 20}
	streams := rapid.IntRange(0, 1).Draw(t, "streams")
	var live []int32
	for range rapid.IntRange(1, steps).Draw(t, "steps") {
		step := rapid.IntRange(0, 19).Draw(t, "step")
		if n := len(live); n > 0 && step < 9 {
			i := rapid.IntRange(0, n-1).Draw(t, "which")
			if streams > 0 && step < 2 {
				a.RecordStream(live[i], 7)
			}
			a.Free(live[i])
			live[i] = live[n-1]
			live = live[:n-1]
			continue
		}
		switch {
		case step == 18 && streams > 0:
			a.Complete(7)
		case step == 19:
			a.EmptyCache()
		default:
			n := rapid.SampledFrom(sizes).Draw(t, "size")
			if id, ok := a.Malloc(n, 7*int64(rapid.IntRange(0, streams).Draw(t, "stream"))); ok {
				live = append(live, id)
			}
		}
	}
	checkInvariants(t, a)
	return events
}

func drawSettings(t *rapid.T) Settings {
	s := Settings{
		Expandable:  rapid.IntRange(0, 3).Draw(t, "expandable") == 0,
		MaxSplit:    rapid.SampledFrom([]int64{0, 0, 20 << 20, 32 << 20}).Draw(t, "max split"),
		GCThreshold: rapid.SampledFrom([]float64{0, 0, 0.5, 0.8}).Draw(t, "gc"),
	}
	if rapid.IntRange(0, 3).Draw(t, "divide") == 0 {
		s.Divisions = all(4)
	}
	return s
}

// TestRandomReplays: whatever the program, the settings and the limit, the state
// stays whole, the limit is kept, and a recording passes its own check. Every
// kind of setting is drawn on its own, and all together, under both limits.
func TestRandomReplays(t *testing.T) {
	for name, draw := range map[string]func(*rapid.T) Settings{
		"plain":      func(*rapid.T) Settings { return Settings{} },
		"expandable": func(*rapid.T) Settings { return Settings{Expandable: true} },
		"max split":  func(t *rapid.T) Settings { return Settings{MaxSplit: drawMiB(t, "max split", 20, 21, 32)} },
		"max non-split": func(t *rapid.T) Settings {
			return Settings{MaxSplit: 20 << 20, MaxNonSplit: drawMiB(t, "rest", 20, 24)}
		},
		"expandable max split": func(t *rapid.T) Settings {
			return Settings{Expandable: true, MaxSplit: drawMiB(t, "max split", 20, 32)}
		},
		"garbage collection":   func(t *rapid.T) Settings { return Settings{GCThreshold: rapid.Float64Range(0.01, 0.99).Draw(t, "gc")} },
		"expandable collected": func(t *rapid.T) Settings { return Settings{Expandable: true, GCThreshold: 0.5} },
		"large segments": func(t *rapid.T) Settings {
			return Settings{LargeSegment: drawMiB(t, "segment", 12, 32), Expandable: rapid.Bool().Draw(t, "expandable")}
		},
		"anything": drawSettings,
	} {
		for _, device := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/device=%v", name, device), func(t *testing.T) {
				refused, ended := 0, 0
				rapid.Check(t, func(t *rapid.T) {
					if randomReplay(t, draw(t), device) {
						refused++
					} else {
						ended++
					}
				})
				if refused == 0 || ended == 0 {
					t.Errorf("%d runs were refused, %d ended: the limits say nothing", refused, ended)
				}
			})
		}
	}
}

func drawMiB(t *rapid.T, name string, of ...int64) int64 {
	return rapid.SampledFrom(of).Draw(t, name) << 20
}

// randomReplay replays a random program under a random limit and is whether it
// ran out of memory.
func randomReplay(t *rapid.T, set Settings, device bool) bool {
	recorded := Settings{Expandable: rapid.Bool().Draw(t, "recorded expandable")}
	events := drawTrace(t, recorded, 80)
	p, err := Compile(events)
	if err != nil {
		t.Fatal(err)
	}
	if check := p.SelfCheck(recorded); check.Mismatches > 0 {
		t.Fatalf("self-check: %+v", check)
	}
	o := ReplayOptions{Layout: Layout(rapid.IntRange(0, 3).Draw(t, "layout"))}
	quota := int64(rapid.IntRange(1, 120).Draw(t, "quota")) << 20
	o.Limit = limitOf(quota, device)
	return runChecked(t, p, set, o)
}

// TestTwoFlushes: the program empties the cache twice, and between the two a
// small segment has come free. (Found by TestPoolsOnRandomPrograms: the second
// left the small segment where it was.)
func TestTwoFlushes(t *testing.T) {
	const m = int64(mib)
	step := func(a Action, addr uint64, size int64) Event { return Event{Action: a, Addr: addr, Size: size} }
	p, err := Compile([]Event{
		step(Alloc, 1, 1), step(FreeRequested, 1, 1), step(FreeCompleted, 1, 1),
		step(Alloc, 2, 2*m), step(FreeRequested, 2, 2*m), step(FreeCompleted, 2, 2*m),
		step(Alloc, 1, 1), step(SegmentFree, 9, 20*m),
		step(FreeRequested, 1, 1), step(FreeCompleted, 1, 1), step(SegmentFree, 8, 2*m),
		step(SegmentAlloc, 9, 20*m), step(Alloc, 2, 2*m),
	})
	if err != nil {
		t.Fatal(err)
	}
	want := p.Replay(Settings{}, ReplayOptions{Limit: Limit{Cap: 20 * m}}).Retries
	got := mapPools(t, p, SweepOptions{Step: 2 * m, MaxReplays: 9}, LayoutAscending, newPools(p, &Settings{}, nil))
	if at, _ := got.At(20 * m); at.Retries != want || want != 2 {
		t.Errorf("%d retries pool by pool, %d whole", at.Retries, want)
	}
}

// TestPoolsOnRandomPrograms: pool by pool, random programs and random loops have
// the maps that whole states give, path for path, under every layout.
func TestPoolsOnRandomPrograms(t *testing.T) {
	compared, sensitive := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		events := drawLoop(t)
		if rapid.Bool().Draw(t, "no loop") {
			events = drawTrace(t, Settings{}, 80)
		}
		p, err := Compile(events)
		if err != nil {
			t.Fatal(err)
		}
		set := drawSettings(t)
		set.Expandable, set.GCThreshold = false, 0
		if !p.divisible(&set) {
			return
		}
		o := SweepOptions{Settings: set, Step: 2 << 20, MaxReplays: maxReplays}
		if rapid.Bool().Draw(t, "device") {
			o.Kind, o.Overhead = SweepDevice, 3<<20
		}
		pools := newPools(p, &set, nil)
		var first *SweepResult
		for layout := LayoutDriver; layout <= LayoutReuse; layout++ {
			got, want := mapPools(t, p, o, layout, pools), mapWhole(t, p, o, layout)
			if !reflect.DeepEqual(got, want) {
				t.Fatalf("%+v layout %d: pool by pool\n%+v\nwhole\n%+v", o, layout, got, want)
			}
			compared++
			if first = cmp.Or(first, got); first.Boundary != got.Boundary {
				sensitive++
			}
		}
	})
	t.Logf("%d maps compared, %d differ from the driver's layout", compared, sensitive)
	if compared == 0 {
		t.Error("no program was divisible")
	}
}

// TestSweepEqualsBruteForce: the exact sweep says what one replay for every
// quota of the grid says.
func TestSweepEqualsBruteForce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p, err := Compile(drawTrace(t, Settings{}, 50))
		if err != nil {
			t.Fatal(err)
		}
		o := SweepOptions{Settings: drawSettings(t), Step: 2 << 20}
		if rapid.Bool().Draw(t, "device") {
			o.Kind, o.Overhead = SweepDevice, int64(rapid.IntRange(0, 9).Draw(t, "overhead"))<<20
		}
		if len(p.ops) == 0 || p.peakLive(&Settings{}) == 0 {
			return
		}
		got, err := p.Sweep(o)
		if err != nil {
			t.Fatal(err)
		}
		want := bruteForce(p, o)
		if got.Boundary != want.Boundary || got.LowestPass != want.LowestPass || fmt.Sprint(got.FailBands) != fmt.Sprint(want.FailBands) || got.NoRetry != want.NoRetry {
			t.Fatalf("%+v:\nsweep %+v\nbrute %+v", o, got, want)
		}
	})
}

// bruteForce replays every quota from far above the peak down to one step.
func bruteForce(p *Program, o SweepOptions) SweepResult {
	s := &sweeper{o: &o}
	whole := &forks{p: p, o: &o}
	top := s.quotaUp(3*p.Replay(o.Settings, ReplayOptions{}).PeakReserved + 64<<20)
	var out SweepResult
	failed, retried := int64(0), false
	for q := top; q >= o.Step; q -= o.Step {
		r := ReplayResult{OOM: true, Retries: 1}
		if q > s.overhead() {
			r = p.Replay(o.Settings, whole.options(q-s.overhead()))
		}
		if retried = retried || r.Retries > 0; !retried {
			out.NoRetry = q
		}
		switch {
		case r.OOM && failed == 0:
			failed = q
		case !r.OOM && failed > 0:
			out.FailBands = append([]Band{{q + o.Step, failed}}, out.FailBands...)
			failed = 0
			out.LowestPass = q
		case !r.OOM:
			out.LowestPass = q
			if len(out.FailBands) == 0 {
				out.Boundary = q
			}
		}
	}
	return out
}

func limitOf(quota int64, device bool) Limit {
	if device {
		return Limit{Device: quota}
	}
	return Limit{Cap: quota}
}

// tester is what a test and a random test have in common.
type tester interface {
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
}

// runChecked replays a program under its limit, holds the state to the model's
// invariants and to the limit every few ops, and is whether memory ran out.
func runChecked(t tester, p *Program, set Settings, o ReplayOptions) bool {
	most := o.Limit.Device
	if most == 0 {
		if most = o.Limit.Cap; set.Expandable {
			most += set.largeSegment() // a cap may be exceeded by less than a page
		}
	}
	r := p.start(set, o)
	for r.at < len(p.ops) && r.oomAt < 0 {
		r.run(min(r.at+7, len(p.ops)))
		checkInvariants(t, r.a)
		if r.a.stats.Reserved > most {
			t.Fatalf("%d bytes reserved under %+v", r.a.stats.Reserved, o.Limit)
		}
	}
	return r.oomAt >= 0
}

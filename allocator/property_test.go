package allocator

import (
	"fmt"
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
// stays whole, the limit is kept, and a recording passes its own check.
func TestRandomReplays(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		recorded := Settings{Expandable: rapid.Bool().Draw(t, "recorded expandable")}
		events := drawTrace(t, recorded, 80)
		p, err := Compile(events)
		if err != nil {
			t.Fatal(err)
		}
		if check := p.SelfCheck(recorded); check.Mismatches > 0 {
			t.Fatalf("self-check: %+v", check)
		}
		set := drawSettings(t)
		o := ReplayOptions{Layout: Layout(rapid.IntRange(0, 3).Draw(t, "layout"))}
		quota := int64(rapid.IntRange(1, 120).Draw(t, "quota")) << 20
		slack := int64(0)
		if rapid.Bool().Draw(t, "device") {
			o.Limit.Device = quota
		} else if o.Limit.Cap = quota; set.Expandable {
			slack = set.largeSegment() // a cap may be exceeded by less than a page
		}
		r := p.start(set, o)
		for r.at < len(p.ops) && r.oomAt < 0 {
			r.run(min(r.at+7, len(p.ops)))
			checkInvariants(t, r.a)
			if r.a.stats.Reserved > quota+slack {
				t.Fatalf("%d bytes reserved under a limit of %d", r.a.stats.Reserved, quota)
			}
		}
	})
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

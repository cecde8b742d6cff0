package allocator

import (
	"path/filepath"
	"testing"

	"pgregory.net/rapid"
)

// plain is a program without its stretches, which every replay executes whole.
func plain(p *Program) *Program {
	q := *p
	q.repeated, q.divided = nil, nil
	return &q
}

// drawLoop returns a trace that repeats a body of balanced allocations and
// frees, some of which live from turn to turn, between a random start and end.
func drawLoop(t *rapid.T) []Event {
	var events []Event
	next := uint64(512)
	alloc := func(size int64) uint64 {
		events = append(events, Event{Action: Alloc, Addr: next, Size: size})
		next += 512
		return next - 512
	}
	release := func(addr uint64) {
		events = append(events, Event{Action: FreeRequested, Addr: addr}, Event{Action: FreeCompleted, Addr: addr})
	}
	size := rapid.SampledFrom([]int64{512, 100 << 10, 700 << 10, 1<<20 + 1, 2 << 20, 3 << 20, 9 << 20, 15 << 20, 32 << 20})
	carried := make([]uint64, rapid.IntRange(0, 4).Draw(t, "carried"))
	sizes := make([]int64, len(carried))
	for i := range carried {
		sizes[i] = size.Draw(t, "carried size")
		carried[i] = alloc(sizes[i])
	}
	for range rapid.IntRange(0, 6).Draw(t, "before") {
		if addr := alloc(size.Draw(t, "size")); rapid.Bool().Draw(t, "kept") {
			release(addr)
		}
	}
	type step struct{ size, which int64 } // size 0 frees
	var body []step
	for range rapid.IntRange(10, 30).Draw(t, "body") {
		body = append(body, step{size: size.Draw(t, "size") * int64(rapid.IntRange(0, 1).Draw(t, "alloc")), which: int64(rapid.IntRange(0, 9).Draw(t, "which"))})
	}
	for range rapid.IntRange(5, 60).Draw(t, "turns") {
		var live []uint64
		for _, s := range body {
			switch i := int(s.which); {
			case s.size > 0:
				live = append(live, alloc(s.size))
			case len(live) > 0:
				i %= len(live)
				release(live[i])
				live = append(live[:i], live[i+1:]...)
			case len(carried) > 0:
				i %= len(carried)
				fresh := alloc(sizes[i])
				release(carried[i])
				carried[i] = fresh
			}
		}
		for _, addr := range live {
			release(addr)
		}
	}
	for range rapid.IntRange(0, 6).Draw(t, "after") {
		alloc(size.Draw(t, "size"))
	}
	return events
}

// TestStretchesChangeNothing: leaving turns out gives the result and the state
// that executing them gives.
func TestStretchesChangeNothing(t *testing.T) {
	found := 0
	rapid.Check(t, func(t *rapid.T) {
		p, err := Compile(drawLoop(t))
		if err != nil {
			t.Fatal(err)
		}
		found += len(p.repeated)
		set := drawSettings(t)
		top := p.Replay(set, ReplayOptions{}).PeakReserved
		for k := range 6 {
			var o ReplayOptions
			if k > 0 {
				o.Limit.Cap = top * int64(100-5*k) / 100
			}
			fast, slow := p.start(set, o), plain(p).start(set, o)
			fast.run(len(p.ops))
			slow.run(len(p.ops))
			if fast.result() != slow.result() || fast.at != slow.at {
				t.Fatalf("cap %d: with stretches %+v, without %+v", o.Limit.Cap, fast.result(), slow.result())
			}
			checkInvariants(t, fast.a)
			for slot, id := range slow.live {
				x, y := fast.a.blocks[fast.live[slot]], slow.a.blocks[id]
				if y.state == used && (x.addr != y.addr || x.size != y.size || x.state != used) {
					t.Fatalf("slot %d: %+v with stretches, %+v without", slot, x, y)
				}
			}
		}
	})
	if found == 0 {
		t.Error("no program had a stretch")
	}
}

// TestStretchesOfRealTraces: the long loops of ESMFold are found, and leaving
// turns out changes no result, with and without a cap.
func TestStretchesOfRealTraces(t *testing.T) {
	paths, err := filepath.Glob(traceDir + "/*.parquet")
	if err != nil || len(paths) == 0 {
		t.Fatal(paths, err)
	}
	for _, path := range paths {
		p := compileFile(t, path)
		length := 0
		for i := range p.repeated {
			length += p.repeated[i].period * p.repeated[i].turns
		}
		if length < len(p.ops)/3 {
			t.Errorf("%s: %d of %d ops lie in stretches", path, length, len(p.ops))
		}
		for _, set := range []Settings{{}, {Expandable: true}, {MaxSplit: 128 << 20}, {GCThreshold: 0.8}} {
			top := p.Replay(set, ReplayOptions{}).PeakReserved
			for k := range int64(4) {
				o := ReplayOptions{Limit: Limit{Cap: top * (100 - 4*k) / 100}}
				if fast, slow := p.Replay(set, o), plain(p).Replay(set, o); fast != slow {
					t.Errorf("%s: %+v cap %d: with stretches %+v, without %+v", path, set, o.Limit.Cap, fast, slow)
				}
			}
		}
	}
}

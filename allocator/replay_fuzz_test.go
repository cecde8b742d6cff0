package allocator

import (
	"encoding/json"
	"errors"
	"math"
	"math/big"
	"slices"
	"strings"
	"testing"
)

// tape is a fuzz input, read byte by byte; behind its end it is zeros.
type tape struct{ data []byte }

func (t *tape) next() int {
	if len(t.data) == 0 {
		return 0
	}
	b := t.data[0]
	t.data = t.data[1:]
	return int(b)
}

// pick is one of several.
func pick[T any](t *tape, of ...T) T { return of[t.next()%len(of)] }

func (t *tape) settings() Settings {
	s := Settings{Expandable: pick(t, false, false, true), MaxSplit: pick[int64](t, 0, 0, 20<<20, 32<<20), GCThreshold: pick(t, 0, 0, 0.5, 0.9)}
	s.LargeSegment = pick[int64](t, 0, 0, 0, 32<<20)
	if t.next()%4 == 1 {
		s.Divisions = all(4)
	}
	return s
}

// record drives an allocator by a tape and returns the trace that a recording of
// it would be.
func (t *tape) record(set Settings) []Event {
	a := New(set, Limit{}, 0)
	a.place = newPlacer(LayoutDriver, nil)
	var events []Event
	a.observe = func(e Event) { events = append(events, e) }
	var live []int32
	for steps := 0; len(t.data) > 0 && steps < 60; steps++ {
		op, arg := t.next(), t.next()
		switch {
		case op%16 == 15:
			a.EmptyCache()
		case op%16 == 14:
			a.Complete(7)
		case op%2 == 1 && len(live) > 0:
			i := arg % len(live)
			if op%8 == 3 {
				a.RecordStream(live[i], 7)
			}
			a.Free(live[i])
			live = slices.Delete(live, i, i+1)
		default:
			size := []int64{1, 513, 4 << 10, 700 << 10, 1<<20 + 1, 3 << 20, 10 << 20, 21 << 20, 40 << 20}[arg%9] + int64(arg/9)*[]int64{1, 512, 2 << 20}[op%3]
			if id, ok := a.Malloc(size, int64(op/64%2*7)); ok {
				live = append(live, id)
			}
		}
	}
	return events
}

// FuzzReplay: a recorded program replays with its state whole under any setting
// and limit, and its sweep says of every edge what replays say at both its sides.
// One whose trace was altered ends in a result or a short error.
func FuzzReplay(f *testing.F) {
	f.Add([]byte{0, 0, 0, 0, 0, 0, 0, 40, 0, 0, 0, 7, 0, 8, 1, 0, 0, 6, 0, 5, 3, 1, 0, 7})
	f.Add([]byte{2, 2, 2, 3, 1, 1, 1, 99, 2, 0, 64, 8, 0, 3, 3, 0, 14, 0, 15, 0, 0, 30, 1, 0, 0, 60})
	f.Add([]byte{1, 0, 0, 0, 0, 0, 1, 9, 1, 200, 0, 1, 0, 2, 1, 0, 1, 0, 0, 4})
	f.Fuzz(func(t *testing.T, data []byte) {
		in := &tape{data}
		set, recorded := in.settings(), Settings{Expandable: in.next()%4 == 1}
		o := ReplayOptions{Layout: Layout(in.next() % 4)}
		quota, device, alter := int64(1+in.next())<<20, in.next()%2 == 1, in.next()
		events := in.record(recorded)
		if len(events) == 0 {
			return
		}
		if alter >= 128 {
			altered(t, events, alter, set)
			return
		}
		p, err := Compile(events)
		if err != nil {
			t.Fatal(err)
		}
		if check := p.SelfCheck(recorded); check.Mismatches > 0 {
			t.Fatalf("self-check: %+v", check)
		}
		o.Limit = limitOf(quota, device)
		runChecked(t, p, set, o)
		so := SweepOptions{Settings: set, Recorded: recorded, Step: roundLarge, MaxReplays: 2000}
		if device {
			so.Kind, so.Overhead = SweepDevice, 3<<20
		}
		sweepAgrees(t, p, so)
	})
}

// sweepAgrees holds a sweep to replays at both ends of every path of its map.
func sweepAgrees(t *testing.T, p *Program, o SweepOptions) {
	t.Helper()
	swept, err := p.Sweep(o)
	if err != nil {
		if !errors.Is(err, ErrTooManyReplays) {
			t.Fatal(err)
		}
		return
	}
	whole, over := &forks{p: p, o: &o}, (&sweeper{o: &o}).overhead()
	replayed := func(q int64) ReplayResult {
		if q <= over {
			return ReplayResult{OOM: true}
		}
		return p.Replay(o.Settings, whole.options(q-over))
	}
	for i, v := range swept.Map[:min(len(swept.Map), 20)] {
		ends := []int64{v.From}
		if v.To != math.MaxInt64 {
			ends = append(ends, v.To-o.Step)
		}
		if i > 0 && v.To != swept.Map[i-1].From {
			t.Errorf("a gap above %+v", v)
		}
		for _, q := range ends {
			if r := replayed(q); r.OOM == v.Pass || !r.OOM && (r.Retries != v.Retries || r.PeakReserved != v.PeakReserved) {
				t.Errorf("%+v: at %d the sweep has %+v, a replay %+v", o, q, v, r)
			}
		}
	}
	if q := swept.Boundary; q > 0 && (replayed(q).OOM || q > o.Step && !replayed(q-o.Step).OOM) {
		t.Errorf("%+v: %d is no boundary", o, q)
	}
	if q := swept.LowestPass; q > o.Step && (replayed(q).OOM || !replayed(q-o.Step).OOM) {
		t.Errorf("%+v: %d is not the lowest that passes", o, q)
	}
}

// altered reads a trace of which one event is another.
func altered(t *testing.T, events []Event, how int, set Settings) {
	t.Helper()
	e := &events[how*31%len(events)]
	switch how % 4 {
	case 0:
		e.Size += 512
	case 1:
		e.Addr ^= 1 << (how % 57)
	case 2:
		e.Action = Action(how % 11)
	case 3:
		e.Size = -e.Size
	}
	for _, recorded := range []Settings{{}, set} {
		swept, err := Sweep(events, SweepOptions{Recorded: recorded, Settings: set, MaxReplays: 200})
		if err != nil {
			if text := err.Error(); len(text) > 4000 || strings.Contains(text, "\n") {
				t.Errorf("%.300q", text)
			}
		} else if swept.SelfCheckMismatches == 0 && swept.Boundary < swept.LowestPass && !swept.AboveDevice {
			t.Errorf("%+v", swept)
		}
	}
}

// sizes are polynomials in length and batch.
func (t *tape) sizes() (sizes []polynomial) {
	for range 1 + t.next()%3 {
		var p polynomial
		for _, m := range basis(2, true) {
			if c := t.next(); c%3 == 1 {
				p.terms = append(p.terms, term{m, big.NewRat(int64(c)*16, 1)})
			}
		}
		if len(p.terms) == 0 {
			p.terms = []term{{monomial{1, 1}, big.NewRat(512, 1)}}
		}
		sizes = append(sizes, p)
	}
	return sizes
}

// FuzzBuild: programs are built from recordings or refused for a reason that has a
// name; what is built gives its recordings back, survives being written, and
// predicts for each cell of its domain a trace that passes its own check.
func FuzzBuild(f *testing.F) {
	f.Add([]byte{0, 0, 1, 8, 0, 0, 1, 2, 1, 0, 1, 0, 1, 0})
	f.Add([]byte{1, 0, 2, 8, 4, 1, 40, 3, 9, 0, 1, 1, 2, 0, 1, 1, 0, 0, 1})
	f.Add([]byte{0, 131, 1, 8, 0, 0, 1, 2, 1, 0, 1, 0, 1, 0})
	f.Fuzz(func(t *testing.T, data []byte) {
		in := &tape{data}
		chunk, alter := pick(in, 0, 16), in.next()
		sizes := in.sizes()
		steps := in.data[:min(len(in.data), 40)]
		program := func(c cell) *Program {
			b := builder{p: Program{oomAt: -1, streams: []int64{0}}}
			live, turns := 0, 1
			if chunk > 0 {
				turns = c.chunks()
			}
			for range turns {
				for _, s := range steps {
					if s%2 == 1 && live > 0 {
						b.add(step{opFree, int32(int(s/2) % live)}, 0)
						live--
						continue
					}
					n, err := sizes[int(s/2)%len(sizes)].at(c)
					if err != nil {
						t.Fatal(err)
					}
					b.add(step{opAlloc, 0}, n)
					live++
				}
				for ; live > 0; live-- {
					b.add(step{opFree, 0}, 0)
				}
			}
			return b.program()
		}
		var recordings []Recording
		for i, l := range []int{32, 48, 61, 80}[:3+in.next()%2] {
			r := Recording{l, 1 + i%2*(alter%2), chunk, eventsOf(program(cell{l, 1 + i%2*(alter%2), chunk}))}
			if len(r.Events) == 0 {
				return
			}
			if i == 1 && alter >= 128 {
				e := &r.Events[alter*31%len(r.Events)]
				e.Size += int64(alter % 3 * 512)
				e.Addr ^= uint64(alter / 4 % 3 << 20)
			}
			recordings = append(recordings, r)
		}
		family, err := BuildFamily(recordings)
		if err != nil {
			if text := err.Error(); len(text) > 4000 || strings.Contains(text, "\n") {
				t.Errorf("%.300q", text)
			}
			if alter < 128 && !errors.Is(err, ErrTooFewTraces) && !errors.Is(err, ErrSequencesDiffer) && !errors.Is(err, ErrNotPolynomial) {
				t.Errorf("refused for no reason that has a name: %v", err)
			}
			return
		}
		givesBack(t, family, recordings)
	})
}

// givesBack holds a family to its recordings, its own text, and what it predicts.
func givesBack(t *testing.T, family *Family, recordings []Recording) {
	t.Helper()
	text, err := json.Marshal(family)
	if err != nil {
		t.Fatal(err)
	}
	again := &Family{}
	if err := json.Unmarshal(text, again); err != nil {
		t.Fatalf("what was written cannot be read: %v", err)
	}
	if second, err := json.Marshal(again); err != nil || string(second) != string(text) {
		t.Errorf("it is written as %s and then as %s, %v", text, second, err)
	}
	for _, r := range recordings {
		p, err := again.At(r.SeqLen, r.Batch, r.Chunk)
		want, errWant := Compile(r.Events)
		if err != nil || errWant != nil || !sameProgram(p, want) {
			t.Errorf("L%d B%d is not its recording: %v, %v", r.SeqLen, r.Batch, err, errWant)
		}
	}
	for _, l := range []int{32, 40, 96, 128, 1 << 20} {
		events, err := again.Trace(l, 1, recordings[0].Chunk)
		if err != nil {
			if !errors.Is(err, ErrOutOfDomain) {
				t.Errorf("L%d: %v", l, err)
			}
			continue
		}
		if len(events) > 20_000 {
			continue
		}
		if check, err := SelfCheck(events, Settings{}); err != nil || check.Mismatches > 0 {
			t.Errorf("L%d: the predicted trace fails its check: %+v, %v", l, check, err)
		}
	}
}

// sameProgram is whether two programs allocate and free the same.
func sameProgram(a, b *Program) bool {
	stepsA, sizesA := shapeOf(a)
	stepsB, sizesB := shapeOf(b)
	return slices.Equal(stepsA, stepsB) && slices.Equal(sizesA, sizesB)
}

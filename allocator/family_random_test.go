package allocator

import (
	"encoding/json"
	"errors"
	"math/big"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// drawPiece invents a program: loops that turn once a chunk, the last of them
// with smaller blocks, between straight parts, sizes drawn from polynomials.
func drawPiece(t *rapid.T, chunk int) func(cell) *Program {
	degree := 3
	if chunk > 0 {
		degree = 2
	}
	var sizes []polynomial
	for range rapid.IntRange(1, 4).Draw(t, "sizes") {
		p := polynomial{perRow: chunk > 0 && rapid.Bool().Draw(t, "per row")}
		for _, m := range basis(degree, true) {
			if rapid.IntRange(0, 2).Draw(t, "term") == 0 {
				p.terms = append(p.terms, term{m, big.NewRat(int64(rapid.IntRange(1, 2000).Draw(t, "coef"))*int64(max(chunk, 1)), 1)})
			}
		}
		if len(p.terms) > 0 {
			sizes = append(sizes, p)
		}
	}
	if len(sizes) == 0 {
		sizes = append(sizes, polynomial{terms: []term{{monomial{1, 1}, big.NewRat(512, 1)}}})
	}
	type part struct {
		loop   bool
		allocs []int
		order  []int // of the frees
	}
	var parts []part
	for range rapid.IntRange(1, 5).Draw(t, "parts") {
		p := part{loop: chunk > 0 && rapid.Bool().Draw(t, "loop")}
		p.allocs = rapid.SliceOfN(rapid.IntRange(0, len(sizes)-1), 1, 4).Draw(t, "allocs")
		for i := range p.allocs {
			p.order = append(p.order, i)
		}
		p.order = rapid.Permutation(p.order).Draw(t, "order")
		parts = append(parts, p)
	}
	return func(c cell) *Program {
		b := builder{p: Program{oomAt: -1, streams: []int64{0}}}
		full := cell{c.seqLen, c.batch, c.chunk}
		for _, p := range parts {
			turns := 1
			if p.loop {
				turns = c.chunks()
			}
			b.add(step{opAlloc, 0}, 512) // tells the parts apart
			for turn := range turns {
				var at []int
				for i, k := range p.allocs {
					size := sizes[k]
					size.perRow = size.perRow && p.loop && turn == turns-1
					n, err := size.at(full)
					if err != nil {
						t.Fatal(err)
					}
					b.add(step{opAlloc, 0}, n)
					at = append(at, i)
				}
				for _, i := range p.order {
					k := slices.Index(at, i)
					b.add(step{opFree, int32(len(at) - 1 - k)}, 0)
					at = slices.Delete(at, k, k+1)
				}
			}
		}
		return b.program()
	}
}

// TestFamilyOfRandomPrograms: what is built from enough recordings gives every
// other cell exactly; from too few it gives an error, or still the truth.
func TestFamilyOfRandomPrograms(t *testing.T) {
	built, refused, compared := 0, 0, 0
	rapid.Check(t, func(t *rapid.T) {
		chunk := rapid.SampledFrom([]int{0, 16}).Draw(t, "chunk")
		truth := drawPiece(t, chunk)
		lengths := rapid.SampledFrom([][]int{{64, 96, 128, 160}, {64, 80, 97, 111, 128}, {70, 77, 83}}).Draw(t, "lengths")
		batches := rapid.SampledFrom([][]int{{1}, {2, 3}, {2}}).Draw(t, "batches")
		var recordings []Recording
		for _, l := range lengths {
			for _, b := range batches {
				recordings = append(recordings, Recording{l, b, chunk, eventsOf(truth(cell{l, b, chunk}))})
			}
		}
		f, err := BuildFamily(recordings)
		if err != nil {
			if errors.Is(err, ErrTooFewTraces) && (len(lengths) < 4 || chunk > 0) {
				refused++
				return
			}
			t.Fatal(err)
		}
		built++
		text, err := json.Marshal(f)
		if err != nil {
			t.Fatal(err)
		}
		f = &Family{}
		if err := json.Unmarshal(text, f); err != nil {
			t.Fatal(err)
		}
		for _, l := range []int{64, 100, 112, 145, 192, 250} {
			for _, b := range []int{1, 2, 3, 5} {
				got, err := f.At(l, b, chunk)
				if errors.Is(err, ErrOutOfDomain) {
					continue
				}
				compared++
				want := truth(cell{l, b, chunk})
				if err != nil || !slices.Equal(got.ops, want.ops) {
					t.Fatalf("L=%d B=%d: %v, %d ops, want %d", l, b, err, len(got.ops), len(want.ops))
				}
			}
		}
	})
	t.Logf("%d families built, %d refused, %d cells compared", built, refused, compared)
	if built < 50 || refused == 0 || compared < 5*built {
		t.Error("the random programs do not exercise the family")
	}
}

// eventsOf replays a program into the trace of a recording.
func eventsOf(p *Program) []Event {
	var events []Event
	p.Replay(Settings{}, ReplayOptions{Observe: func(e Event) { events = append(events, e) }})
	return events
}

// FuzzFamily: no file makes the reader panic, and what it accepts gives a
// program for its base.
func FuzzFamily(f *testing.F) {
	p := builder{p: Program{oomAt: -1, streams: []int64{0}}}
	p.add(step{opAlloc, 0}, 512)
	p.add(step{opFree, 0}, 0)
	small := &piece{base: cell{64, 1, 0}, streams: []int64{0}, steps: []step{{opAlloc, 0}, {opFree, 0}}, sizeOf: []int32{0, 0}}
	small.sizes = []polynomial{{terms: []term{{monomial{1, 1}, big.NewRat(512, 1)}}}}
	small.domain = Domain{SeqLenFrom: 64, SeqLenTo: 256, BatchFrom: 1, BatchTo: 1, Tested: Untested, recorded: []cell{small.base}}
	text, err := json.Marshal(&Family{[]*piece{small}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(string(text))
	f.Fuzz(func(t *testing.T, text string) {
		var family Family
		if err := json.Unmarshal([]byte(text), &family); err != nil {
			if said := err.Error(); len(said) > 2000 || strings.ContainsAny(said, "\n\r") {
				t.Errorf("an error of %d bytes: %.300q", len(said), said)
			}
			return
		}
		first, err := json.Marshal(&family)
		if err != nil {
			t.Fatal(err)
		}
		var again Family
		if err := json.Unmarshal(first, &again); err != nil {
			t.Fatalf("what was written cannot be read: %v\n%s", err, first)
		}
		if second, err := json.Marshal(&again); err != nil || string(second) != string(first) {
			t.Errorf("written as %s, and then as %s, %v", first, second, err)
		}
		for _, d := range family.Domains() {
			if _, err := family.At(d.SeqLenFrom, d.BatchFrom, d.Chunk); err != nil && !errors.Is(err, ErrOutOfDomain) && !errors.Is(err, errBroken) {
				t.Errorf("%v: %v", d, err)
			}
		}
	})
}

package fit

import (
	"encoding/json"
	"errors"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
)

const mib = 1 << 20

// driver is a simulated stack: what a truth does under it, and how much one run
// differs from the next.
type driver struct {
	truth
	// contextNoise and slackNoise are standard deviations in MiB. The context
	// wobbles as a whole, reserved in segments of 2 MiB.
	contextNoise, slackNoise float64
	// jump is added to reserved at one cell.
	jump     float64
	jumpAt   [2]int
	rounding int64
}

// esmfoldLike is about what the real one does on the real card, with noise that
// the real one does not have.
func esmfoldLike() driver {
	return driver{contextNoise: 4, slackNoise: 3, truth: truth{weights: esmfold, workspaces: 33 * mib, bl: 1e5, bl2: 5000, bl3: 32,
		slack: 230 * mib, slackBL: 4e5, context: 615 * mib, modules: 70 * mib}}
}

func (d driver) run(l, b int, rng *rand.Rand) Point {
	segments := func(v float64) float64 { return math.Round(v/2/mib) * 2 * mib }
	allocated := d.allocated(l, b)
	reserved := segments(allocated + d.slack + d.slackBL*float64(l*b) + d.slackNoise*mib*rng.NormFloat64())
	if d.jumpAt == [2]int{l, b} {
		reserved += d.jump
	}
	context := d.context + d.contextNoise*mib*rng.NormFloat64()
	return Point{SeqLen: l, Batch: b, Allocated: int64(allocated), Reserved: int64(reserved), Context: int64(context),
		Process: int64(reserved) + int64(context) + int64(d.modules), Weights: int64(d.weights), LoadedReserved: int64(segments(d.weights + d.slack))}
}

// sweep runs the design so many times under a driver.
func (d driver) sweep(runs int, rng *rand.Rand) Side {
	var s Side
	for range runs {
		for _, c := range design {
			s.Points = append(s.Points, d.run(c[0], c[1], rng))
		}
	}
	return s
}

func compared(t *testing.T, before, after Side, opts CompareOptions) Comparison {
	t.Helper()
	c, err := Compare(before, after, opts)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// settle compares as the fleet does: what needs more is run again, those cells
// only, until all is settled or the rounds are used up.
func settle(t *testing.T, old, new driver, runs, rounds int, seed uint64) (first, last Comparison) {
	t.Helper()
	rng := rand.New(rand.NewPCG(seed, 40))
	before, after := old.sweep(runs, rng), new.sweep(runs, rng)
	first = compared(t, before, after, CompareOptions{})
	last = first
	for round := 0; round < rounds && len(last.NeedMore) > 0; round++ {
		for _, n := range last.NeedMore {
			for range n.Repeats {
				before.Points = append(before.Points, old.run(n.SeqLen, n.Batch, rng))
				after.Points = append(after.Points, new.run(n.SeqLen, n.Batch, rng))
			}
		}
		last = compared(t, before, after, CompareOptions{})
	}
	return first, last
}

func change(t *testing.T, c Comparison, name string) TermChange {
	t.Helper()
	i := slices.IndexFunc(c.Terms, func(tc TermChange) bool { return tc.Term == name })
	if i < 0 {
		t.Fatalf("no term %s in %+v", name, c.Terms)
	}
	return c.Terms[i]
}

// A driver with 40 MiB more context is called that, by name, from one to three
// runs of each cell, and its interval holds the truth as often as stated.
func TestContextChangeIsNamed(t *testing.T) {
	const seeds = 100
	for runs := 1; runs <= 3; runs++ {
		named, held, said := 0, 0, map[string]int{}
		for seed := range uint64(seeds) {
			old, new := esmfoldLike(), esmfoldLike()
			new.context += 40 * mib
			_, c := settle(t, old, new, runs, 0, seed)
			said[c.String()]++
			if c.String() == "changed: context +40 MiB" {
				named++
			}
			if ch := change(t, c, "context"); ch.Lo <= 40*mib && 40*mib <= ch.Hi {
				held++
			}
		}
		t.Logf("%d run(s) of each cell, seeds 0 to %d: context +40 MiB named in %d, interval held 40 MiB in %d; said %v", runs, seeds-1, named, held, said)
		if named < 95 || held < 89 { // 95 of 100, less three standard deviations
			t.Errorf("%d run(s): named in %d, held in %d", runs, named, held)
		}
	}
}

func TestExactContextChangeIsNamedExactly(t *testing.T) {
	old := esmfoldLike()
	old.contextNoise, old.slackNoise = 0, 0
	new := old
	new.context += 40 * mib
	c := compared(t, old.sweep(1, rand.New(rand.NewPCG(1, 1))), new.sweep(1, rand.New(rand.NewPCG(2, 2))), CompareOptions{})
	if c.String() != "changed: context +40 MiB" {
		t.Fatalf("said %q: %+v", c, c)
	}
	for _, cell := range c.Cells {
		if want := map[string]Verdict{"allocated": Same, "reserved": Same, "process": Changed}[cell.Measure]; cell.Verdict != want {
			t.Errorf("%+v", cell)
		}
	}
}

// Two drivers that are alike are called the same, and noise alone is never
// called a change, at the first look as after repeats of what needed more.
func TestIdenticalDriversAreTheSame(t *testing.T) {
	const seeds = 100
	for runs := 1; runs <= 3; runs++ {
		first, last := map[Verdict]int{}, map[Verdict]int{}
		for seed := range uint64(seeds) {
			a, b := settle(t, esmfoldLike(), esmfoldLike(), runs, 4, 1000+seed)
			first[a.Verdict]++
			last[b.Verdict]++
		}
		t.Logf("%d run(s) of each cell, seeds 1000 to %d: at first %v, after repeats %v", runs, 999+seeds, first, last)
		if last[Same] < 95 || last[Changed] > 5 || first[Changed] > 5 {
			t.Errorf("%d run(s): at first %v, after repeats %v", runs, first, last)
		}
	}
}

// The correction holds by itself, without a margin to hide behind: with one of
// a byte, noise alone is called a change in at most 5 of 100 comparisons.
func TestNoiseAloneWithoutAMargin(t *testing.T) {
	const seeds = 300
	for runs := 1; runs <= 3; runs++ {
		wrong := 0
		for seed := range uint64(seeds) {
			rng := rand.New(rand.NewPCG(seed, 41))
			d := esmfoldLike()
			if compared(t, d.sweep(runs, rng), d.sweep(runs, rng), CompareOptions{Margin: 1}).Verdict == Changed {
				wrong++
			}
		}
		t.Logf("%d run(s), seeds 0 to %d: noise called a change in %d", runs, seeds-1, wrong)
		if wrong > binomialMost(seeds, 0.05) {
			t.Errorf("%d run(s): noise called a change in %d of %d", runs, wrong, seeds)
		}
	}
}

// A change as large as the margin is not called the same more often than stated.
func TestSameIsSeldomWrong(t *testing.T) {
	const seeds = 300
	wrong := 0
	for seed := range uint64(seeds) {
		rng := rand.New(rand.NewPCG(seed, 42))
		old, new := esmfoldLike(), esmfoldLike()
		new.context += DefaultMargin
		c := compared(t, old.sweep(2, rng), new.sweep(2, rng), CompareOptions{})
		if change(t, c, "context").Verdict == Same {
			wrong++
		}
	}
	t.Logf("seeds 0 to %d: 16 MiB called the same in %d", seeds-1, wrong)
	if wrong > binomialMost(seeds, 0.05) {
		t.Errorf("16 MiB called the same in %d of %d", wrong, seeds)
	}
}

// Whatever moves is named by its own term, and nothing else is.
func TestTheTermThatMovedIsNamed(t *testing.T) {
	const seeds = 40
	for _, c := range []struct {
		name  string
		shift func(*driver)
		want  string
	}{
		{"weights", func(d *driver) { d.weights += 100 * mib }, "weights +100 MiB"},
		{"modules", func(d *driver) { d.modules += 64 * mib }, "modules +"},
		{"modules fewer", func(d *driver) { d.modules -= 64 * mib }, "modules -"},
		{"slack", func(d *driver) { d.slack += 64 * mib }, "slack +"},
		{"workspaces", func(d *driver) { d.workspaces += 32 * mib }, "workspaces +32 MiB"},
		{"linear", func(d *driver) { d.bl += 40e3 }, "BL +39 MiB at L256 B4"},
		{"quadratic", func(d *driver) { d.bl2 += 200 }, "BL2 +50 MiB at L512 B1"},
		{"cubic", func(d *driver) { d.bl3 += 1 }, "BL3 +128 MiB at L512 B1"},
		{"cubic less", func(d *driver) { d.bl3 -= 1 }, "BL3 -128 MiB at L512 B1"},
		{"two at once", func(d *driver) { d.context += 40 * mib; d.bl3++ }, "BL3 +128 MiB at L512 B1, context +"},
	} {
		t.Run(c.name, func(t *testing.T) {
			for seed := range uint64(seeds) {
				rng := rand.New(rand.NewPCG(seed, 43))
				old, new := esmfoldLike(), esmfoldLike()
				c.shift(&new)
				got := compared(t, old.sweep(3, rng), new.sweep(3, rng), CompareOptions{})
				if got.Verdict != Changed || !strings.HasPrefix(got.Moved, c.want) || strings.Count(got.Moved, ",") != strings.Count(c.want, ",") {
					t.Errorf("seed %d: %s, want %s", seed, got, c.want)
				}
			}
		})
	}
}

// One cell out of the line, without a term to it, is found and named.
func TestOneCellAlone(t *testing.T) {
	wrong := 0
	for seed := range uint64(100) {
		old, new := esmfoldLike(), esmfoldLike()
		new.jump, new.jumpAt = 60*mib, [2]int{256, 2}
		_, c := settle(t, old, new, 2, 4, seed)
		var cells []string
		for _, cell := range c.Cells {
			if cell.Verdict == Changed {
				cells = append(cells, cell.Measure+place(cell.SeqLen, cell.Batch))
			}
		}
		if !slices.Equal(cells, []string{"reserved at L256 B2", "process at L256 B2"}) || !strings.HasSuffix(c.Moved, "at L256 B2") {
			wrong++
			t.Logf("seed %d: %s, %v", seed, c, cells)
		}
	}
	if wrong > 2 {
		t.Errorf("not told in %d of 100", wrong)
	}
}

func TestCompareFewCells(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 44))
	d := esmfoldLike()
	one := func(shift float64, runs int, cells ...[2]int) Side {
		var s Side
		for _, c := range cells {
			for range runs {
				moved := d
				moved.context += shift
				s.Points = append(s.Points, moved.run(c[0], c[1], rng))
			}
		}
		return s
	}
	at := [2]int{256, 1}
	t.Run("one run on each side tells nothing of noise", func(t *testing.T) {
		c := compared(t, one(0, 1, at), one(40*mib, 1, at), CompareOptions{})
		if c.Verdict != NeedMore || len(c.NeedMore) != 1 || c.NeedMore[0] != (Need{SeqLen: 256, Batch: 1, Repeats: 2}) {
			t.Fatalf("%s, %+v", c, c.NeedMore)
		}
		if ch := change(t, c, "context"); ch.Hi != 1<<62 || ch.Lo != -1<<62 {
			t.Errorf("an interval from nothing: %+v", ch)
		}
	})
	t.Run("repeats of that one cell do", func(t *testing.T) {
		if c := compared(t, one(0, 8, at), one(40*mib, 8, at), CompareOptions{}); c.Verdict != Changed || !strings.HasPrefix(c.Moved, "context +") {
			t.Fatalf("%s: %+v", c, c)
		}
	})
	t.Run("a change of shape in two exact cells", func(t *testing.T) {
		old, new := d, d
		old.contextNoise, old.slackNoise = 0, 0
		new.contextNoise, new.slackNoise = 0, 0
		new.bl3 += 8
		var a, b Side
		for range 2 {
			for _, l := range []int{256, 512} {
				a.Points, b.Points = append(a.Points, old.run(l, 1, rng)), append(b.Points, new.run(l, 1, rng))
			}
		}
		if c := compared(t, a, b, CompareOptions{}); c.String() != "changed: activations +1024 MiB at L512 B1" {
			t.Fatalf("%s: %+v", c, c.Terms)
		}
	})
	t.Run("no cell in common", func(t *testing.T) {
		c := compared(t, one(0, 3, at), one(40*mib, 3, [2]int{512, 1}), CompareOptions{})
		if want := []Unpaired{{256, 1, "before"}, {512, 1, "after"}}; !slices.Equal(c.Unpaired, want) || len(c.Cells) != 0 {
			t.Fatalf("%+v", c)
		}
		if c.Verdict == Same {
			t.Errorf("no cell in common is the same: %+v", c)
		}
	})
	t.Run("nothing in common at all", func(t *testing.T) {
		c := compared(t, Side{Points: []Point{{SeqLen: 1, Batch: 1, Allocated: 5}}}, Side{Points: []Point{{SeqLen: 1, Batch: 1, Process: 5}}}, CompareOptions{})
		if c.Verdict != NeedMore || len(c.Notes) == 0 {
			t.Fatalf("%+v", c)
		}
	})
	t.Run("context not measured", func(t *testing.T) {
		a, b := one(0, 6, at, [2]int{512, 1}), one(40*mib, 6, at, [2]int{512, 1})
		for i := range a.Points {
			a.Points[i].Context = 0
		}
		c := compared(t, a, b, CompareOptions{})
		if !strings.HasPrefix(c.Moved, "context +") || !strings.Contains(strings.Join(c.Notes, "\n"), "modules") {
			t.Fatalf("%s: %q", c, c.Notes)
		}
	})
}

func TestBoundariesAreCompared(t *testing.T) {
	find := func(shift int64, noise float64, rng *rand.Rand) Side {
		d := esmfoldLike()
		d.contextNoise, d.slackNoise = 0, noise
		s := d.sweep(2, rng)
		for _, p := range s.Points[:len(design)] {
			s.Boundaries = append(s.Boundaries, CellBoundary{SeqLen: p.SeqLen, Batch: p.Batch, Limits: Reserved, Step: 2 * mib,
				Boundary: (p.Reserved-100*mib)/(2*mib)*(2*mib) + shift})
		}
		return s
	}
	rng := rand.New(rand.NewPCG(1, 45))
	c := compared(t, find(0, 0, rng), find(2*mib, 0, rng), CompareOptions{})
	if c.Verdict != Same {
		t.Errorf("a step apart: %s", c)
	}
	c = compared(t, find(0, 0, rng), find(-64*mib, 0, rng), CompareOptions{})
	if c.Verdict != Changed || !strings.HasPrefix(c.Moved, "boundary -") {
		t.Errorf("64 MiB less: %s", c)
	}
	// Found once each, boundaries bear the noise of the peak that they limit.
	c = compared(t, find(0, 12, rng), find(0, 12, rng), CompareOptions{})
	if c.Verdict != NeedMore || c.Noise["boundary"] != c.Noise["reserved"] {
		t.Errorf("noisy boundaries: %s, noise %v", c, c.Noise)
	}
}

func TestMarginAndConfidenceAreTheUsers(t *testing.T) {
	old := esmfoldLike()
	old.contextNoise, old.slackNoise = 0, 0
	new := old
	new.context += 40 * mib
	rng := rand.New(rand.NewPCG(1, 46))
	a, b := old.sweep(1, rng), new.sweep(1, rng)
	if c := compared(t, a, b, CompareOptions{Margin: 64 * mib}); c.Verdict != Same || c.Margin != 64*mib {
		t.Errorf("40 MiB within a margin of 64: %s", c)
	}
	if c := compared(t, a, b, CompareOptions{Confidence: 0.99}); c.Confidence != 0.99 || c.Verdict != Changed {
		t.Errorf("at 99 %%: %+v", c)
	}
	for name, bad := range map[string]struct {
		opts CompareOptions
		side Side
		want error
	}{
		"margin":     {CompareOptions{Margin: -1}, b, ErrBadPoint},
		"confidence": {CompareOptions{Confidence: 2}, b, ErrBadPoint},
		"empty":      {CompareOptions{}, Side{}, ErrNothingToCompare},
		"point":      {CompareOptions{}, Side{Points: []Point{{SeqLen: 1}}}, ErrBadPoint},
		"boundary":   {CompareOptions{}, Side{Boundaries: []CellBoundary{{SeqLen: 1, Batch: 1, Boundary: 1, Step: 1}}}, ErrBadPoint},
	} {
		if _, err := Compare(a, bad.side, bad.opts); !errors.Is(err, bad.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// The order of runs never matters, to the last byte, and sides turned around
// turn the signs around.
func TestCompareIsSymmetric(t *testing.T) {
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 47))
		old, new := esmfoldLike(), esmfoldLike()
		new.bl2 += 150
		a, b := old.sweep(2, rng), new.sweep(2, rng)
		want := compared(t, a, b, CompareOptions{})
		back := compared(t, b, a, CompareOptions{})
		rng.Shuffle(len(a.Points), func(i, j int) { a.Points[i], a.Points[j] = a.Points[j], a.Points[i] })
		if got := compared(t, a, b, CompareOptions{}); !reflect.DeepEqual(got, want) {
			t.Fatalf("seed %d: another order said %s, not %s", seed, got, want)
		}
		for i, term := range want.Terms {
			if o := back.Terms[i]; o.Diff != -term.Diff || o.Lo != -term.Hi || o.Verdict != term.Verdict {
				t.Errorf("seed %d: there %+v, back %+v", seed, term, o)
			}
		}
		text, err := json.Marshal(want)
		if err != nil {
			t.Fatal(err)
		}
		var again Comparison
		if err := json.Unmarshal(text, &again); err != nil || !reflect.DeepEqual(again, want) {
			t.Fatalf("seed %d: JSON changed it: %v", seed, err)
		}
	}
}

// Points of no sense give an error or numbers, never NaN or a panic.
func TestCompareSurvivesJunk(t *testing.T) {
	for seed := range uint64(300) {
		rng := rand.New(rand.NewPCG(seed, 48))
		c, err := Compare(junk(rng), junk(rng), CompareOptions{})
		if err != nil && !errors.Is(err, ErrBadPoint) && !errors.Is(err, ErrNothingToCompare) {
			t.Fatalf("seed %d: %v", seed, err)
		}
		if _, err := json.Marshal(c); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		for _, term := range c.Terms {
			if term.Lo > term.Diff || term.Diff > term.Hi || !(term.P >= 0 && term.P <= 1) {
				t.Fatalf("seed %d: %+v", seed, term)
			}
		}
	}
}

func junk(rng *rand.Rand) Side {
	amount := func() int64 { return rng.Int64N(1<<(1+rng.IntN(58))) * int64(min(1, rng.IntN(4))) }
	var s Side
	for range rng.IntN(12) {
		p := Point{SeqLen: 1 + rng.IntN(1<<rng.IntN(16)), Batch: 1 + rng.IntN(3), Allocated: amount(), Process: amount(),
			Weights: amount(), Context: amount(), Rounding: amount()}
		p.Reserved = p.Allocated + amount()
		s.Points = append(s.Points, p)
		if rng.IntN(3) == 0 {
			s.Points = append(s.Points, p)
		}
	}
	return s
}

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

func TestRecoversKnownTruth(t *testing.T) {
	tr := truth{weights: 8e9, workspaces: 3.4e7, bl: 2e5, bl2: 5000, bl3: 32, slack: 2e8, slackBL: 4e5, context: 6e8, modules: 7e7}
	rng := rand.New(rand.NewPCG(1, 2))
	var points []Point
	for _, d := range design {
		points = append(points, tr.point(d[0], d[1], 0, rng))
	}
	models := mustFit(t, points)
	want := map[Target]map[string]float64{
		Allocated: {"weights": 8e9, "workspaces": 3.4e7, "BL": 2e5, "BL2": 5000, "BL3": 32},
		Reserved:  {"weights": 8e9, "workspaces": 3.4e7, "BL": 6e5, "BL2": 5000, "BL3": 32, "slack": 2e8},
		Process:   {"weights": 8e9, "workspaces": 3.4e7, "BL": 6e5, "BL2": 5000, "BL3": 32, "slack": 2e8, "context": 6e8, "modules": 7e7},
	}
	for target, terms := range want {
		m := model(t, models, target)
		for name, v := range terms {
			got, ok := term(m, name)
			if !ok || math.Abs(got.Value-v) > 1e-4*v || got.Lo > v*1.0001 || got.Hi < v*0.9999 {
				t.Errorf("%s: %s = %+v, want %g", target, name, got, v)
			}
		}
		for _, extra := range m.Terms {
			if _, ok := terms[extra.Name]; !ok && extra.Value != 0 {
				t.Errorf("%s: unexpected term %+v", target, extra)
			}
		}
		if m.ResidualMaxRel > 1e-6 {
			t.Errorf("%s: residual %g of exact data", target, m.ResidualMaxRel)
		}
	}
}

// Whatever the data, terms are not negative, ordered, and add up to the
// prediction; constants are whole bytes.
func TestTermsAddUp(t *testing.T) {
	for seed := range uint64(40) {
		rng := rand.New(rand.NewPCG(seed, 3))
		tr := randomTruth(rng)
		var points []Point
		for _, d := range design[:2+rng.IntN(len(design)-1)] {
			points = append(points, tr.point(d[0], d[1], 0.002, rng))
		}
		for _, m := range mustFit(t, points) {
			sum := 0.0
			for _, term := range m.Terms {
				if term.Lo < 0 || term.Lo > term.Value || term.Value > term.Hi {
					t.Errorf("seed %d: %s: %+v", seed, m.Target, term)
				}
				if term.Unit == "bytes" && term.Value != math.Trunc(term.Value) {
					t.Errorf("seed %d: %s is not whole bytes: %v", seed, term.Name, term.Value)
				}
				sum += term.Value * Variable(term.Name, 300, 2)
			}
			p := m.Predict(300, 2)
			if math.Abs(sum-float64(p.Value)) > 1 || p.Lo > p.Value || p.Hi < p.Value {
				t.Errorf("seed %d: terms add up to %f, prediction %+v", seed, sum, p)
			}
			if got := m.against(Point{SeqLen: m.Worst.SeqLen, Batch: m.Worst.Batch, Allocated: m.Worst.Measured, Reserved: m.Worst.Measured, Process: m.Worst.Measured}); got != m.Worst || math.Abs(got.Rel) != m.ResidualMaxRel {
				t.Errorf("seed %d: worst point %+v, residual %g", seed, m.Worst, m.ResidualMaxRel)
			}
		}
	}
}

func TestOrderOfPointsNeverMatters(t *testing.T) {
	for _, chunk := range []int{0, 64} {
		points := realRuns(t, chunk)
		want := mustFit(t, points)
		rng := rand.New(rand.NewPCG(7, 7))
		for range 20 {
			rng.Shuffle(len(points), func(i, j int) { points[i], points[j] = points[j], points[i] })
			if got := mustFit(t, points); !reflect.DeepEqual(got, want) {
				t.Fatalf("chunk %d: another order gave another fit:\n%+v\n%+v", chunk, got, want)
			}
		}
	}
}

func TestRepeatsDoNotNarrowIntervals(t *testing.T) {
	points := realRuns(t, 0)
	once := mustFit(t, points)
	twice := mustFit(t, append(slices.Clone(points), points...))
	for i := range once {
		if !reflect.DeepEqual(once[i].Terms, twice[i].Terms) || once[i].Predict(500, 2) != twice[i].Predict(500, 2) {
			t.Errorf("%s: the same runs given twice changed the fit", once[i].Target)
		}
	}
}

func TestModelSurvivesJSON(t *testing.T) {
	for _, m := range mustFit(t, realRuns(t, 0)) {
		text, err := json.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		var back Model
		if err := json.Unmarshal(text, &back); err != nil {
			t.Fatal(err)
		}
		if a, b := m.Predict(700, 3), back.Predict(700, 3); a != b {
			t.Errorf("%s: %+v before, %+v after", m.Target, a, b)
		}
		stripped := back
		stripped.Components = nil
		p, full := stripped.Predict(300, 1), m.Predict(300, 1)
		if p.Value != full.Value || p.Lo >= p.Value || p.Hi <= p.Value {
			t.Errorf("%s: terms alone predict %+v, the whole %+v", m.Target, p, full)
		}
	}
}

func TestFewPoints(t *testing.T) {
	p := Point{SeqLen: 256, Batch: 1, Allocated: 9e9, Reserved: 1e10, Process: 11e9, Weights: 8e9}
	q := Point{SeqLen: 384, Batch: 1, Allocated: 10e9, Reserved: 11e9, Process: 12e9, Weights: 8e9}
	unweighed := func(p Point) Point { p.Weights = 0; return p }
	for _, c := range []struct {
		name   string
		points []Point
		fits   bool
	}{
		{"none", nil, false},
		{"one", []Point{p}, false},
		{"one, three times", []Point{p, p, p}, false},
		{"two with weights", []Point{p, q}, true},
		{"two without weights", []Point{unweighed(p), unweighed(q)}, false},
		{"points without peaks", []Point{{SeqLen: 1, Batch: 1}, {SeqLen: 2, Batch: 1}, {SeqLen: 3, Batch: 1}}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			models, err := Fit(c.points, Options{})
			if c.fits {
				if err != nil || len(models) != 3 {
					t.Fatalf("%d models, %v", len(models), err)
				}
				return
			}
			if !errors.Is(err, ErrTooFewPoints) || !strings.Contains(err.Error(), "needs at least 2") {
				t.Fatalf("got %v", err)
			}
		})
	}
	t.Run("a target that is measured too rarely is named", func(t *testing.T) {
		a, b := p, q
		a.Process, b.Process, b.Reserved, a.Reserved = 0, 0, 0, 0
		c := Point{SeqLen: 512, Batch: 1, Allocated: 12e9, Process: 15e9, Weights: 8e9}
		models := mustFit(t, []Point{a, b, c})
		if len(models) != 1 || !strings.Contains(strings.Join(models[0].Notes, "\n"), "process: not fitted") {
			t.Fatalf("%+v", models)
		}
	})
}

func TestBadInputIsRefused(t *testing.T) {
	good := Point{SeqLen: 256, Batch: 1, Allocated: 9e9}
	for name, p := range map[string]Point{
		"no length":            {Batch: 1, Allocated: 1},
		"no batch":             {SeqLen: 1, Allocated: 1},
		"negative":             {SeqLen: 1, Batch: 1, Allocated: -1},
		"more than reserved":   {SeqLen: 1, Batch: 1, Allocated: 5e9, Reserved: 4e9},
		"more, beyond a digit": {SeqLen: 1, Batch: 1, Allocated: 5e9, Reserved: 4e9, Rounding: 4e8},
	} {
		if _, err := Fit([]Point{good, p}, Options{}); !errors.Is(err, ErrBadPoint) {
			t.Errorf("%s: got %v", name, err)
		}
	}
	if _, err := Fit([]Point{good}, Options{Confidence: 1}); !errors.Is(err, ErrBadPoint) {
		t.Errorf("confidence 1: got %v", err)
	}
}

// A workload whose peak never moves (weights and nothing else that counts) is
// a sum of one term, not an error.
func TestFlatWorkload(t *testing.T) {
	var points []Point
	for _, l := range []int{256, 384, 512, 768, 2048} {
		points = append(points, Point{SeqLen: l, Batch: 1, Allocated: 4548994048, Reserved: 4578082816})
	}
	m := model(t, mustFit(t, points), Reserved)
	if p := m.Predict(1024, 1); math.Abs(float64(p.Value)-4578082816) > 1e4 || !p.InDomain {
		t.Errorf("predicted %+v", p)
	}
}

func TestProcessAloneIsFittedAndSaysSo(t *testing.T) {
	var points []Point
	for _, p := range realRuns(t, 0) {
		p.Allocated, p.Reserved = 0, 0
		points = append(points, p)
	}
	models := mustFit(t, points)
	if len(models) != 1 || models[0].Target != Process || models[0].ResidualMaxRel > 0.025 ||
		!strings.Contains(strings.Join(models[0].Notes, "\n"), "fitted alone") {
		t.Fatalf("%+v", models)
	}
}

// Points of no sense at all give an error or numbers, never NaN or a panic.
func TestJunkIsSurvived(t *testing.T) {
	for seed := range uint64(400) {
		rng := rand.New(rand.NewPCG(seed, 8))
		amount := func() int64 {
			if rng.IntN(4) == 0 {
				return 0
			}
			return rng.Int64N(1 << (1 + rng.IntN(60)))
		}
		var points []Point
		for range 1 + rng.IntN(8) {
			p := Point{SeqLen: 1 + rng.IntN(1<<rng.IntN(20)), Batch: 1 + rng.IntN(3), Allocated: amount(), Process: amount(),
				Weights: amount(), Context: amount(), LoadedReserved: amount(), Rounding: amount()}
			p.Reserved = p.Allocated + amount()
			points = append(points, p)
		}
		models, err := Fit(points, Options{})
		if err != nil && !errors.Is(err, ErrTooFewPoints) && !errors.Is(err, ErrBadPoint) {
			t.Fatalf("seed %d: %v", seed, err)
		}
		for _, m := range models {
			if _, err := json.Marshal(m); err != nil { // refuses NaN and infinities
				t.Fatalf("seed %d: %v", seed, err)
			}
			if p := m.Predict(1<<20, 1<<10); p.Lo < 0 || p.Lo > p.Value || p.Value > p.Hi {
				t.Fatalf("seed %d: %+v", seed, p)
			}
		}
	}
}

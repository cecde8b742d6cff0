package fit

import (
	"bufio"
	"encoding/json"
	"errors"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
)

// keptAside reads measured runs of cells that are not among the given ones.
func keptAside(t *testing.T, chunk int) []Point {
	t.Helper()
	f, err := os.Open("testdata/esmfold_h200_kept_aside.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var out []Point
	for in := bufio.NewScanner(f); in.Scan(); {
		var r run
		if err := json.Unmarshal(in.Bytes(), &r); err != nil {
			t.Fatal(err)
		}
		if r.Chunk == chunk {
			out = append(out, r.point())
		}
	}
	if len(out) == 0 {
		t.Fatal("no runs")
	}
	return out
}

// The given runs alone (lengths to 640) predict what was kept aside, to length
// 1024 and at other batches, as closely as promised and inside the interval. What
// is beyond the domain is right as well, and still refused unless asked for.
func TestKeptAsideRunsArePredicted(t *testing.T) {
	for _, chunk := range []int{0, 64} {
		models := mustFit(t, realRuns(t, chunk))
		for _, p := range keptAside(t, chunk) {
			for _, m := range models {
				said := m.Predict(p.SeqLen, p.Batch)
				rel := m.against(p).Rel
				t.Logf("L%d B%d chunk %d %s: off by %+.4f %%, interval %.2f %% wide, in domain %v", p.SeqLen, p.Batch, chunk, m.Target,
					100*rel, 100*float64(said.Hi-said.Lo)/float64(said.Value), said.InDomain)
				if math.Abs(rel) > promise[m.Target] || !said.holds(float64(p.peak(m.Target))) {
					t.Errorf("L%d B%d %s: off by %.4f %%, %+v", p.SeqLen, p.Batch, m.Target, 100*rel, said)
				}
				if _, err := m.QuotaFor(p.SeqLen, p.Batch, 0.05); (p.SeqLen > 640) != errors.Is(err, ErrOutside) {
					t.Errorf("L%d B%d: %v", p.SeqLen, p.Batch, err)
				}
			}
		}
	}
}

// realCells is every measured cell once, given and kept aside, with what was
// metered in all of them alike.
func realCells(t *testing.T) []Point {
	t.Helper()
	given := sorted(realRuns(t, 0))
	var out []Point
	for _, p := range append(given, keptAside(t, 0)...) {
		p.Weights, p.Context, p.LoadedReserved = given[0].Weights, given[0].Context, given[0].LoadedReserved
		if !slices.ContainsFunc(out, func(o Point) bool { return o.SeqLen == p.SeqLen && o.Batch == p.Batch }) {
			out = append(out, p)
		}
	}
	return out
}

// Of the 22 measured cells, 12 taken at random predict the others: those between
// the lengths and batches taken as closely as promised, and inside the interval
// at the stated rate. The rest would be extrapolation: it is refused.
func TestRandomSplitsOfTheRealCells(t *testing.T) {
	const splits, taken = 150, 12
	cells := realCells(t)
	hits, tries, refused := map[Target]int{}, map[Target]int{}, 0
	worst, beyond := map[Target]float64{}, map[Target]float64{}
	for seed := range uint64(splits) {
		rng := rand.New(rand.NewPCG(seed, 60))
		rng.Shuffle(len(cells), func(i, j int) { cells[i], cells[j] = cells[j], cells[i] })
		for _, m := range mustFit(t, cells[:taken]) {
			for _, p := range cells[taken:] {
				rel := math.Abs(m.against(p).Rel)
				if !m.Domain.Contains(p.SeqLen, p.Batch) {
					if _, err := m.QuotaFor(p.SeqLen, p.Batch, 0.05); !errors.Is(err, ErrOutside) {
						t.Fatalf("seed %d: L%d B%d is outside %+v, and %v", seed, p.SeqLen, p.Batch, m.Domain, err)
					}
					refused++
					beyond[m.Target] = max(beyond[m.Target], rel)
					continue
				}
				worst[m.Target] = max(worst[m.Target], rel)
				tries[m.Target]++
				if m.Predict(p.SeqLen, p.Batch).holds(float64(p.peak(m.Target))) {
					hits[m.Target]++
				}
				if rel > promise[m.Target] {
					t.Errorf("seed %d: L%d B%d %s is off by %.3f %%", seed, p.SeqLen, p.Batch, m.Target, 100*rel)
				}
			}
		}
	}
	for target := range promise {
		rate := float64(hits[target]) / float64(tries[target])
		t.Logf("seeds 0 to %d, %s: %.3f of %d inside the 95 %% interval, at worst off by %.3f %% (refused ones by %.3f %%)",
			splits-1, target, rate, tries[target], 100*worst[target], 100*beyond[target])
		if rate < 0.93 {
			t.Errorf("%s: only %.3f of %d hold", target, rate, tries[target])
		}
	}
	t.Logf("%d questions outside a domain refused", refused)
}

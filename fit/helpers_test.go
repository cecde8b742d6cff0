package fit

import (
	"bufio"
	"encoding/json"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"gonum.org/v1/gonum/stat/distuv"
)

// run is a line of testdata/esmfold_h200_runs.jsonl.
type run struct {
	SeqLen         int               `json:"seq_len"`
	Batch          int               `json:"batch"`
	Chunk          int               `json:"chunk_size"`
	Env            map[string]string `json:"env"`
	CapKind        string            `json:"cap_kind"`
	Outcome        string            `json:"outcome"`
	Allocated      int64             `json:"peak_allocated_bytes"`
	Reserved       int64             `json:"peak_reserved_bytes"`
	Process        int64             `json:"process_peak_bytes"`
	Context        int64             `json:"context_bytes"`
	Weights        int64             `json:"weights_bytes"`
	LoadedReserved int64             `json:"loaded_reserved_bytes"`
}

// esmfold is the default ESMFold of the data, apart from its two other variants.
const esmfold = 8435267018

// readRuns reads every measured run that was uncapped and passed.
func readRuns(t *testing.T) []run {
	t.Helper()
	f, err := os.Open("testdata/esmfold_h200_runs.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var out []run
	for in := bufio.NewScanner(f); in.Scan(); {
		var r run
		if err := json.Unmarshal(in.Bytes(), &r); err != nil {
			t.Fatal(err)
		}
		if r.CapKind == "none" && r.Outcome == "ok" {
			out = append(out, r)
		}
	}
	return out
}

func (r run) point() Point {
	return Point{SeqLen: r.SeqLen, Batch: r.Batch, Chunk: r.Chunk, Allocated: r.Allocated, Reserved: r.Reserved,
		Process: r.Process, Weights: r.Weights, Context: r.Context, LoadedReserved: r.LoadedReserved}
}

// envText is the run's environment as KEY=VALUE, "" for none.
func (r run) envText() string {
	var pairs []string
	for _, k := range slices.Sorted(maps.Keys(r.Env)) {
		pairs = append(pairs, k+"="+r.Env[k])
	}
	return strings.Join(pairs, " ")
}

// realRuns reads the measured runs of one group: default ESMFold, no settings.
func realRuns(t *testing.T, chunk int) []Point {
	t.Helper()
	var out []Point
	for _, r := range readRuns(t) {
		if r.Weights == esmfold && len(r.Env) == 0 && r.Chunk == chunk {
			out = append(out, r.point())
		}
	}
	if len(out) == 0 {
		t.Fatal("no runs")
	}
	return out
}

// truth is a made-up program.
type truth struct {
	weights, workspaces, bl, bl2, bl3 float64
	slack, slackBL, context, modules  float64
}

func (tr truth) allocated(l, b int) float64 {
	n, m := float64(l), float64(b)
	return tr.weights + tr.workspaces + m*n*(tr.bl+n*(tr.bl2+n*tr.bl3))
}

// point is a run of it; noise is a relative standard deviation per peak.
func (tr truth) point(l, b int, noise float64, rng *rand.Rand) Point {
	wobble := func(v float64) float64 { return v * (1 + noise*rng.NormFloat64()) }
	allocated := wobble(tr.allocated(l, b))
	slack := max(0, tr.slack+tr.slackBL*float64(l*b)+5*noise*allocated*rng.NormFloat64())
	reserved := allocated + slack
	return Point{SeqLen: l, Batch: b, Allocated: int64(allocated), Reserved: int64(reserved),
		Process: int64(reserved + tr.context + tr.modules), Weights: int64(tr.weights), Context: int64(tr.context),
		LoadedReserved: int64(tr.weights + tr.slack)}
}

func randomTruth(rng *rand.Rand) truth {
	some := func(lo, hi float64) float64 { return lo + (hi-lo)*rng.Float64() }
	tr := truth{weights: math.Round(some(2e9, 2e10)), workspaces: some(0, 1e8), bl: some(0, 5e5), bl2: some(1e3, 1e4), bl3: some(5, 40),
		slack: some(5e7, 5e8), slackBL: some(0, 5e5), context: math.Round(some(4e8, 9e8)), modules: some(5e7, 1e8)}
	switch rng.IntN(3) {
	case 0:
		tr.bl = 0
	case 1:
		tr.bl3 = 0
	}
	return tr
}

var design = [][2]int{{64, 1}, {128, 1}, {192, 1}, {256, 1}, {320, 1}, {384, 1}, {448, 1}, {512, 1}, {128, 4}, {256, 2}, {256, 4}}

func mustFit(t *testing.T, points []Point) []Model {
	t.Helper()
	models, err := Fit(points, Options{})
	if err != nil {
		t.Fatal(err)
	}
	return models
}

func model(t *testing.T, models []Model, target Target) Model {
	t.Helper()
	i := slices.IndexFunc(models, func(m Model) bool { return m.Target == target })
	if i < 0 {
		t.Fatalf("no model of %s", target)
	}
	return models[i]
}

func term(m Model, name string) (Term, bool) {
	i := slices.IndexFunc(m.Terms, func(t Term) bool { return t.Name == name })
	if i < 0 {
		return Term{}, false
	}
	return m.Terms[i], true
}

func (p Prediction) holds(v float64) bool { return float64(p.Lo) <= v && v <= float64(p.Hi) }

// binomialMost is the most of n that happen with probability p, but for one time
// in a thousand.
func binomialMost(n int, p float64) int {
	most := n
	for most > 0 && (distuv.Binomial{N: float64(n), P: p}).CDF(float64(most-1)) > 0.999 {
		most--
	}
	return most
}

// binomialLeast is the fewest, as binomialMost is the most.
func binomialLeast(n int, p float64) int { return n - binomialMost(n, 1-p) }

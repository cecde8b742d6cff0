package sim

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/oomfleet/oomfleet/agent/runner"
	"github.com/oomfleet/oomfleet/allocator"
	"github.com/oomfleet/oomfleet/proto"
)

func cellOf(req runner.Request) proto.Cell {
	return proto.Cell{Workload: proto.Workload{Name: req.Workload.Name, Params: req.Workload.Params}, GPU: GPU, Driver: Driver,
		SeqLen: req.SeqLen, Batch: req.Batch, ChunkSize: req.ChunkSize, Env: req.Env,
		QuotaKind: proto.QuotaKind(req.QuotaKind), Step: proto.DefaultStep}
}

// TestTruthIsWhatRunsComeTo holds the truth of cells of every kind against runs
// at both sides of each of its edges, and at quotas between.
func TestTruthIsWhatRunsComeTo(t *testing.T) {
	expandable, split := "expandable_segments:True", "max_split_size_mb:128"
	for _, c := range []struct {
		seqLen, chunk int
		conf, quota   string
		kind          DeviationKind
	}{
		{512, 64, "", "allocator", ""}, {352, 0, split, "allocator", ""}, {384, 0, expandable, "allocator", ""}, {448, 0, "", "device", ""},
		{512, 64, "", "allocator", DeviateAdaptive}, {576, 64, "", "device", DeviateAdaptive}, {352, 0, split, "allocator", DeviateAdaptive},
		{512, 64, "", "allocator", DeviateExtra}, {384, 0, expandable, "allocator", DeviateExtra}, {352, 0, split, "process", DeviateExtra},
		{512, 64, expandable, "allocator", ""}, {384, 0, expandable, "allocator", DeviateOrder}, {512, 64, "", "allocator", DeviateOrder},
		{256, 0, "garbage_collection_threshold:0.9", "allocator", ""},
	} {
		t.Run(fmt.Sprintf("L%d c%d %s %s %s", c.seqLen, c.chunk, c.conf, c.quota, c.kind), func(t *testing.T) {
			var cfg Config
			if c.kind != "" {
				cfg.Deviations = Deviations{Seed: 3, Share: 1, Kinds: []DeviationKind{c.kind}}
			}
			req := request(c.seqLen, 1, c.chunk)
			req.QuotaKind = c.quota
			if c.conf != "" {
				req.Env = map[string]string{"PYTORCH_CUDA_ALLOC_CONF": c.conf}
			}
			truth, err := TruthOf(cfg, cellOf(req))
			if err != nil {
				t.Fatal(err)
			}
			if truth.Deviation.Kind != c.kind {
				t.Fatalf("it deviates by %+v", truth.Deviation)
			}
			for quota, run := range asked(truth) {
				req.ID, req.QuotaBytes = fmt.Sprintf("s-cell-%d.1.%d", run, run), int64(quota)
				way := truth.ways[0]
				if len(truth.ways) > 1 {
					way = truth.ways[cfg.Deviations.variantOf(req, fmt.Sprintf("s-cell-%d.1", run))]
				}
				pass := simulate(t, cfg, req).done != nil
				if want := way.passes(quota, truth.step); pass != want {
					t.Errorf("at %v the run passed: %v, the truth says %v", quota, pass, want)
				}
				if every, any := truth.Passes(quota); every && !pass || pass && !any {
					t.Errorf("at %v the run passed: %v, the truth says every %v, any %v", quota, pass, every, any)
				}
			}
		})
	}
}

// asked are quotas worth a run, each with a number for its run: both sides of
// the first and the last edges of the first ways, and some between.
func asked(truth Truth) map[proto.Bytes]int {
	found := map[proto.Bytes]int{}
	add := func(q proto.Bytes) { found[q] = len(found) }
	r := rand.New(rand.NewPCG(1, 2))
	for _, f := range truth.ways[:min(2, len(truth.ways))] {
		var edges []proto.Bytes
		for i := 1; i < len(f.pass); i++ {
			if f.pass[i] != f.pass[i-1] {
				edges = append(edges, f.floor+proto.Bytes(i)*truth.step)
			}
		}
		for _, q := range slices.Concat(edges[:min(2, len(edges))], edges[max(0, len(edges)-2):]) {
			add(q)
			add(q - truth.step)
		}
		for range 4 {
			add(f.floor + proto.Bytes(r.IntN(len(f.pass)))*truth.step)
		}
		add(f.floor - truth.step)
		add(f.floor + proto.Bytes(len(f.pass)+100)*truth.step)
	}
	return found
}

// TestTruthOfPlainCellsIsTheSweeps: two ways to the same map.
func TestTruthOfPlainCellsIsTheSweeps(t *testing.T) {
	for _, shape := range [][2]int{{512, 64}, {352, 0}} {
		for _, conf := range []string{"", "expandable_segments:True", "max_split_size_mb:128"} {
			req := request(shape[0], 1, shape[1])
			req.Env = map[string]string{"PYTORCH_CUDA_ALLOC_CONF": conf}
			truth, err := TruthOf(Config{}, cellOf(req))
			if err != nil {
				t.Fatal(err)
			}
			r, _, err := runOf(shape[0], 1, shape[1])
			if err != nil {
				t.Fatal(err)
			}
			settings, err := allocator.SettingsFromEnv(req.Env)
			if err != nil {
				t.Fatal(err)
			}
			swept, err := allocator.Sweep(r.events, allocator.SweepOptions{Settings: settings})
			if err != nil {
				t.Fatal(err)
			}
			var bands []proto.Band
			for _, b := range swept.FailBands {
				bands = append(bands, proto.Band{From: proto.Bytes(b.From), To: proto.Bytes(b.To)})
			}
			if got := truth.Boundary(); int64(got) != swept.Boundary || !slices.Equal(truth.FailBands(), bands) {
				t.Errorf("L%d c%d %s: boundary %v, bands %v; the sweep has %v, %v", shape[0], shape[1], conf, got, truth.FailBands(),
					proto.Bytes(swept.Boundary), bands)
			}
		}
	}
}

// TestTruthBelowWhatWasAllocated: without a quota, five requests land in larger
// blocks that lie there. Under one, most of those were given back before.
func TestTruthBelowWhatWasAllocated(t *testing.T) {
	const mib = 1 << 20
	var events []allocator.Event
	addr := uint64(0)
	alloc := func(n int64) uint64 {
		addr += 1 << 40
		events = append(events, allocator.Event{Action: allocator.Alloc, Addr: addr, Size: n * mib})
		return addr
	}
	var first []uint64
	for range 5 {
		first = append(first, alloc(47))
	}
	for _, a := range first {
		events = append(events, allocator.Event{Action: allocator.FreeRequested, Addr: a, Size: 47 * mib},
			allocator.Event{Action: allocator.FreeCompleted, Addr: a, Size: 47 * mib})
	}
	alloc(160)
	for range 5 {
		alloc(30)
	}
	alloc(60)
	w := world{recording: recording{events: events}, environment: environment{settings: allocator.Settings{MaxSplit: 21 * mib}}}
	found, err := w.walk(runner.Request{QuotaKind: string(proto.QuotaAllocator)}, proto.DefaultStep)
	if err != nil {
		t.Fatal(err)
	}
	for quota, want := range map[proto.Bytes]bool{386: false, 388: true, 398: true, 400: false, 458: false, 460: true} {
		if got := found.passes(quota*proto.MiB, proto.DefaultStep); got != want {
			t.Errorf("at %d MiB passes: %v", quota, got)
		}
	}
}

func TestRunsOfOrderDrawEveryVariant(t *testing.T) {
	d := Deviations{Seed: 3, Share: 1, Kinds: []DeviationKind{DeviateOrder}}
	drawn := map[int]int{}
	for i := range 400 {
		drawn[d.variantOf(request(384, 1, 0), fmt.Sprintf("s-cell-%d.1", i))]++
	}
	if len(drawn) != orderVariants || slices.Max(slices.Collect(maps.Keys(drawn))) != orderVariants-1 {
		t.Errorf("drawn: %v", drawn)
	}
}

func TestTruthRefusesWhatIsNotSimulated(t *testing.T) {
	for name, change := range map[string]func(*runner.Request){
		"length":     func(r *runner.Request) { r.SeqLen = 32 },
		"variable":   func(r *runner.Request) { r.Env = map[string]string{"SOME_VARIABLE": "1"} },
		"quota kind": func(r *runner.Request) { r.QuotaKind = "rumour" },
	} {
		req := request(384, 1, 0)
		change(&req)
		if truth, err := TruthOf(Config{}, cellOf(req)); err == nil {
			t.Errorf("%s: %v", name, truth.Boundary())
		}
	}
}

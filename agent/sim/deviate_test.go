package sim

import (
	"slices"
	"testing"

	"github.com/oomfleet/oomfleet/agent/runner"
	"github.com/oomfleet/oomfleet/allocator"
	"github.com/oomfleet/oomfleet/proto"
)

const (
	boundaryL384 = 11_549_016_064 // allocator quota, default settings: measured
	step         = int64(proto.DefaultStep)
)

// deviating is a configuration in which L384 B1 deviates in this way, and by how much.
func deviating(t *testing.T, kind DeviationKind) (Config, proto.Bytes) {
	t.Helper()
	cfg := Config{Deviations: Deviations{Seed: 1, Share: 1, Kinds: []DeviationKind{kind}}}
	d := cfg.Deviations.of(request(384, 1, 0))
	if d.Kind != kind || d.Bytes < 16*proto.MiB || d.Bytes > 128*proto.MiB || d.Bytes%proto.DefaultStep != 0 {
		t.Fatalf("deviation %+v", d)
	}
	return cfg, d.Bytes
}

func passes(t *testing.T, cfg Config, quota int64) told {
	t.Helper()
	req := request(384, 1, 0)
	req.QuotaBytes = quota
	return simulate(t, cfg, req)
}

// TestAdaptiveGoesOnWithLess: refused below the recording's boundary, the run
// passes, and its trace shows how.
func TestAdaptiveGoesOnWithLess(t *testing.T) {
	cfg, by := deviating(t, DeviateAdaptive)
	at := passes(t, cfg, boundaryL384)
	if at.done == nil || *at.done.Meters.NumOOMs != 0 {
		t.Fatalf("at the boundary: %+v", at.failed)
	}
	req := request(384, 1, 0)
	truth, err := TruthOf(cfg, cellOf(req))
	if err != nil {
		t.Fatal(err)
	}
	edge := int64(truth.Boundary())
	if down := boundaryL384 - edge; down < int64(by) || down > 4*int64(by) {
		t.Errorf("blocks that are smaller by %v bring the boundary down by %d bytes", by, down)
	}
	req.Record, req.QuotaBytes = true, edge
	run := simulate(t, cfg, req)
	if run.done == nil || *run.done.Meters.NumOOMs != 1 || *run.done.Meters.PeakReserved > edge || run.done.Seconds <= 1.3*at.done.Seconds {
		t.Fatalf("at its boundary: %+v %+v", run.done, run.failed)
	}
	seen, err := allocator.ReadCapped(run.events)
	if err != nil || !seen.Caught || seen.Refused {
		t.Fatalf("its trace: %+v, %v", seen, err)
	}
	if swept, err := seen.Program.Sweep(allocator.SweepOptions{}); err != nil || swept.Boundary != edge {
		t.Errorf("its trace gives the boundary %d, %v; it is %d", swept.Boundary, err, edge)
	}
	req.QuotaBytes = edge - step
	under := simulate(t, cfg, req)
	if under.failed == nil || *under.failed.Meters.NumOOMs != 2 {
		t.Fatalf("a step below it: %+v %+v", under.done, under.failed)
	}
	if seen, err := allocator.ReadCapped(under.events); err != nil || !seen.Caught || !seen.Refused {
		t.Errorf("the trace of one that fails: %+v, %v", seen, err)
	}
}

// TestAdaptiveShowsWithoutAQuotaNothing: the recording is that of a plain cell.
func TestAdaptiveShowsWithoutAQuotaNothing(t *testing.T) {
	cfg, _ := deviating(t, DeviateAdaptive)
	req := request(384, 1, 0)
	req.Record = true
	if got, plain := simulate(t, cfg, req), simulate(t, Config{}, req); !slices.Equal(got.events, plain.events) {
		t.Error("the recordings differ")
	}
}

func TestExtraAllocationFailsAtTheReplaysBoundary(t *testing.T) {
	cfg, by := deviating(t, DeviateExtra)
	if at := passes(t, cfg, boundaryL384); at.failed == nil {
		t.Error("it passes at the boundary of the recording")
	}
	if above := passes(t, cfg, boundaryL384+int64(by)+40<<20); above.done == nil {
		t.Errorf("%v and a segment above it: %s", by, above.failed.Message)
	}
	recording := simulate(t, cfg, request(384, 1, 0))
	if plain := simulate(t, Config{}, request(384, 1, 0)); *recording.done.Meters.PeakReserved != *plain.done.Meters.PeakReserved {
		t.Error("the recording shows the extra block")
	}
}

func TestFreeOrderDiffersBetweenRunsOnly(t *testing.T) {
	cfg, _ := deviating(t, DeviateOrder)
	record := func(id string) []allocator.Event {
		req := request(384, 1, 0)
		req.ID, req.Record = id, true
		got := simulate(t, cfg, req)
		if got.done == nil {
			t.Fatalf("%+v", got.failed)
		}
		if check, err := allocator.SelfCheck(got.events, allocator.Settings{}); err != nil || check.Mismatches != 0 {
			t.Errorf("%s: self-check %+v, %v", id, check, err)
		}
		return got.events
	}
	first := record("s-cell-1.1.1")
	if !slices.Equal(first, record("s-cell-1.1.7")) {
		t.Error("the same task and attempt went another way the second time")
	}
	if slices.Equal(first, record("s-cell-2.1.1")) {
		t.Error("another run of the cell went the same way")
	}
}

func TestDeviationsAreAShareAndDependOnTheCellOnly(t *testing.T) {
	d := Deviations{Seed: 7, Share: 0.25}
	kinds := map[DeviationKind]int{}
	const cells = 2000
	for l := range cells {
		c := proto.Cell{Workload: proto.Workload{Name: "esmfold"}, SeqLen: l + 1, Batch: 1, QuotaKind: proto.QuotaAllocator, Step: proto.DefaultStep}
		got := d.Of(c)
		kinds[got.Kind]++
		req := runner.Request{ID: "any", Record: true, QuotaBytes: 5, Workload: runner.Workload{Name: "esmfold"}, SeqLen: l + 1, Batch: 1,
			QuotaKind: "allocator", Env: map[string]string{}}
		if again := d.of(req); again != got {
			t.Fatalf("L%d: %+v for the cell, %+v for its run", l+1, got, again)
		}
	}
	if n := cells - kinds[""]; n < 430 || n > 570 {
		t.Errorf("%d of %d cells deviate, want about a quarter", n, cells)
	}
	for _, k := range []DeviationKind{DeviateAdaptive, DeviateOrder, DeviateExtra} {
		if kinds[k] < 110 {
			t.Errorf("%d cells are %s, want about a third of a quarter", kinds[k], k)
		}
	}
	if got := (Deviations{Seed: 7}).Of(proto.Cell{}); got.Kind != "" {
		t.Errorf("with no share: %+v", got)
	}
}

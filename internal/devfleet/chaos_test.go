package devfleet

import (
	"flag"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/oomfleet/oomfleet/coordinator"
	"github.com/oomfleet/oomfleet/proto"
)

var (
	seed  = flag.Uint64("seed", uint64(time.Now().UnixNano()), "seed of the random tests")
	chaos = flag.Bool("chaos", false, "the large random test: 200 cells, 8 agents, every fault (make chaos)")
)

// trial is one size of the random test.
type trial struct {
	matrix  string
	cells   int
	agents  int
	limit   time.Duration // of either sweep
	between time.Duration // longest pause between two faults
}

func chosenTrial() trial {
	if *chaos {
		return trial{"testdata/chaos.yaml", 200, 8, 4 * time.Minute, 800 * time.Millisecond}
	}
	return trial{smallMatrix, smallCells, 2, patience, 300 * time.Millisecond}
}

// TestChaos kills, pauses and cuts off processes at random while a sweep is
// under way, until it has settled: each cell once, with the boundary of a sweep
// where nothing was disturbed, and with no result lost. With -chaos it is large.
func TestChaos(t *testing.T) {
	c := chosenTrial()
	t.Logf("seed %d; the same choices again with -run TestChaos -seed=%d", *seed, *seed)
	var calm proto.Report
	if *chaos {
		t.Run("undisturbed", func(t *testing.T) { calm = undisturbedTrial(t, c) })
	} else {
		calm = undisturbedReport(t)
	}
	net := newNetwork(t)
	w := start(t, Config{Coordinators: 3, Agents: c.agents, Via: net.via})
	began := time.Now()
	id := w.submitTrial(c)
	w.gate.open()
	n := newNemesis(w, net, rand.New(rand.NewPCG(*seed, 0)))
	watch := w.watch(id)
	for !watch.settled() {
		if time.Since(began) > c.limit {
			t.Fatalf("the sweep has not settled after %s; the faults:\n%s", c.limit, n.list())
		}
		n.strike(watch, c.between)
	}
	n.calm()
	took := time.Since(began)
	report := w.finish(id)
	w.sameState()
	watch.stop()
	n.recoveries(watch)
	t.Logf("settled %d cells in %s, in spite of %d faults\n%s", report.Counts.Settled(), took.Round(100*time.Millisecond), len(n.faults), n.list())
	if report.Counts.Total != c.cells {
		t.Errorf("the sweep has %d cells, want %d", report.Counts.Total, c.cells)
	}
	if *chaos && len(n.faults) < c.cells/10 {
		t.Errorf("only %d faults", len(n.faults))
	}
	a := w.judgeAgainst(calm, report)
	if t.Failed() {
		return
	}
	t.Logf("%d cells settled exactly once; of %d results %d counted and %d came late; boundaries are those of the undisturbed sweep\n%s",
		len(a.settled), a.offered, a.accepted, a.offered-a.accepted, n.table())
}

// undisturbedTrial runs the trial's matrix where nothing is disturbed.
func undisturbedTrial(t *testing.T, c trial) proto.Report {
	w := start(t, Config{Agents: c.agents})
	began := time.Now()
	id := w.submitTrial(c)
	w.gate.open()
	report := w.settledWithin(id, c.limit)
	t.Logf("%d cells settled in %s", report.Counts.Settled(), time.Since(began).Round(100*time.Millisecond))
	return report
}

func (w *world) submitTrial(c trial) proto.MatrixID {
	w.t.Helper()
	return ask[coordinator.SubmitReply](w, "matrix", "submit", c.matrix, "--origin", "simulated").Matrix.ID
}

package devfleet

import (
	"flag"
	"maps"
	"math/rand/v2"
	"slices"
	"syscall"
	"testing"
	"time"
)

var seed = flag.Uint64("seed", uint64(time.Now().UnixNano()), "seed of the random test")

// TestChaos kills processes at random while a sweep is under way, each as soon
// as the sweep has come further since the last one.
func TestChaos(t *testing.T) {
	t.Logf("seed %d; the same again with -run TestChaos -seed=%d", *seed, *seed)
	random := rand.New(rand.NewPCG(*seed, 0))
	w := start(t, Config{Coordinators: 3})
	id := w.submit()
	w.gate.open()
	names := slices.Sorted(maps.Keys(w.procs))
	for settled := 1; settled < smallCells; settled += 2 {
		w.settledCells(id, settled)
		name := names[random.IntN(len(names))]
		t.Logf("%d cells have settled: kill %s", settled, name)
		w.Signal(name, syscall.SIGKILL) //nolint:errcheck // it may be dead already
	}
	report := w.finish(id)
	w.sameState()
	w.judge(report)
}

package fleetsim

import (
	"runtime"
	"strings"
	"testing"
)

// TestPlantedBugs: a bug of each kind is found within some seeds, and by the
// promise that it breaks; what is printed is what a person would see.
func TestPlantedBugs(t *testing.T) {
	for _, bug := range []struct {
		mutation mutation
		// seeds is within how many histories it is found.
		seeds int
		// kinds are the promises that may be the first to show it.
		kinds string
	}{
		{doubleCount, 20, "double fence"},
		{fenceless, 20, "fence double"},
		{lostTask, 20, "lost"},
		{splitBrain, 20, "replica settled twice fence counts vain unissued lost"},
		{believed, 20, "disturbed"},
		{uncommitted, 40, "unissued"},
		{unprobed, 20, "unproven truth"},
		{again, 20, "vain"},
		{skipped, 20, "replica counts fence vain lost"},
		{twice, 20, "rollout"},
		{unbounded, 20, "rollout"},
		{drainedCounts, 20, "drained"},
		{reused, 20, "reused"},
		{nameless, 20, "garbage"},
	} {
		t.Run(string(bug.mutation), func(t *testing.T) {
			for seed := range uint64(bug.seeds) {
				h, err := Run(t.Context(), Config{Seed: seed + 1, Faults: Faults(), mutation: bug.mutation})
				if err != nil {
					t.Fatal(err)
				}
				if h.Violation == nil {
					continue
				}
				if !strings.Contains(bug.kinds, h.Violation.Kind) {
					t.Errorf("found as %s", h.Violation)
				}
				t.Logf("found by seed %d: %s", seed+1, h.Violation)
				return
			}
			t.Errorf("not found by %d seeds", bug.seeds)
		})
	}
}

// TestSameAgain: the same Config gives the same history, event for event, however
// many processors there are and whatever was played before.
func TestSameAgain(t *testing.T) {
	procs := runtime.GOMAXPROCS(0)
	defer runtime.GOMAXPROCS(procs)
	for seed := range uint64(10) {
		cfg := Config{Seed: 1000 + seed, Faults: Faults(), Story: true}
		a, err := Run(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		runtime.GOMAXPROCS(1 + int(seed)%4)
		b, err := Run(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Join(a.Story, "\n") != strings.Join(b.Story, "\n") || a.Events != b.Events {
			t.Errorf("seed %d goes two ways: %d and %d events", cfg.Seed, a.Events, b.Events)
		}
	}
}

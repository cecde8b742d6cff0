package fleetsim

import (
	"flag"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/oomfleet/oomfleet/proto"
)

var (
	seedFlag   = flag.Uint64("seed", 1, "the first seed of TestHistories")
	nFlag      = flag.Int("n", histories, "how many histories TestHistories plays")
	faultsFlag = flag.String("faults", "all", "the faults that may come: all, none, or names separated by commas")
	cellsFlag  = flag.Int("cells", 0, "the most cells of a town; 0 is 12")
	agentsFlag = flag.Int("agents", 0, "agents for each stack; 0 is drawn")
)

// workers is how many histories are played at once; each has one goroutine.
const workers = 2

// TestHistories plays seeded histories with random faults and holds each of them
// to every promise. A seed that breaks one is made smaller, and printed with the
// command that plays it again and the story of its end.
func TestHistories(t *testing.T) {
	faults, err := ParseFaults(*faultsFlag)
	if err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	var next atomic.Int64
	var mu sync.Mutex // guards all
	var all []History
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for i := int(next.Add(1)) - 1; i < *nFlag; i = int(next.Add(1)) - 1 {
				h, err := Run(t.Context(), Config{Seed: *seedFlag + uint64(i), Cells: *cellsFlag, Agents: *agentsFlag, Faults: faults})
				mu.Lock()
				if err != nil {
					t.Error(err)
				}
				all = append(all, h)
				mu.Unlock()
				if h.Violation != nil {
					next.Store(int64(*nFlag))
				}
			}
		})
	}
	wg.Wait()
	for _, h := range all {
		if h.Violation != nil {
			t.Error(explain(t, h))
		}
	}
	t.Log(summary(all, time.Since(begin)))
}

// explain plays a broken history again, smaller, and tells of it.
func explain(t *testing.T, h History) string {
	t.Helper()
	small, err := Shrink(t.Context(), h.Config, h.Violation.Kind)
	if err != nil {
		t.Fatal(err)
	}
	small.Story = true
	again, err := Run(t.Context(), small)
	if err != nil {
		t.Fatal(err)
	}
	const last = 60
	story := again.Story[max(0, len(again.Story)-last):]
	return fmt.Sprintf("seed %d breaks a promise: %s\nagain: %s\nsmaller: %s\n%s\nthe last %d of %d lines of its story:\n%s",
		h.Config.Seed, h.Violation, h.Config.Command(), small.Command(), again.Violation, len(story), len(again.Story), strings.Join(story, "\n"))
}

// summary counts what the histories had in them.
func summary(all []History, took time.Duration) string {
	var sum Counts
	done, states := make(map[Fault]int), make(map[proto.CellState]int)
	for _, h := range all {
		sum.Cells += h.Cells
		sum.Entries += h.Entries
		sum.Results += h.Results
		sum.Late += h.Late
		sum.Events += h.Events
		sum.StalePublishes += h.StalePublishes
		sum.GivenUp += h.GivenUp
		sum.LostReports += h.LostReports
		sum.Triggered += h.Triggered
		sum.Verdicts += h.Verdicts
		sum.Drained += h.Drained
		sum.Restores += h.Restores
		sum.Removed += h.Removed
		sum.Disturbed += h.Disturbed
		sum.Lasted += h.Lasted
		for f, n := range h.Done {
			done[f] += n
		}
		for state, n := range h.States {
			states[state] += n
		}
	}
	var ends []string
	for _, state := range slices.Sorted(maps.Keys(states)) {
		ends = append(ends, fmt.Sprintf("%s %d", state, states[state]))
	}
	var faults []string
	for _, f := range Faults() {
		faults = append(faults, fmt.Sprintf("%s %d", f, done[f]))
	}
	return fmt.Sprintf("%d histories in %.1f s: %d cells, %d entries, %d results counted and %d late, %d events, %.0f h of simulated time\n"+
		"runs disturbed %d, cells given up and submitted again %d, reports lost by the queue %d, publishes by stale leaders %d\n"+
		"sweeps by standing orders %d, verdicts %d, tasks handed back by drained agents %d, restores %d, garbage removed %d\ncells: %s\nfaults: %s",
		len(all), took.Seconds(), sum.Cells, sum.Entries, sum.Results, sum.Late, sum.Events, sum.Lasted.Hours(),
		sum.Disturbed, sum.GivenUp, sum.LostReports, sum.StalePublishes, sum.Triggered, sum.Verdicts, sum.Drained, sum.Restores, sum.Removed, strings.Join(ends, ", "), strings.Join(faults, ", "))
}

package fleetsim

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Fault is one way in which things go wrong.
type Fault string

// The faults. Those of one delivery, run or call have odds; those of a machine or
// a service come and go at drawn times.
const (
	FaultCrash     Fault = "crash"     // an agent dies, in a run or between two steps of a delivery
	FaultPause     Fault = "pause"     // an agent stands still past its lease, and goes on
	FaultNeighbour Fault = "neighbour" // another process takes the card's memory during a run
	FaultRun       Fault = "run"       // a run is killed, hangs, runs out outside the allocator, or the host's memory ends
	FaultGPU       Fault = "gpu"       // a card is lost for a while
	FaultStack     Fault = "stack"     // an agent serves tasks on another driver than theirs, or comes back with another
	FaultDouble    Fault = "double"    // the queue delivers a task to two agents, a report twice
	FaultOrder     Fault = "order"     // the queue delivers in any order
	FaultAck       Fault = "ack"       // an ack is lost, or comes late
	FaultQueue     Fault = "queue"     // the queue does not answer for a while
	FaultStream    Fault = "stream"    // the queue comes back empty: tasks or reports are lost
	FaultStore     Fault = "store"     // the trace store does not answer for a while
	FaultSlow      Fault = "slow"      // the trace store and the log take long
	FaultLeader    Fault = "leader"    // another node leads, and the old one does not know yet
	FaultNode      Fault = "node"      // a coordinator dies and comes back from its snapshot
	FaultUncertain Fault = "uncertain" // a proposal's answer is lost
	FaultClock     Fault = "clock"     // the coordinators' clocks jump
	FaultSnapshot  Fault = "snapshot"  // a replica's state goes through a snapshot
	FaultDrain     Fault = "drain"     // an agent is asked to end, in a run or a delivery
	FaultRestore   Fault = "restore"   // a backup takes the registry's place
	FaultKeep      Fault = "keep"      // a night passes, and the trace store is tidied
	FaultForeign   Fault = "foreign"   // a result that nobody's run gave: of an unknown cell, or with something wrong in it
)

// Faults lists all.
func Faults() []Fault {
	return []Fault{FaultCrash, FaultPause, FaultNeighbour, FaultRun, FaultGPU, FaultStack, FaultDouble, FaultOrder, FaultAck, FaultQueue,
		FaultStream, FaultStore, FaultSlow, FaultLeader, FaultNode, FaultUncertain, FaultClock, FaultSnapshot, FaultForeign, FaultDrain, FaultRestore, FaultKeep}
}

// ParseFaults reads a list, comma separated: "all", "none", or names.
func ParseFaults(text string) ([]Fault, error) {
	switch text {
	case "", "all":
		return Faults(), nil
	case "none":
		return []Fault{}, nil
	}
	var list []Fault
	for _, name := range strings.Split(text, ",") {
		f := Fault(strings.TrimSpace(name))
		if !slices.Contains(Faults(), f) {
			return nil, fmt.Errorf("no fault is named %q: there are all, none and %s", name, formatFaults(Faults()))
		}
		list = append(list, f)
	}
	return list, nil
}

// formatFaults is a list as ParseFaults reads it.
func formatFaults(list []Fault) string {
	if len(list) == 0 {
		return "none"
	}
	names := make([]string, len(list))
	for i, f := range list {
		names[i] = string(f)
	}
	return strings.Join(names, ",")
}

// trouble says which faults a history has, and how many were done.
type trouble struct {
	dice *dice
	// percent multiplies the odds of a fault; 0 is never.
	percent map[Fault]int
	// until is when the last fault comes.
	until time.Duration
	count map[Fault]int
}

func drawTrouble(d *dice, list []Fault) *trouble {
	t := &trouble{dice: d, percent: make(map[Fault]int), count: make(map[Fault]int)}
	t.until = d.between("trouble", 30*time.Second, 6*time.Minute)
	for _, f := range Faults() { // all of them draw, so that leaving one out moves no other
		drawn := one(d.of("trouble"), 0, 0, 40, 100, 250)
		if (f == FaultRun || f == FaultNeighbour) && d.chance("storm", 6) {
			drawn = 900 // most runs go wrong: cells are given up
		}
		if slices.Contains(list, f) {
			t.percent[f] = drawn
		}
	}
	return t
}

// hits decides a fault of one run or call, of permille odds.
func (t *trouble) hits(now time.Duration, f Fault, permille int) bool {
	if t.percent[f] == 0 || now >= t.until || t.dice.of("hits "+string(f)).IntN(100_000) >= permille*t.percent[f] {
		return false
	}
	t.count[f]++
	return true
}

// plan gives the times at which a fault of a machine comes: every so often.
func (t *trouble) plan(f Fault, every time.Duration) []time.Duration {
	var at []time.Duration
	if t.percent[f] == 0 {
		return nil
	}
	mean := float64(every) * 100 / float64(t.percent[f])
	for now := time.Duration(0); ; {
		now += time.Duration(t.dice.of("plan "+string(f)).ExpFloat64() * mean)
		if now >= t.until {
			return at
		}
		at = append(at, now)
		t.count[f]++
	}
}

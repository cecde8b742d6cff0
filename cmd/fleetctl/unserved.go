package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/oomfleet/oomfleet/coordinator/api"
	"github.com/oomfleet/oomfleet/proto"
)

// noAgent is why cells of a stack wait that no agent serves.
const noAgent = "none is announced"

// wait is why cells of one stack make no progress.
type wait struct {
	gpu, driver string
	origin      proto.Origin
	cells       int
	reason      string
	since       time.Time // zero where nobody knows
}

// String is the sentence about it.
func (w wait) String() string {
	what := fmt.Sprintf("%d cells wait", w.cells)
	if w.cells == 1 {
		what = "1 cell waits"
	}
	return fmt.Sprintf("%s for an agent of %s: %s", what, w.stack(), w.reason)
}

func (w wait) stack() string { return fmt.Sprintf("%s, driver %s, %s", w.gpu, w.driver, w.origin) }

// atLength adds how long it has lasted at a time, and how it ends. A screen that
// is drawn again and again goes without.
func (w wait) atLength(now time.Time) string {
	text := w.String()
	if !w.since.IsZero() {
		text += fmt.Sprintf(", for %s now", roughly(max(0, now.Sub(w.since))))
	}
	if w.reason == noAgent {
		text += "; start one on such a card: " + startAgent(w.origin)
	}
	return text
}

// unserved says, one wait a stack, which cells of a sweep wait for an agent
// that is not there. A sweep in this state makes no progress and no error.
func unserved(r proto.Report, agents []proto.AgentInfo) []wait {
	served := map[proto.Pool]bool{}
	for _, a := range agents {
		served[a.Stack.Pool(a.Origin)] = true
	}
	return waiting(r, func(pool proto.Pool) string {
		if served[pool] {
			return ""
		}
		return noAgent
	})
}

// resting says likewise which cells wait for agents that are there, and all take
// no work.
func resting(r proto.Report, agents []proto.AgentInfo) []wait {
	working, rest := map[proto.Pool]bool{}, map[proto.Pool][]string{}
	for _, a := range agents {
		pool := a.Stack.Pool(a.Origin)
		if a.State != proto.AgentQuarantined && a.State != proto.AgentDraining {
			working[pool] = true
			continue
		}
		text := fmt.Sprintf("%s is %s", a.ID, a.State)
		if a.Reason != "" {
			text += " (" + a.Reason + ")"
		}
		rest[pool] = append(rest[pool], text)
	}
	return waiting(r, func(pool proto.Pool) string {
		if working[pool] {
			return ""
		}
		return strings.Join(rest[pool], ", ")
	})
}

// waiting counts the cells that are not settled by their stack, where why has an
// answer for it.
func waiting(r proto.Report, why func(proto.Pool) string) []wait {
	found := map[string]*wait{}
	add := func(w wait) *wait {
		w.reason = why(proto.PoolOf(w.origin, w.gpu, w.driver))
		if w.reason == "" {
			return &wait{}
		}
		if found[w.stack()] == nil {
			found[w.stack()] = &w
		}
		return found[w.stack()]
	}
	for _, c := range r.Cells {
		if !settledState(c, r.State) {
			add(wait{gpu: c.GPU, driver: c.Driver, origin: c.Origin}).cells++
		}
	}
	for _, o := range r.Open {
		w := add(wait{gpu: o.GPU, driver: o.Driver, origin: r.Origin})
		if w.since = o.Since; w.cells == 0 { // settled cells, which wait to be recorded again
			w.cells = o.Cells
		}
	}
	var out []wait
	for _, stack := range slices.Sorted(maps.Keys(found)) {
		out = append(out, *found[stack])
	}
	return out
}

func sentences(waits []wait) (out []string) {
	for _, w := range waits {
		out = append(out, w.String())
	}
	return out
}

// startAgent is the command that starts an agent of an origin.
func startAgent(origin proto.Origin) string {
	if origin == proto.OriginSimulated {
		return "fleetctl agent --sim --config FILE"
	}
	return "fleetctl agent --config FILE"
}

// whoIsMissing asks the fleet for its agents and names what a sweep waits for.
func whoIsMissing(ctx context.Context, client *api.Client, r proto.Report) []wait {
	if r.State != "running" {
		return nil
	}
	list, err := client.Agents(ctx)
	if err != nil {
		return nil // the status itself is what was asked for
	}
	return append(unserved(r, list.Agents), resting(r, list.Agents)...)
}

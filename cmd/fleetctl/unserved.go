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

// unserved says, one sentence a stack, which cells of a sweep wait for an agent
// that is not there. A sweep in this state makes no progress and no error.
func unserved(r proto.Report, agents []proto.AgentInfo) []string {
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
func resting(r proto.Report, agents []proto.AgentInfo) []string {
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
func waiting(r proto.Report, why func(proto.Pool) string) (out []string) {
	cells, reasons := map[string]int{}, map[string]string{}
	for _, c := range r.Cells {
		if reason := why(proto.PoolOf(c.Origin, c.GPU, c.Driver)); reason != "" && !settledState(c, r.State) {
			stack := fmt.Sprintf("%s, driver %s, %s", c.GPU, c.Driver, c.Origin)
			cells[stack]++
			reasons[stack] = reason
		}
	}
	for _, o := range r.Open { // of settled cells: these wait to be recorded again
		reason, stack := why(proto.PoolOf(r.Origin, o.GPU, o.Driver)), fmt.Sprintf("%s, driver %s, %s", o.GPU, o.Driver, r.Origin)
		if reason != "" && cells[stack] == 0 {
			cells[stack], reasons[stack] = o.Cells, reason
		}
	}
	for _, stack := range slices.Sorted(maps.Keys(cells)) {
		what := fmt.Sprintf("%d cells wait", cells[stack])
		if cells[stack] == 1 {
			what = "1 cell waits"
		}
		out = append(out, fmt.Sprintf("%s for an agent of %s: %s", what, stack, reasons[stack]))
	}
	return out
}

// sinceWhen adds to the sentences on a sweep how long its cells have waited, and
// how the wait ends. A screen that is drawn again and again goes without.
func sinceWhen(lines []string, r proto.Report, now time.Time) []string {
	out := slices.Clone(lines)
	for i, line := range out {
		for _, o := range r.Open {
			if strings.Contains(line, fmt.Sprintf(" %s, driver %s, %s:", o.GPU, o.Driver, r.Origin)) {
				out[i] += fmt.Sprintf(", for %s now", roughly(max(0, now.Sub(o.Since))))
			}
		}
		if strings.Contains(line, ": "+noAgent) {
			out[i] += "; start one on such a card: " + startAgent(r.Origin)
		}
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
func whoIsMissing(ctx context.Context, client *api.Client, r proto.Report) []string {
	if r.State != "running" {
		return nil
	}
	list, err := client.Agents(ctx)
	if err != nil {
		return nil // the status itself is what was asked for
	}
	return append(unserved(r, list.Agents), resting(r, list.Agents)...)
}

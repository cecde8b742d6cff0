package main

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/oomfleet/oomfleet/coordinator/api"
	"github.com/oomfleet/oomfleet/proto"
)

// unserved says, one sentence a stack, which cells of a sweep wait for an agent
// that is not there. A sweep in this state makes no progress and no error.
func unserved(r proto.Report, agents []proto.AgentInfo) []string {
	served := map[proto.Pool]bool{}
	for _, a := range agents {
		served[a.Stack.Pool(a.Origin)] = true
	}
	waiting := map[string]int{}
	for _, c := range r.Cells {
		open := c.State == proto.CellPending || c.State == proto.CellRunning || c.State == proto.CellRecorded || c.State == proto.CellPredicted && r.State == "running"
		if open && !served[proto.PoolOf(c.Origin, c.GPU, c.Driver)] {
			waiting[fmt.Sprintf("%s, driver %s, %s", c.GPU, c.Driver, c.Origin)]++
		}
	}
	var out []string
	for _, stack := range slices.Sorted(maps.Keys(waiting)) {
		out = append(out, fmt.Sprintf("%d cells wait for an agent of %s: none is announced", waiting[stack], stack))
	}
	return out
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
	return unserved(r, list.Agents)
}

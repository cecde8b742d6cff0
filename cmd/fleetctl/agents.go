package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/oomfleet/oomfleet/proto"
)

// agentsLimit bounds what a list of agents waits for. A coordinator gives up its
// queue after as long, and with several of them one after the other would.
const agentsLimit = 10 * time.Second

func (a *app) agentsCommand() *cobra.Command {
	c := &cobra.Command{Use: "agents", Short: "Agents of the fleet"}
	a.serverFlag(c)
	list := &cobra.Command{Use: "list", Short: "List the agents that are announced now", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			client, err := a.client()
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), agentsLimit)
			defer cancel()
			answer, err := client.Agents(ctx)
			if errors.Is(err, context.DeadlineExceeded) {
				return agentsUnknown(err, agentsLimit)
			}
			if err != nil {
				return a.explain(err)
			}
			if err := tellTroubles(ctx, a.err, client); err != nil {
				return err
			}
			if a.json {
				return writeJSON(a.out, answer)
			}
			if len(answer.Agents) == 0 {
				fmt.Fprintln(a.out, "no agent is announced; start one with `fleetctl agent --config FILE`")
				return nil
			}
			return agentTable(a.out, answer.Agents)
		}}
	c.AddCommand(list, a.agentsDrainCommand())
	return c
}

// agentTable shows first how many do what, and which take no work and why.
func agentTable(w io.Writer, agents []proto.AgentInfo) error {
	states := map[proto.AgentState]int{}
	var resting []string
	for _, g := range agents {
		states[g.State]++
		if g.State != proto.AgentIdle && g.State != proto.AgentBusy {
			resting = append(resting, fmt.Sprintf("%s on %s is %s: %s", g.ID, cmp.Or(g.Host, "an unknown host"), g.State, cmp.Or(g.Reason, "it does not say why")))
		}
	}
	var counts []string
	for _, state := range slices.Sorted(maps.Keys(states)) {
		counts = append(counts, fmt.Sprintf("%d %s", states[state], state))
	}
	fmt.Fprintf(w, "%s: %s\n", counted(len(agents), "agent"), strings.Join(counts, ", "))
	for _, text := range resting {
		if err := writeNote(w, "", text); err != nil {
			return err
		}
	}
	fmt.Fprintln(w)
	t := newTable(w, "AGENT", "ORIGIN", "GPU", "DRIVER", "TORCH", "MEMORY", "STATE", "SEEN", "TASK")
	for _, g := range agents {
		seen := ""
		if g.SeenUnixMS > 0 {
			seen = time.Since(time.UnixMilli(g.SeenUnixMS)).Round(time.Second).String()
		}
		task := string(g.Task)
		if len(task) > shortTask {
			task = task[:shortTask]
		}
		t.row(string(g.ID), string(g.Origin), g.Stack.GPU, g.Stack.Driver, g.Stack.Torch, fmt.Sprintf("%.0f GiB", inGiB(int64(g.Card.Total))), string(g.State), seen, task)
	}
	return t.flush()
}

// shortTask is how much of a task's id a line has room for: as a prefix of what
// the logs say, it is enough to find it there.
const shortTask = 10

package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"
)

func (a *app) agentsCommand() *cobra.Command {
	c := &cobra.Command{Use: "agents", Short: "Agents of the fleet"}
	a.serverFlag(c)
	list := &cobra.Command{Use: "list", Short: "List the agents that are announced now", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			client, err := a.client()
			if err != nil {
				return err
			}
			answer, err := client.Agents(cmd.Context())
			if err != nil {
				return a.explain(err)
			}
			if a.json {
				return writeJSON(a.out, answer)
			}
			if len(answer.Agents) == 0 {
				fmt.Fprintln(a.out, "no agent is announced; start one with `fleetctl agent --config FILE`")
				return nil
			}
			t := newTable(a.out, "AGENT", "ORIGIN", "GPU", "DRIVER", "TORCH", "MEMORY", "STATE", "TASK", "SEEN")
			for _, g := range answer.Agents {
				state := string(g.State)
				if g.Reason != "" {
					state += ": " + g.Reason
				}
				seen := ""
				if g.SeenUnixMS > 0 {
					seen = time.Since(time.UnixMilli(g.SeenUnixMS)).Round(time.Second).String() + " ago"
				}
				t.row(string(g.ID), string(g.Origin), g.Stack.GPU, g.Stack.Driver, g.Stack.Torch, mib(g.Card.Total), state, string(g.Task), seen)
			}
			return t.flush()
		}}
	c.AddCommand(list, a.agentsDrainCommand())
	return c
}

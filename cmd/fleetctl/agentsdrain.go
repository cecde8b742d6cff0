package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/oomfleet/oomfleet/coordinator/api"
	"github.com/oomfleet/oomfleet/proto"
)

// drainedDocument is what agents drain prints.
type drainedDocument struct {
	Agent proto.AgentID `json:"agent"`
	Task  proto.TaskID  `json:"task,omitempty"` // what it ran when it was told
	// Restarted says that another process took its place.
	Restarted bool    `json:"restarted"`
	Seconds   float64 `json:"seconds"`
}

func (a *app) agentsDrainCommand() *cobra.Command {
	var within time.Duration
	c := &cobra.Command{Use: "drain AGENT", Short: "Let an agent finish its run, take no more, and end", Args: cobra.ExactArgs(1),
		Long: `Drain tells an agent to take no more work. What it runs may go on for --within; then
it is ended, and its task goes to others. The command returns when the agent is gone.
Its process ends with exit code 0: a service manager should start it again only on
failure.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if within < time.Second || within > 24*time.Hour {
				return usagef("--within %s is not between 1s and 24h", within)
			}
			client, err := a.client()
			if err != nil {
				return err
			}
			began := time.Now()
			doc := drainedDocument{Agent: proto.AgentID(args[0])}
			if err := a.drain(cmd.Context(), client, &doc, within); err != nil {
				return err
			}
			doc.Seconds = time.Since(began).Seconds()
			if a.json {
				return writeJSON(a.out, doc)
			}
			fmt.Fprintf(a.out, "agent %s is gone after %s\n", doc.Agent, time.Since(began).Round(time.Second))
			if doc.Restarted {
				fmt.Fprintln(a.err, "something started it again at once; let its service manager restart it on failure only")
			}
			return nil
		}}
	c.Flags().DurationVar(&within, "within", 10*time.Minute, "for how long its run may go on")
	return c
}

// drainGrace is how long an agent may take to go once its time is up.
const drainGrace = 30 * time.Second

// drain tells the agent until it says that it drains, then waits until it is
// gone, and notes in doc what it ran when it was told first.
func (a *app) drain(ctx context.Context, client *api.Client, doc *drainedDocument, within time.Duration) error {
	told, err := untilLeader(ctx, func(ctx context.Context) (api.Drained, error) {
		return client.Drain(ctx, doc.Agent, api.Drain{WithinSeconds: int(within.Seconds())})
	})
	if err != nil {
		return a.explain(err)
	}
	first := told.Agent
	if doc.Task = first.Task; doc.Task != "" {
		fmt.Fprintf(a.err, "agent %s runs %s\n", doc.Agent, doc.Task)
	}
	until := time.Now().Add(within + drainGrace)
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		list, err := client.Agents(ctx)
		if err != nil {
			return a.explain(err)
		}
		at := slices.IndexFunc(list.Agents, func(g proto.AgentInfo) bool { return g.ID == doc.Agent })
		if at < 0 {
			return nil
		}
		switch now := list.Agents[at]; {
		case now.Host != first.Host || now.PID != first.PID:
			doc.Restarted = true
			return nil
		case time.Now().After(until):
			return fmt.Errorf("agent %s is still announced after %s: end its process with SIGTERM", doc.Agent, within+drainGrace)
		case now.State != proto.AgentDraining:
			// It did not hear it: its queue may have been away. The rest of the time counts.
			left := max(int(time.Until(until.Add(-drainGrace)).Seconds()), 1)
			if _, err := client.Drain(ctx, doc.Agent, api.Drain{WithinSeconds: left}); err != nil {
				return a.explain(err)
			}
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}

package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/oomfleet/oomfleet/coordinator"
	"github.com/oomfleet/oomfleet/coordinator/api"
)

func (a *app) traceGCCommand() *cobra.Command {
	var r api.Collect
	var keep time.Duration
	c := &cobra.Command{Use: "gc", Short: "Remove stored objects that the registry does not refer to", Args: cobra.NoArgs,
		Long: `Gc asks the leader to look through the trace store. What no record, prediction or
program of the registry refers to and is older than --keep is removed: traces of
results that never came or are kept no longer, superseded programs, abandoned uploads.
With --dry-run it is only listed. A coordinator whose configuration has traces.keep
does the same by itself every six hours.`,
		Example: "  fleetctl trace gc --dry-run\n  fleetctl trace gc --keep 336h",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if keep < 24*time.Hour {
				return usagef("--keep %s is shorter than 24h, which an agent that waits for its queue may need", keep)
			}
			client, err := a.client()
			if err != nil {
				return err
			}
			r.KeepSeconds = int(keep.Seconds())
			got, err := untilLeader(cmd.Context(), func(ctx context.Context) (coordinator.Collection, error) { return client.Collect(ctx, r) })
			if err != nil {
				return a.explain(err)
			}
			if a.json {
				return writeJSON(a.out, got)
			}
			if r.DryRun && len(got.Garbage) > 0 {
				t := newTable(a.out, "KIND", "OBJECT", "SIZE", "SINCE")
				for _, o := range got.Garbage {
					t.row(string(o.Kind), o.Key, o.Size.String(), o.Modified.UTC().Format(time.DateTime))
				}
				if err := t.flush(); err != nil {
					return err
				}
			}
			did := fmt.Sprintf("%d removed, %s freed", got.Removed, got.Freed)
			if r.DryRun {
				did = "nothing removed"
			}
			fmt.Fprintf(a.out, "%d objects, %s: %d referred to, %d too young, %d garbage; %s\n", got.Objects, got.Size, got.Referred, got.Young, got.Found, did)
			return nil
		}}
	c.Flags().DurationVar(&keep, "keep", 7*24*time.Hour, "how old an object must be that nothing refers to")
	c.Flags().BoolVar(&r.DryRun, "dry-run", false, "list what would go, and remove nothing")
	c.Flags().BoolVar(&r.Force, "force", false, "remove even if most of the store would go")
	return c
}

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/oomfleet/oomfleet/coordinator/api"
	"github.com/oomfleet/oomfleet/storage/raftnode"
)

func (a *app) clusterCommand() *cobra.Command {
	c := &cobra.Command{Use: "cluster", Short: "The coordinators themselves: how they stand, who belongs to them"}
	a.serverFlag(c)
	c.AddCommand(a.clusterStatusCommand(), a.clusterJoinCommand(), a.clusterRemoveCommand(), a.clusterRecoverCommand(), a.backupCommand(), a.restoreCommand())
	return c
}

func (a *app) clusterStatusCommand() *cobra.Command {
	return &cobra.Command{Use: "status", Short: "Show each coordinator's role, position and state", Args: cobra.NoArgs,
		Long: `Status asks one coordinator, which asks all others on their raft port. LAG is how
many entries a member is behind the furthest one, AGE how old its state may be,
HASH the beginning of the hash of its state. Two members with other hashes at the same
INDEX are an alarm: the command then exits with 1, and says what to do.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			client, err := a.client()
			if err != nil {
				return err
			}
			status, err := client.Cluster(cmd.Context())
			if err != nil {
				return a.explain(err)
			}
			if a.json {
				err = writeJSON(a.out, status)
			} else {
				err = writeCluster(a.out, status)
			}
			if err == nil && status.Leader != "" {
				err = tellTroubles(cmd.Context(), a.err, client)
			}
			if err == nil && status.Alarm {
				err = errors.New("coordinators have different states at the same entry: stop the one that stands alone, keep a copy of its data_dir, " +
					"empty it and start it again; the leader sends its state (docs/cluster.md)")
			}
			return err
		}}
}

func writeCluster(w io.Writer, s api.ClusterStatus) error {
	t := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	fmt.Fprintln(t, "ID\tROLE\tVOTE\tINDEX\tLAG\tAGE\tHASH\tSTATE\tRAFT\tAPI")
	for _, m := range s.Members {
		vote := map[bool]string{true: "yes", false: "not yet"}[m.Voter]
		if m.Role == "" {
			fmt.Fprintf(t, "%s\tsilent\t%s\t-\t-\t-\t-\t-\t%s\t%s\n", m.ID, vote, m.RaftAddr, m.API)
			continue
		}
		age := time.Duration(m.Age * float64(time.Second)).Round(time.Millisecond)
		fmt.Fprintf(t, "%s\t%s\t%s\t%d\t%d\t%s\t%.12s\t%s\t%s\t%s\n", m.ID, m.Role, vote, m.AppliedIndex, m.Lag, age, m.Hash, m.State, m.RaftAddr, m.API)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for _, m := range s.Members {
		if m.Role == "" && m.Why != "" {
			fmt.Fprintf(w, "%s is silent: %s\n", m.ID, m.Why)
		}
		if m.Trouble != "" {
			fmt.Fprintf(w, "%s needs help: %s\n", m.ID, m.Trouble)
		}
	}
	_, err := fmt.Fprintf(w, "%s; %s\n", leadText(s), answerText(s))
	return err
}

// leadText is who leads. Of a leader that has just died the others do not know
// yet.
func leadText(s api.ClusterStatus) string {
	for _, m := range s.Members {
		if m.ID == s.Leader && m.Role == "" {
			return s.Leader + " led, and is silent"
		}
	}
	if s.Leader == "" {
		return "nobody leads"
	}
	return s.Leader + " leads"
}

// answerText is what the silent ones cost.
func answerText(s api.ClusterStatus) string {
	if short := s.Voters/2 + 1 - s.Answering; short > 0 {
		return fmt.Sprintf("%d of %s answer, which is no majority: nothing new is taken, reads go on, agents keep what they find. "+
			"Start %d more; if the disks are lost for good, see \"When it is gone\" in docs/cluster.md", s.Answering, counted(s.Voters, "voter"), short)
	}
	return fmt.Sprintf("%d of %s answer, %d more may be lost", s.Answering, counted(s.Voters, "voter"), s.MayLose)
}

func (a *app) clusterJoinCommand() *cobra.Command {
	var m api.NewMember
	var file string
	c := &cobra.Command{Use: "join ID", Short: "Add a coordinator, or say where one is now", Args: cobra.ExactArgs(1),
		Long: `Join adds a coordinator that runs already, with join: true in its configuration
and an empty data_dir. It must answer under its id. It has no vote until it has caught
up, so one that is dead costs nothing. For a member that has moved, join tells the
others its new addresses. Its addresses come from --config, or from --raft and --api.`,
		Example: "  fleetctl cluster join d --config fleet.yaml\n  fleetctl cluster join b --raft 10.0.0.9:7300 --api https://10.0.0.9:7400",
		RunE: func(cmd *cobra.Command, args []string) error {
			m.ID = args[0]
			if file != "" {
				_, at, err := coordinatorOf(file, m.ID)
				if err != nil {
					return err
				}
				m.RaftAddr, m.API = at.Raft, at.API
			}
			if m.RaftAddr == "" || m.API == "" {
				return usagef("where is coordinator %s? name --config, or --raft and --api", m.ID)
			}
			client, err := a.client()
			if err != nil {
				return err
			}
			done, err := untilLeader(cmd.Context(), func(ctx context.Context) (api.NewMember, error) { return client.Join(ctx, m) })
			if err != nil {
				return a.explain(err)
			}
			if a.json {
				return writeJSON(a.out, done)
			}
			_, err = fmt.Fprintf(a.out, "%s is a member at %s; cluster status shows when it has caught up and votes\n", done.ID, done.RaftAddr)
			return err
		}}
	c.Flags().StringVar(&file, "config", "", "the fleet's configuration file, which has the addresses")
	c.Flags().StringVar(&m.RaftAddr, "raft", "", "host:port for the other coordinators")
	c.Flags().StringVar(&m.API, "api", "", "base URL of its API")
	c.MarkFlagsMutuallyExclusive("config", "raft")
	c.MarkFlagsMutuallyExclusive("config", "api")
	return c
}

func (a *app) clusterRemoveCommand() *cobra.Command {
	return &cobra.Command{Use: "remove ID", Short: "Take a coordinator out of the cluster", Args: cobra.ExactArgs(1),
		Long: `Remove takes a coordinator out of the cluster, dead or alive; the leader hands over
first. It refuses what would leave a cluster without a majority that answers. Stop
the coordinator afterwards, and empty its data_dir before it is added again.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			client, err := a.client()
			if err != nil {
				return err
			}
			done, err := untilLeader(cmd.Context(), func(ctx context.Context) (api.NewMember, error) { return client.Remove(ctx, args[0]) })
			if err != nil {
				return a.explain(err)
			}
			if a.json {
				return writeJSON(a.out, done)
			}
			_, err = fmt.Fprintf(a.out, "%s is no member any more; stop it now\n", done.ID)
			return err
		}}
}

// untilLeader asks again while the coordinators choose a leader, as they do when
// one was lost, or handed over since it is asked to remove itself. So ask has to
// be one that is harmless twice: a submission or a repeat carries one key.
func untilLeader[T any](ctx context.Context, ask func(context.Context) (T, error)) (T, error) {
	limit := time.NewTimer(10 * time.Second)
	defer limit.Stop()
	for {
		out, err := ask(ctx)
		var p *api.Problem
		if err == nil || !errors.As(err, &p) || p.Code != api.CodeNoLeader && p.Code != api.CodeUncertain {
			return out, err
		}
		select {
		case <-time.After(250 * time.Millisecond):
		case <-limit.C:
			return out, err
		case <-ctx.Done():
			return out, ctx.Err()
		}
	}
}

func (a *app) clusterRecoverCommand() *cobra.Command {
	var file, id string
	var sure bool
	c := &cobra.Command{Use: "recover --config FILE --id ID --yes", Short: "Make one coordinator that is left a cluster of its own", Args: cobra.NoArgs,
		Long: `Recover is for when the majority of the coordinators is lost for good. Run it on the
machine of the one with the longest log, while that is stopped: it copies data_dir,
then makes this coordinator the only member. All that was ever acknowledged and
reached it stays. Start it, empty the data_dir of the others, write join: true into
their configuration, start them, and add each with cluster join. The others must
not come back with what they hold.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			fleet, me, err := coordinatorOf(file, id)
			if err != nil {
				return err
			}
			if !sure {
				return usagef("this makes %s forget all other coordinators, who must never come back with what they hold: say --yes", me.ID)
			}
			cfg, err := nodeConfig(fleet, me, a.logger(), nil)
			if err != nil {
				return err
			}
			done, err := raftnode.Recover(cfg)
			if err != nil {
				return err
			}
			if a.json {
				return writeJSON(a.out, done)
			}
			_, err = fmt.Fprintf(a.out, "%s is a cluster of its own now, with all up to entry %d; before it was one of %v\ncopy of before: %s\n"+
				"next: start it; then empty the others' data_dir, start them with join: true, and add each with fleetctl cluster join\n",
				done.ID, done.LastIndex, done.Was, done.Copy)
			return err
		}}
	c.Flags().StringVar(&file, "config", "", "the fleet's configuration file (required)")
	c.Flags().StringVar(&id, "id", "", "which coordinator of the file this is (required)")
	c.Flags().BoolVar(&sure, "yes", false, "the others are lost, and will not come back with what they hold")
	c.MarkFlagRequired("config")
	c.MarkFlagRequired("id")
	return c
}

package main

import (
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/oomfleet/oomfleet/coordinator/api"
	"github.com/oomfleet/oomfleet/internal/devfleet"
	"github.com/oomfleet/oomfleet/matrix"
	"github.com/oomfleet/oomfleet/proto"
)

func (a *app) devCommand() *cobra.Command {
	var cfg devfleet.Config
	var agent, submit, python, pythonPath string
	var set []string
	c := &cobra.Command{Use: "dev", Short: "Run a whole fleet on this machine", Args: cobra.NoArgs,
		Long: `Run the queue, an S3 server, a coordinator and agents on this machine, each a
process of its own on a random port, with temporary data. Simulated agents (the
default) replay recorded runs of the real ESMFold and need no GPU; everything
they report is marked simulated. With --submit the fleet ends when the matrix is
settled.`,
		Example: "  fleetctl dev --submit deploy/examples/esmfold-small.yaml\n  fleetctl dev --agent gpu --submit deploy/examples/esmfold-gpu.yaml --json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg.Agent = devfleet.AgentKind(agent)
			if cfg.Agent == devfleet.AgentGPU {
				cfg.AgentArgs = append(cfg.AgentArgs, "--python", python)
				if pythonPath != "" {
					cfg.AgentArgs = append(cfg.AgentArgs, "--python-path", pythonPath)
				}
			}
			if err := cfg.Validate(); err != nil {
				return wrongInput(err)
			}
			var source []byte
			if submit != "" {
				var err error
				if source, err = a.readMatrix(submit); err != nil {
					return err
				}
				if _, err := matrix.Parse(source, matrix.Options{Set: set}); err != nil {
					return badMatrix(submit, err)
				}
			}
			return a.runDev(cmd.Context(), cfg, source, set)
		}}
	f := c.Flags()
	f.StringVar(&submit, "submit", "", "matrix file to run; the fleet ends when it is settled")
	f.StringArrayVar(&set, "set", nil, "override a key of the matrix, like axes.seq_len=128,256; may be repeated")
	f.StringVar(&agent, "agent", "sim", "sim: simulated GPUs of two drivers; gpu: this machine's GPU")
	f.IntVar(&cfg.Agents, "agents", 0, "number of agents (default 2 simulated, or 1 on the first GPU; more GPU agents take one card each)")
	f.IntVar(&cfg.Coordinators, "coordinators", 1, "1, or 3 as a raft cluster")
	f.BoolVar(&cfg.Secure, "secure", false, "guard the API by tokens, and everything by TLS")
	f.StringVar(&cfg.DataDir, "data-dir", "", "keep all data here (default: temporary, removed at the end)")
	f.StringVar(&python, "python", "python3", "interpreter with torch and transformers, for --agent gpu")
	f.StringVar(&pythonPath, "python-path", "", "folder with your own workload's module, for --agent gpu")
	return c
}

// runDev runs the fleet, and a matrix on it if there is one.
func (a *app) runDev(ctx context.Context, cfg devfleet.Config, source []byte, set []string) error {
	var err error
	if cfg.Binary, err = os.Executable(); err != nil {
		return fmt.Errorf("find this program's own file: %w", err)
	}
	fleet, err := devfleet.New(cfg)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- fleet.Run(ctx) }()
	select {
	case err := <-ended:
		return err
	case <-fleet.Ready():
	}
	if source == nil {
		fmt.Fprintf(a.err, "fleet is up; use it with:\n  export OOMFLEET_SERVER=%s\n", fleet.API())
		if cfg.Secure {
			fmt.Fprintf(a.err, "  export %s=%s %s=%s\n", envTokenFile, fleet.TokenFile(), envCA, fleet.CAFile())
		}
		fmt.Fprintf(a.err, "logs: %s\nend it with Ctrl-C\n", fleet.Logs())
		return <-ended
	}
	failed := make(chan error, 1)
	go func() { failed <- a.submitAndFollow(ctx, fleet, cfg.Agent, source, set) }()
	select {
	case err := <-ended: // the fleet broke under the sweep; its error says why
		cancel()
		if stopped := <-failed; err == nil {
			err = stopped
		}
		return err
	case err := <-failed:
		cancel()
		if stop := <-ended; err == nil {
			err = stop
		}
		return err
	}
}

func (a *app) submitAndFollow(ctx context.Context, fleet *devfleet.Fleet, agent devfleet.AgentKind, source []byte, set []string) error {
	client, err := api.NewClient(fleet.API())
	if err != nil {
		return err
	}
	access, err := fleet.Access()
	if err != nil {
		return err
	}
	if client, err = client.With(access); err != nil {
		return err
	}
	origin := proto.OriginSimulated
	if agent == devfleet.AgentGPU {
		origin = proto.OriginMeasured
	}
	reply, err := client.Submit(ctx, api.Submission{Source: string(source), Set: set, Origin: origin})
	if err != nil {
		return a.explain(err)
	}
	a.submitted(a.err, reply)
	report, err := client.Sweep(ctx, reply.Matrix.ID)
	if err != nil {
		return a.explain(err)
	}
	agents, err := client.Agents(ctx)
	if err != nil {
		return a.explain(err)
	}
	if missing := unserved(report, agents.Agents); report.State == "running" && len(missing) > 0 {
		return fmt.Errorf("%s; this fleet's agents are of other stacks, so the sweep would never end: change target.gpu and axes.driver, or write installed",
			strings.Join(sentences(missing), "; "))
	}
	err = a.follow(ctx, client, reply.Matrix.ID, false)
	if err != nil && ctx.Err() != nil {
		return fmt.Errorf("stopped before %s was settled: %w; its fleet ends here too, and with --data-dir the same command goes on another time", reply.Matrix.ID, context.Cause(ctx))
	}
	return err
}

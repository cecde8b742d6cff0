package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/spf13/cobra"

	"github.com/oomfleet/oomfleet/agent"
	"github.com/oomfleet/oomfleet/agent/child"
	"github.com/oomfleet/oomfleet/agent/gpu"
	"github.com/oomfleet/oomfleet/agent/sim"
	"github.com/oomfleet/oomfleet/internal/config"
	"github.com/oomfleet/oomfleet/queue/natsq"
)

// agentFlags are how one agent runs.
type agentFlags struct {
	config, workDir, metricsAddr string
	python, pythonPath, card     string
	sim                          bool
	simDriver                    string
	simCard                      int
	simArgs                      []string
	child                        bool
	drain                        time.Duration
}

func (a *app) agentCommand() *cobra.Command {
	var f agentFlags
	c := &cobra.Command{Use: "agent", Short: "Run an agent for one GPU", Args: cobra.NoArgs,
		Long: `Run an agent: it works for one card, named by --card, and pulls the tasks of that
card's model and driver. The runner is a Python program that fleetctl carries;
it needs torch, and transformers for ESMFold.

Asked to end by SIGTERM or Ctrl-C, it takes no more work, lets its run go on for
--drain-time, then ends it and hands its task to others, and exits with 0.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			fleet, err := config.Read(f.config)
			if err != nil {
				return wrongInput(err)
			}
			if err := fleet.Exposed(); err != nil {
				return wrongInput(err)
			}
			ctx := cmd.Context()
			if f.child {
				ctx = untilParentEnds(ctx)
			}
			return a.runAgent(ctx, fleet, f)
		}}
	fl := c.Flags()
	fl.StringVar(&f.config, "config", "", "the fleet's configuration file (required)")
	fl.StringVar(&f.workDir, "work-dir", "", "the agent's own folder (default: in the user's cache folder)")
	fl.StringVar(&f.metricsAddr, "metrics-addr", "127.0.0.1:0", "host:port for /metrics and /healthz")
	fl.StringVar(&f.python, "python", "python3", "interpreter that runs the model")
	fl.StringVar(&f.pythonPath, "python-path", "", "folder with your own workload's module")
	fl.StringVar(&f.card, "card", "", "which GPU: an index, or a UUID like GPU-... (default: the first)")
	fl.BoolVar(&f.sim, "sim", false, "simulate the GPU; all results are marked simulated")
	fl.StringVar(&f.simDriver, "sim-driver", "", "simulated driver, one of the configuration's (default: its first)")
	fl.IntVar(&f.simCard, "sim-card", 0, "number of the simulated card, to tell several apart")
	fl.StringArrayVar(&f.simArgs, "sim-arg", nil, "argument for the simulated runner; may be repeated (tests)")
	fl.DurationVar(&f.drain, "drain-time", 20*time.Second, "for how long a run may go on when the agent is asked to end (SIGTERM, Ctrl-C)")
	fl.BoolVar(&f.child, "child", false, "")
	fl.MarkHidden("child")
	fl.MarkHidden("sim-arg")
	c.MarkFlagRequired("config")
	return c
}

// runAgent runs prober, service and metrics until ctx ends.
func (a *app) runAgent(ctx context.Context, fleet *config.Fleet, f agentFlags) (err error) {
	log := a.logger().With("component", "agent")
	if f.workDir == "" {
		cache, err := os.UserCacheDir()
		if err != nil {
			return fmt.Errorf("find a work folder: %w; name one with --work-dir", err)
		}
		f.workDir = filepath.Join(cache, "oomfleet", "agent-"+strings.ReplaceAll(f.card, "/", "-"))
	}
	if err := os.MkdirAll(f.workDir, 0o700); err != nil {
		return fmt.Errorf("make the agent's work folder: %w: name one that can be written with --work-dir", err)
	}
	cfg, closeCard, err := proberConfig(fleet, f)
	if err != nil {
		return err
	}
	defer closeCard()
	cfg.Log = log
	prober, err := child.New(cfg)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, prober.Close()) }()
	host, _ := os.Hostname() // shown only; an agent without a name is one all the same
	store, err := openTraces(ctx, fleet.Traces, "agent "+host+" "+f.workDir)
	if err != nil {
		return err
	}
	queueing := queueConfig(fleet.Queue, "agent")
	queueing.Agent, queueing.Log = true, log
	q, err := natsq.Open(ctx, queueing)
	if err != nil {
		return fmt.Errorf("open the queue: %w: start it, or correct queue.url in the configuration", err)
	}
	defer q.Close()
	reg := metrics()
	service, err := agent.New(agent.Config{WorkDir: f.workDir, Host: host, PID: os.Getpid(), Version: thisBuild().Version},
		agent.Deps{Queue: q, Prober: prober, Traces: store, Log: log, Metrics: reg})
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", f.metricsAddr)
	if err != nil {
		return fmt.Errorf("listen for /metrics: %w: name another address with --metrics-addr", err)
	}
	log.Info("metrics served", "address", listener.Addr().String())
	if f.child {
		f.drain = 0 // its parent waits for it, or has died
	}
	// The parts outlive ctx: they end with the service, which ends drained.
	return together(context.WithoutCancel(ctx),
		func(parts context.Context) error {
			parts, end := context.WithCancel(parts)
			defer end()
			defer context.AfterFunc(ctx, func() {
				select {
				case <-service.Ready():
					service.Drain("its process was asked to end", f.drain)
				default: // it has nothing to finish
					end()
				}
			})()
			return service.Run(parts)
		},
		func(ctx context.Context) error {
			return serveHTTP(ctx, listener, metricsHandler(promhttp.HandlerFor(reg, promhttp.HandlerOpts{})))
		},
		func(ctx context.Context) error {
			select {
			case <-service.Ready():
				if f.child {
					a.ready(listener.Addr().String())
				}
				<-ctx.Done()
			case <-ctx.Done():
			}
			return nil
		},
	)
}

// proberConfig says which runner to start: this binary's simulated GPU, or
// Python on a real card.
func proberConfig(fleet *config.Fleet, f agentFlags) (child.Config, func(), error) {
	self, err := os.Executable()
	if err != nil {
		return child.Config{}, nil, fmt.Errorf("find this program's own file: %w", err)
	}
	cfg := child.Config{Guard: []string{self, "internal", "guard"}, Environ: os.Environ()}
	if f.sim {
		driver, err := fleet.SimulatedDriver(f.simDriver)
		if err != nil {
			return cfg, nil, wrongInput(err)
		}
		offset, err := driver.Offset()
		if err != nil {
			return cfg, nil, wrongInput(err)
		}
		card := sim.Config{Driver: driver.Driver, ContextOffset: offset, Card: f.simCard}
		cfg.Command = append([]string{self, "internal", "simrunner"}, append(card.Flags(), f.simArgs...)...)
		return cfg, func() {}, nil
	}
	card, id, err := gpu.Open(f.card)
	if err != nil {
		return cfg, nil, err
	}
	if cfg.Command, err = child.PythonCommand(f.python, f.workDir); err != nil {
		card.Close()
		return cfg, nil, err
	}
	cfg.Meter = card
	// The runner sees this card alone, as device 0.
	cfg.Extra = []string{"CUDA_VISIBLE_DEVICES=" + id.UUID, "OOMFLEET_CARD=" + id.UUID, "OOMFLEET_WORKLOADS=" + f.pythonPath}
	if f.pythonPath != "" {
		cfg.Extra = append(cfg.Extra, "PYTHONPATH="+f.pythonPath)
	}
	return cfg, card.Close, nil
}

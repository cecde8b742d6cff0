package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/spf13/cobra"

	"github.com/oomfleet/oomfleet/coordinator"
	"github.com/oomfleet/oomfleet/coordinator/api"
	"github.com/oomfleet/oomfleet/internal/config"
	"github.com/oomfleet/oomfleet/internal/secret"
	"github.com/oomfleet/oomfleet/queue/natsq"
	"github.com/oomfleet/oomfleet/storage/raftnode"
	"github.com/oomfleet/oomfleet/storage/trace"
	"github.com/oomfleet/oomfleet/storage/trace/dir"
	"github.com/oomfleet/oomfleet/storage/trace/s3x"
)

func (a *app) coordinatorCommand() *cobra.Command {
	var file, id string
	var child bool
	c := &cobra.Command{Use: "coordinator", Short: "Run a coordinator", Args: cobra.NoArgs,
		Long: `Run one coordinator of the fleet that a configuration file describes. With three
in the file, start one of each --id; any one of them may be lost.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			fleet, me, err := coordinatorOf(file, id)
			if err != nil {
				return err
			}
			if err := fleet.Exposed(); err != nil {
				return wrongInput(err)
			}
			ctx := cmd.Context()
			if child {
				ctx = untilParentEnds(ctx)
			}
			return a.runCoordinator(ctx, fleet, me, func() {
				if child {
					a.ready(me.API)
				}
			})
		}}
	c.Flags().StringVar(&file, "config", "", "the fleet's configuration file (required)")
	c.Flags().StringVar(&id, "id", "", "which coordinator of the file this is (needed with more than one)")
	c.Flags().BoolVar(&child, "child", false, "")
	c.Flags().MarkHidden("child")
	c.MarkFlagRequired("config")
	return c
}

// coordinatorOf reads a fleet's configuration and finds one coordinator in it.
func coordinatorOf(file, id string) (*config.Fleet, config.Coordinator, error) {
	fleet, err := config.Read(file)
	if err != nil {
		return nil, config.Coordinator{}, wrongInput(err)
	}
	found, err := fleet.Coordinator(id)
	if err != nil {
		return nil, config.Coordinator{}, wrongInput(fmt.Errorf("%s: %w", file, err))
	}
	return fleet, found, nil
}

// openTraces opens the trace store of a configuration and tries it. agent, if
// not empty, is the name of one: its keys may do no more than put and read
// traces, so it lists and deletes nothing.
func openTraces(ctx context.Context, t config.Traces, agent string) (*trace.Store, error) {
	driver, err := traceDriver(ctx, t, agent != "")
	if err != nil {
		return nil, err
	}
	store := trace.NewStore(driver).WithClock(time.Now)
	if agent != "" {
		err = store.CanaryPut(ctx, agent)
	} else {
		err = store.Canary(ctx)
	}
	if err != nil {
		return nil, fmt.Errorf("try the trace store: %w", err)
	}
	return store, nil
}

func traceDriver(ctx context.Context, t config.Traces, agent bool) (driver trace.Driver, err error) {
	access, key := os.Getenv(config.EnvAccessKey), secret.Of(os.Getenv(config.EnvSecretKey))
	switch {
	case t.Dir != "":
		driver, err = dir.New(t.Dir)
	case access == "" || key.Empty():
		return nil, usagef("the trace store's keys are missing: set $%s and $%s", config.EnvAccessKey, config.EnvSecretKey)
	default:
		var s3 *s3x.Driver
		s3, err = s3x.New(s3x.Config{URL: t.URL, PublicURL: t.PublicURL, Bucket: t.Bucket, Region: t.Region, CAFile: t.CAFile, AccessKey: access, SecretKey: key.Reveal()})
		if err == nil {
			err = s3.EnsureBucket(ctx)
		}
		if agent && errors.Is(err, trace.ErrRefused) && s3 != nil {
			err = nil // it may not make buckets; whether it may do its own part, its canary says
		}
		driver = s3
	}
	if err != nil {
		return nil, fmt.Errorf("open the trace store: %w: look at traces in the configuration, and at $%s and $%s", err, config.EnvAccessKey, config.EnvSecretKey)
	}
	return driver, nil
}

// metrics returns a registry of its own with the process's numbers in it.
func metrics() *prometheus.Registry {
	reg := prometheus.NewRegistry()
	reg.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return reg
}

// runCoordinator runs raft node, service and API until ctx ends.
func (a *app) runCoordinator(ctx context.Context, fleet *config.Fleet, me config.Coordinator, ready func()) (err error) {
	log := a.logger().With("component", "coordinator", "id", me.ID)
	reg := metrics()
	store, err := openTraces(ctx, fleet.Traces, "")
	if err != nil {
		return err
	}
	guards, err := a.guardAPI(fleet)
	if err != nil {
		return err
	}
	queueing := queueConfig(fleet.Queue, "coordinator-"+me.ID)
	queueing.Log = log
	q, err := natsq.Open(ctx, queueing)
	if err != nil {
		return fmt.Errorf("open the queue: %w: start it, or correct queue.url in the configuration", err)
	}
	defer q.Close()
	if err := q.Canary(ctx); err != nil {
		return fmt.Errorf("%w: the server must take JetStream work with atomic batches (nats-server 2.12 or later) from queue's user in the configuration", err)
	}
	if err := reg.Register(newFullness(ctx, q.Stats)); err != nil {
		return fmt.Errorf("register metrics of the queue: %w", err)
	}
	nodeCfg, err := nodeConfig(fleet, me, log, reg)
	if err != nil {
		return err
	}
	node, err := raftnode.Open(nodeCfg)
	if err != nil {
		return fmt.Errorf("open the registry of coordinator %s (its raft and data_dir are in the configuration): %w", me.ID, err)
	}
	defer func() { err = errors.Join(err, node.Close()) }()
	local := newReplica(node, fleet)
	service, err := coordinator.New(coordinator.Config{Retention: coordinator.Retention{Keep: fleet.Traces.Keep}},
		coordinator.Deps{Registry: local, Queue: q, Traces: store, Garbage: store, Log: log, Metrics: reg})
	if err != nil {
		return err
	}
	handler, err := api.New(api.Deps{ID: me.ID, Version: thisBuild().Version, Sweeps: service, Registry: local, Traces: store, Agents: q, Imports: service,
		Metrics: promhttp.HandlerFor(reg, promhttp.HandlerOpts{}), Tokens: guards.tokens, Peers: guards.peers, Log: log})
	if err != nil {
		return err
	}
	address, err := url.Parse(me.API)
	if err != nil {
		return fmt.Errorf("the API's address: %w", err)
	}
	listener, err := net.Listen("tcp", address.Host)
	if err != nil {
		return fmt.Errorf("listen for the API: %w: end what uses the address, or change api of coordinator %s in the configuration", err, me.ID)
	}
	return together(ctx,
		service.Run,
		func(ctx context.Context) error { return serveHTTP(ctx, guards.wrap(listener), handler) },
		local.run,
		local.attend,
		node.Wait,
		func(ctx context.Context) error { return local.awaitLeader(ctx, ready) },
	)
}

func nodeConfig(fleet *config.Fleet, me config.Coordinator, log *slog.Logger, reg prometheus.Registerer) (raftnode.Config, error) {
	secure, err := raftTLS(fleet)
	cfg := raftnode.Config{ID: me.ID, RaftAddr: me.Raft, DataDir: me.DataDir, TLS: secure, Logger: log, Registerer: reg,
		Heartbeat: fleet.Cluster.Heartbeat, Keep: raftnode.Keep{RemoveDeadAfter: fleet.Cluster.RemoveDeadAfter}}
	for _, c := range fleet.Coordinators {
		cfg.Servers = append(cfg.Servers, raftnode.Server{ID: c.ID, RaftAddr: c.Raft, Join: c.Join})
	}
	return cfg, err
}

// together runs parts of a service and joins them: when one ends, all end.
func together(ctx context.Context, parts ...func(context.Context) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan error, len(parts))
	for _, part := range parts {
		go func() { ended <- part(ctx) }()
	}
	var errs []error
	for range parts {
		errs = append(errs, <-ended)
		cancel()
	}
	return errors.Join(errs...)
}

// serveHTTP serves until ctx ends, then lets requests under way finish.
func serveHTTP(ctx context.Context, l net.Listener, h http.Handler) error {
	// No limit for whole requests: it would end watches. The API bounds bodies.
	s := &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 64 << 10,
		BaseContext: func(net.Listener) context.Context { return ctx }}
	done := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(done)
		grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		s.Shutdown(grace)
	})
	defer stop()
	if err := s.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve the API: %w", err)
	}
	<-done // Serve returns as the shutdown begins
	return nil
}

// metricsHandler serves /metrics and /healthz and nothing else.
func metricsHandler(metrics http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", metrics)
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "ok\n") })
	return mux
}

package devfleet

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/oomfleet/oomfleet/internal/config"
)

// AgentKind says what the agents run on.
type AgentKind string

const (
	// AgentSim is the simulated GPU, under the recorded and a synthetic driver
	// in turn.
	AgentSim AgentKind = "sim"
	// AgentGPU is this machine's GPUs, one agent a card.
	AgentGPU AgentKind = "gpu"
)

// The drivers of simulated agents, and what the synthetic one adds to the
// recorded context: an arbitrary amount that exercises the driver axis.
const (
	RecordedDriver  = "580.159.04"
	SyntheticDriver = "580.159.04-synthetic"
	SyntheticOffset = "48MiB"
)

// Config says what fleet to run.
type Config struct {
	// Binary is the fleetctl to execute. Required.
	Binary string
	// DataDir keeps everything; empty is a temporary folder that is removed.
	DataDir string
	// Agent is sim or gpu, Agents how many; 0 is two simulated agents (one a
	// driver) or one GPU agent, on the first card. More GPU agents take the
	// machine's cards in turn, and one that finds no card ends the fleet.
	Agent  AgentKind
	Agents int
	// Coordinators is 1 or 3; 0 is 1.
	Coordinators int
	// Lease is config.Queue.Lease.
	Lease time.Duration
	// Secure guards the API by tokens and everything by TLS, as if the fleet
	// left this machine. The queue has users in any case.
	Secure bool
	// AgentArgs and AgentEnv are added to every agent's.
	AgentArgs []string
	AgentEnv  []string
	// Drivers are those of the simulated agents, in turn; nil is the recorded
	// one and a synthetic one.
	Drivers []config.SimulatedDriver
	// Via, if not nil, names the address by which one process reaches another,
	// in place of the real one: a network in between that can be cut.
	Via func(from, to, address string) (string, error)
}

// Validate returns every problem at once.
func (c Config) Validate() error {
	var errs []error
	if c.Agent != AgentSim && c.Agent != AgentGPU {
		errs = append(errs, fmt.Errorf("agents are sim or gpu, not %q", c.Agent))
	}
	if c.Agents < 0 || c.Agents > 64 {
		errs = append(errs, fmt.Errorf("%d agents: 1 to 64 can be started on one machine", c.Agents))
	}
	if c.Coordinators != 0 && c.Coordinators != 1 && c.Coordinators != 3 {
		errs = append(errs, fmt.Errorf("%d coordinators: one or three", c.Coordinators))
	}
	return errors.Join(errs...)
}

// Fleet is a fleet on this machine.
type Fleet struct {
	cfg   Config
	dir   string
	temp  bool
	keys  []string // of the S3 server, as environment
	conf  config.Fleet
	procs map[string]*process
	order []string // of starting; stopping goes backwards
	ready chan struct{}
}

// New checks the configuration and makes the data folder. It starts nothing.
func New(cfg Config) (*Fleet, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	f := &Fleet{cfg: cfg, dir: cfg.DataDir, procs: map[string]*process{}, ready: make(chan struct{})}
	if f.cfg.Coordinators == 0 {
		f.cfg.Coordinators = 1
	}
	if f.cfg.Agents == 0 {
		f.cfg.Agents = map[AgentKind]int{AgentSim: 2, AgentGPU: 1}[cfg.Agent]
	}
	var err error
	if f.dir == "" {
		f.temp = true
		f.dir, err = os.MkdirTemp("", "oomfleet-dev-")
	} else if f.dir, err = filepath.Abs(f.dir); err == nil {
		err = os.MkdirAll(f.dir, 0o700)
	}
	if err != nil {
		return nil, fmt.Errorf("make the fleet's data folder: %w: name one that can be written with --data-dir or $TMPDIR", err)
	}
	if err := os.MkdirAll(filepath.Join(f.dir, "logs"), 0o700); err != nil {
		return nil, fmt.Errorf("make the log folder: %w", err)
	}
	return f, nil
}

// Ready is closed when every process of the fleet is ready.
func (f *Fleet) Ready() <-chan struct{} { return f.ready }

// API is the coordinators' base URLs, separated by commas; valid once ready.
func (f *Fleet) API() string {
	var out string
	for i, c := range f.conf.Coordinators {
		if i > 0 {
			out += ","
		}
		out += c.API
	}
	return out
}

// ConfigFile is the fleet's configuration file; it exists once ready.
func (f *Fleet) ConfigFile() string { return filepath.Join(f.dir, "fleet.yaml") }

// Logs is the folder with one log a process.
func (f *Fleet) Logs() string { return filepath.Join(f.dir, "logs") }

// Run starts the fleet and blocks until ctx ends or a process cannot be
// started; then it ends every process and removes temporary data.
func (f *Fleet) Run(ctx context.Context) (err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	s := &stage{fleet: f, cancel: cancel}
	defer func() {
		cancel(nil)
		s.stop()
		if cause := s.failure(); cause != nil {
			err = errors.Join(cause, err)
		}
		if f.temp {
			err = errors.Join(err, os.RemoveAll(f.dir))
		}
	}()
	if err := f.startAll(ctx, s); err != nil {
		if ctx.Err() != nil {
			return nil // ended while starting; a failure is in the stage
		}
		return err
	}
	close(f.ready)
	<-ctx.Done()
	return nil
}

func (f *Fleet) startAll(ctx context.Context, s *stage) error {
	if err := f.makeKeys(); err != nil {
		return err
	}
	if err := f.makeGuards(); err != nil {
		return err
	}
	queue := s.start(ctx, f.serverSpec("queue", "nats", nil, f.queueFlags()...))
	traces := s.start(ctx, f.serverSpec("s3", "s3", f.keys, f.tlsFlags()...))
	queueURL, err := queue.awaitReady(ctx)
	if err != nil {
		return err
	}
	s3Addr, err := traces.awaitReady(ctx)
	if err != nil {
		return err
	}
	f.conf = config.Fleet{APIVersion: config.APIVersion, Queue: config.Queue{URL: queueURL, Lease: f.cfg.Lease},
		Traces: config.Traces{URL: f.scheme() + s3Addr, Bucket: "oomfleet", Region: "us-east-1"}, Simulated: f.simulated()}
	f.guardConfig()
	if err := f.placeCoordinators(); err != nil {
		return err
	}
	if err := f.conf.Write(f.ConfigFile()); err != nil {
		return err
	}
	if err := f.routeAll(); err != nil {
		return err
	}
	var waiting []*process
	for _, c := range f.conf.Coordinators {
		waiting = append(waiting, s.start(ctx, f.coordinatorSpec(c.ID)))
	}
	for i := range f.cfg.Agents {
		waiting = append(waiting, s.start(ctx, f.agentSpec(i)))
	}
	for _, p := range waiting {
		if _, err := p.awaitReady(ctx); err != nil {
			return err
		}
	}
	return nil
}

// placeCoordinators gives each coordinator two free ports. They are free now;
// a port that is taken in between makes the coordinator say so.
func (f *Fleet) placeCoordinators() error {
	for i := range f.cfg.Coordinators {
		raft, err := freePort()
		if err != nil {
			return err
		}
		api, err := freePort()
		if err != nil {
			return err
		}
		id := string(rune('a' + i))
		f.conf.Coordinators = append(f.conf.Coordinators, config.Coordinator{ID: id, Raft: raft, API: f.scheme() + api,
			DataDir: filepath.Join(f.dir, "coordinator-"+id)})
	}
	return nil
}

// makeKeys draws the S3 server's keys. They live in the environment of this
// fleet's processes and nowhere else.
func (f *Fleet) makeKeys() error {
	raw := make([]byte, 24)
	if _, err := rand.Read(raw); err != nil {
		return fmt.Errorf("draw keys: %w", err)
	}
	f.keys = []string{config.EnvAccessKey + "=dev" + hex.EncodeToString(raw[:6]), config.EnvSecretKey + "=" + hex.EncodeToString(raw[6:])}
	return nil
}

func (f *Fleet) serverSpec(name, sub string, env []string, flags ...string) spec {
	folder := filepath.Join(f.dir, name)
	return spec{name: name, env: env, args: func(address string) []string {
		args := append([]string{"internal", sub, "--dir", folder}, flags...)
		if address != "" {
			args = append(args, "--addr", hostPort(address))
		}
		return args
	}}
}

func (f *Fleet) coordinatorSpec(id string) spec {
	return spec{name: "coordinator-" + id, env: f.keys, args: func(string) []string {
		return []string{"coordinator", "--verbose", "--config", f.configOf("coordinator-" + id), "--id", id, "--child"}
	}}
}

func (f *Fleet) agentSpec(i int) spec {
	args := []string{"agent", "--verbose", "--config", f.configOf(agentName(i)), "--child", "--work-dir", filepath.Join(f.dir, fmt.Sprintf("agent-%d", i))}
	if f.cfg.Agent == AgentSim {
		driver := f.conf.Simulated[i%len(f.conf.Simulated)].Driver
		args = append(args, "--sim", "--sim-driver", driver, "--sim-card", fmt.Sprint(i))
	}
	if f.cfg.Agent == AgentGPU && f.cfg.Agents > 1 {
		args = append(args, "--card", fmt.Sprint(i))
	}
	args = append(args, f.cfg.AgentArgs...)
	env := append(f.cfg.AgentEnv[:len(f.cfg.AgentEnv):len(f.cfg.AgentEnv)], f.keys...)
	return spec{name: agentName(i), env: append(env, config.EnvQueueKeyFile+"="+f.keyFile(agentName(i)+".nk")),
		args: func(string) []string { return args }}
}

// hostPort is an address without its scheme.
func hostPort(address string) string {
	for _, scheme := range []string{"nats://", "tls://", "http://", "https://"} {
		if len(address) > len(scheme) && address[:len(scheme)] == scheme {
			return address[len(scheme):]
		}
	}
	return address
}

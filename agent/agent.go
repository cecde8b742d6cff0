package agent

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/oomfleet/oomfleet/agent/probe"
	"github.com/oomfleet/oomfleet/allocator"
	"github.com/oomfleet/oomfleet/proto"
	"github.com/oomfleet/oomfleet/queue"
	"github.com/oomfleet/oomfleet/storage/trace"
)

// Queue is the part of the work queue that an agent uses; see queue.Queue for
// how each method fails.
type Queue interface {
	Next(ctx context.Context, pool proto.Pool) (queue.Delivery, error)
	Report(ctx context.Context, r proto.Result) error
	Announce(ctx context.Context, a proto.AgentInfo, ttl time.Duration) error
	Retire(ctx context.Context, id proto.AgentID) error
	Listen(ctx context.Context, pool proto.Pool, heard func(proto.Control)) error
}

// Prober runs tasks on one card. Its errors mean that nothing was learnt about
// any cell, and their text is one sentence that says what to do.
type Prober interface {
	// Describe says what the prober runs on, as of now.
	Describe(ctx context.Context) (probe.Description, error)
	// Run runs one task; under a cancelled context it kills the run and
	// returns the cause.
	Run(ctx context.Context, task proto.Task) (probe.Observation, error)
	// Check makes a small run of the prober's own and returns nil when it came
	// out right; it ends in bounded time. Under a cancelled context it returns
	// the cause.
	Check(ctx context.Context) error
}

// Traces stores traces, whole and verified when it returns.
type Traces interface {
	PutTrace(ctx context.Context, events []allocator.Event, meta trace.Meta) (proto.TraceRef, error)
}

// Config is how an agent behaves. WorkDir is required.
type Config struct {
	// WorkDir is the agent's own folder; the outbox is in it.
	WorkDir string
	// Host, PID and Version are announced.
	Host    string
	PID     int
	Version string
	// Presence is how long an announcement holds; 0 is 15 s. It is renewed at
	// a third of that.
	Presence time.Duration
	// Pause is the first pause after a fault of the agent's own, doubled up to
	// LongestPause; 0 is 5 s and 5 min.
	Pause        time.Duration
	LongestPause time.Duration
	// LookAgain is how long an idle agent waits for a task before it asks its
	// card again what it is: a driver may change meanwhile. 0 is 1 min.
	LookAgain time.Duration
}

// Validate returns every problem of c at once.
func (c Config) Validate() error {
	var errs []error
	if c.WorkDir == "" {
		errs = append(errs, errors.New("an agent needs a work folder of its own: name one with --work-dir"))
	}
	if c.Presence < 0 || c.Pause < 0 || c.LongestPause < 0 || c.LookAgain < 0 {
		errs = append(errs, errors.New("an agent's times cannot be negative"))
	}
	return errors.Join(errs...)
}

func (c Config) withDefaults() Config {
	if c.Presence == 0 {
		c.Presence = 15 * time.Second
	}
	if c.Pause == 0 {
		c.Pause = 5 * time.Second
	}
	if c.LongestPause == 0 {
		c.LongestPause = 5 * time.Minute
	}
	if c.LookAgain == 0 {
		c.LookAgain = time.Minute
	}
	return c
}

// Deps are what an agent works with; Log and Metrics may be nil.
type Deps struct {
	Queue   Queue
	Prober  Prober
	Traces  Traces
	Log     *slog.Logger
	Metrics prometheus.Registerer
}

// Agent works for one card. Run is called once.
type Agent struct {
	cfg     Config
	deps    Deps
	log     *slog.Logger
	metrics *metrics
	outbox  *outbox
	self    *presence
	running current
	drain   drain
	// reported are the runs whose result is with the queue while their task
	// still lies there: when it comes it is acked, once, and not run again.
	// Only Run's own goroutine uses it.
	reported map[run]bool
	// suspect says that the last run was a fault of the agent's own, and the card
	// has passed no check since; likewise Run's own.
	suspect bool
}

// run is one execution of a task that counts.
type run struct {
	task  proto.TaskID
	fence proto.Fence
}

// New returns an agent and starts nothing. It makes the work folder.
func New(cfg Config, deps Deps) (*Agent, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if deps.Queue == nil || deps.Prober == nil || deps.Traces == nil {
		return nil, errors.New("an agent needs a queue, a prober and a trace store")
	}
	if deps.Log == nil {
		deps.Log = slog.New(slog.DiscardHandler)
	}
	m, err := newMetrics(deps.Metrics)
	if err != nil {
		return nil, err
	}
	box, err := openOutbox(cfg.WorkDir)
	if err != nil {
		return nil, err
	}
	return &Agent{cfg: cfg.withDefaults(), deps: deps, log: deps.Log, metrics: m, outbox: box, self: newPresence(),
		drain: drain{wake: make(chan struct{}, 1)}, reported: map[run]bool{}}, nil
}

// Ready is closed when the agent has announced itself for the first time.
func (a *Agent) Ready() <-chan struct{} { return a.self.first }

// IDOf derives an agent's id from its card's UUID: lower case, [a-z0-9-].
func IDOf(uuid string) proto.AgentID {
	return proto.AgentID(strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9', r == '-':
			return r
		case r >= 'A' && r <= 'Z':
			return r + 'a' - 'A'
		}
		return '-'
	}, uuid))
}

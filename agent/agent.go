package agent

import (
	"context"
	"errors"
	"fmt"
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
}

// Prober runs tasks on one card. Its errors mean that nothing was learnt about
// any cell, and their text is one sentence that says what to do.
type Prober interface {
	// Describe says what the prober runs on, as of now.
	Describe(ctx context.Context) (probe.Description, error)
	// Run runs one task; under a cancelled context it kills the run and
	// returns the cause.
	Run(ctx context.Context, task proto.Task) (probe.Observation, error)
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
}

// New returns an agent and starts nothing. It makes the work folder.
func New(cfg Config, deps Deps) (*Agent, error) {
	if deps.Queue == nil || deps.Prober == nil || deps.Traces == nil {
		return nil, errors.New("an agent needs a queue, a prober and a trace store")
	}
	if cfg.WorkDir == "" {
		return nil, errors.New("an agent needs a work folder of its own: name one with --work-dir")
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
	return &Agent{cfg: cfg.withDefaults(), deps: deps, log: deps.Log, metrics: m, outbox: box, self: &presence{}}, nil
}

// Ready is closed when the agent has announced itself for the first time.
func (a *Agent) Ready() <-chan struct{} { return a.self.announced() }

// Run works until ctx ends; then the run in progress is ended and its task
// handed back. It returns an error at once when the card or the runner cannot
// be described at the start: nobody would see a quarantine then.
func (a *Agent) Run(ctx context.Context) error {
	seen, err := a.deps.Prober.Describe(ctx)
	if err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	a.self.set(a.info(seen))
	ctx, cancel := context.WithCancel(ctx)
	gone := make(chan struct{})
	go func() { // joined below
		defer close(gone)
		a.announce(ctx)
	}()
	defer func() {
		cancel()
		<-gone
	}()
	a.deliverLeftovers(ctx)
	pause := a.cfg.Pause
	for ctx.Err() == nil {
		err := a.once(ctx, &seen)
		if err == nil {
			pause = a.cfg.Pause
			continue
		}
		if ctx.Err() != nil {
			break
		}
		a.quarantine(ctx, err, pause)
		pause = min(2*pause, a.cfg.LongestPause)
	}
	return nil
}

// info is what the agent announces about itself.
func (a *Agent) info(d probe.Description) proto.AgentInfo {
	return proto.AgentInfo{ID: IDOf(d.Card.UUID), Origin: d.Origin(), Stack: d.Stack, Card: d.Card, Host: a.cfg.Host, PID: a.cfg.PID,
		Version: a.cfg.Version, QuotaKinds: d.QuotaKinds, State: proto.AgentIdle}
}

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

// quarantine stops taking work for a while and says why; the agent describes
// itself again before it goes on.
func (a *Agent) quarantine(ctx context.Context, why error, pause time.Duration) {
	a.log.Error("agent in quarantine", "error", why, "pause", pause)
	a.metrics.faults.Inc()
	a.self.state(proto.AgentQuarantined, why.Error(), "")
	select {
	case <-ctx.Done():
	case <-time.After(pause):
	}
}

// once takes and works on one task. An error is a fault of the agent's own.
func (a *Agent) once(ctx context.Context, seen *probe.Description) error {
	now, err := a.deps.Prober.Describe(ctx)
	if err != nil {
		return err
	}
	if !now.Equal(*seen) {
		a.log.Warn("stack changed", "from", seen.Stack, "to", now.Stack, "card", now.Card.UUID)
		if err := a.deps.Queue.Retire(ctx, IDOf(seen.Card.UUID)); err != nil {
			a.log.Warn("old announcement stays until it expires", "error", err)
		}
		*seen = now
		a.self.set(a.info(now))
	}
	a.self.state(proto.AgentIdle, "", "")
	d, err := a.deps.Queue.Next(ctx, now.Stack.Pool(now.Origin()))
	if err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return fmt.Errorf("take a task: %w", err)
	}
	return a.work(ctx, d, now)
}

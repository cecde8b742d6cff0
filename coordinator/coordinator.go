// Package coordinator owns the service that turns the registry's state into
// work: the leader's loop (plan, commit, publish), the intake of results, the
// replays, programs and fits, the audit of the queue, and the entry points for submitting
// and cancelling a matrix. It refuses to decide: what comes next is package
// plan's word, what a command does is the registry's. It keeps nothing that a
// new leader would miss; what it remembers only saves work.
//
// Every node runs a Coordinator. Its duties run while the node leads, and end
// with the leadership. Commit first, publish after: a task that was committed
// and not published (a crash in between, a full queue, a queue that lost its
// disk) is found by the audit.
//
// Start reading at Coordinator.Run, then duty (one term of leadership).
package coordinator

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/oomfleet/oomfleet/allocator"
	"github.com/oomfleet/oomfleet/proto"
	"github.com/oomfleet/oomfleet/queue"
	"github.com/oomfleet/oomfleet/storage/registry"
	"github.com/oomfleet/oomfleet/storage/trace"
)

// Registry is this node's replica of the replicated state.
type Registry interface {
	// Propose commits a command and returns what Apply made of it, applied
	// here too. It fails with registry.ErrNotLeader (nothing was written),
	// registry.ErrUncertain (perhaps committed; every command bears being
	// proposed again), registry.ErrTooLarge and registry.ErrClosed.
	Propose(ctx context.Context, cmd registry.Command) (registry.Reply, error)
	// View is what this node has applied. It never fails or blocks.
	View() registry.View
	// Changed returns a channel that is closed once the applied index is
	// above after; at once if it is so already.
	Changed(after uint64) <-chan struct{}
	// Leadership says whether this node leads and has applied everything that
	// was committed before it did; the channel is closed when that may have
	// changed. Without the second half an audit would publish tasks again
	// that have their result.
	Leadership() (leading bool, changed <-chan struct{})
}

// Queue is the part of the work queue that a coordinator uses; see queue.Queue
// for how each method fails.
type Queue interface {
	Publish(ctx context.Context, tasks []proto.Task) (n int, err error)
	Waiting(ctx context.Context) (map[proto.TaskID]bool, error)
	Remove(ctx context.Context, pool proto.Pool, ids []proto.TaskID) error
	NextReport(ctx context.Context) (queue.Report, error)
	ReportsPending(ctx context.Context) (int, error)
	Agents(ctx context.Context) ([]proto.AgentInfo, error)
	Tell(ctx context.Context, pool proto.Pool, c proto.Control) error
}

// Traces reads recordings, and keeps the programs that are made from them; see
// trace.Store for how it fails.
type Traces interface {
	GetTrace(ctx context.Context, digest proto.Digest) ([]allocator.Event, trace.Meta, error)
	GetProgram(ctx context.Context, digest proto.Digest) ([]byte, error)
	PutProgram(ctx context.Context, text []byte) (proto.Digest, error)
}

// Config is how a coordinator behaves; the zero value is the default.
type Config struct {
	// AuditEvery is how often the leader compares the registry with the queue;
	// 0 is 5 s.
	AuditEvery time.Duration
	// Pause is how long the leader waits after something failed that may pass
	// (no connection, no quorum); 0 is 1 s.
	Pause time.Duration
	// TasksPerPool is how many tasks of one pool may lie in the queue, where few
	// agents serve it; 0 is 512.
	TasksPerPool int
	// ReplayWorkers is how many recordings are decoded and replayed at once, of
	// up to 1 GiB or two each; 0 is the number of CPUs, 4 at most.
	ReplayWorkers int
	// Retention is what becomes of stored objects that nothing refers to.
	Retention Retention
}

// Validate returns every problem of c at once.
func (c Config) Validate() error {
	var errs []error
	if c.AuditEvery < 0 || c.Pause < 0 {
		errs = append(errs, errors.New("audit interval and pause cannot be negative"))
	}
	if c.ReplayWorkers < 0 || c.TasksPerPool < 0 {
		errs = append(errs, errors.New("replay workers and tasks per pool cannot be negative"))
	}
	errs = append(errs, c.Retention.validate())
	return errors.Join(errs...)
}

func (c Config) withDefaults() Config {
	if c.AuditEvery == 0 {
		c.AuditEvery = 5 * time.Second
	}
	if c.Pause == 0 {
		c.Pause = time.Second
	}
	if c.TasksPerPool == 0 {
		c.TasksPerPool = 512
	}
	if c.ReplayWorkers == 0 {
		c.ReplayWorkers = min(runtime.NumCPU(), 4)
	}
	if c.Retention.Every == 0 {
		c.Retention.Every = 6 * time.Hour
	}
	return c
}

// Deps are what a coordinator works with; all down to Traces are required.
type Deps struct {
	Registry Registry
	Queue    Queue
	Traces   Traces
	// Garbage is the trace store once more; nil removes nothing from it.
	Garbage Garbage
	// Log receives what happens, with its component set; nil drops it.
	Log *slog.Logger
	// Metrics is where the metrics are registered, once for each Coordinator;
	// nil keeps them to itself.
	Metrics prometheus.Registerer
	// Now is this machine's clock; nil is time.Now. It is for simulators, which
	// have one of their own.
	Now func() time.Time
}

// Coordinator runs one node's share of the service. Its methods are safe for
// concurrent use; Run is called once.
type Coordinator struct {
	cfg      Config
	registry Registry
	queue    watchedQueue
	traces   Traces
	programs *programs
	garbage  Garbage
	observed
	// room is for the jobs that hold recordings in memory, of all terms together.
	room    chan struct{}
	now     func() time.Time
	log     *slog.Logger
	metrics *metrics
}

// observed is what this node, as the leader, has seen of the rest of the fleet.
type observed struct {
	roster   roster
	quiet    quiet
	troubles *troubles
}

// New returns a coordinator and starts nothing. It fails on a bad
// configuration, a missing dependency, or metrics that are registered already.
func New(cfg Config, deps Deps) (*Coordinator, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("configure coordinator: %w", err)
	}
	if deps.Registry == nil || deps.Queue == nil || deps.Traces == nil {
		return nil, errors.New("configure coordinator: registry, queue and traces are required")
	}
	if deps.Log == nil {
		deps.Log = slog.New(slog.DiscardHandler)
	}
	if deps.Now == nil {
		deps.Now = time.Now
	}
	trouble := newTroubles(deps.Now)
	traces := watchedTraces{deps.Traces, trouble}
	c := &Coordinator{
		cfg: cfg.withDefaults(), registry: deps.Registry, queue: watchedQueue{deps.Queue, trouble}, traces: traces, garbage: deps.Garbage,
		programs: &programs{traces: traces}, observed: observed{troubles: trouble}, now: deps.Now, log: deps.Log,
	}
	c.room = make(chan struct{}, c.cfg.ReplayWorkers+1) // and one that makes a program
	var err error
	if c.metrics, err = newMetrics(deps.Metrics, deps.Registry, c.roster.seen, trouble); err != nil {
		return nil, fmt.Errorf("register coordinator metrics: %w", err)
	}
	return c, nil
}

// Run carries out the leader's duties whenever this node leads, and blocks
// until ctx ends and everything that it started has ended, but for what cannot be
// broken off (see part). It returns nil then, and an error when the
// registry's node or the queue was closed under it.
func (c *Coordinator) Run(ctx context.Context) error {
	for ctx.Err() == nil {
		leading, changed := c.registry.Leadership()
		if !leading {
			select {
			case <-ctx.Done():
			case <-changed:
			}
			continue
		}
		c.log.Info("leading")
		err := c.lead(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case final(err):
			return err
		case !errors.Is(err, errLeadershipLost): // a proposal knew it first
			pause(ctx, c.cfg.Pause, changed)
		}
		c.log.Info("leadership ended", "why", err)
	}
	return nil
}

// errLeadershipLost is the cause with which duties end when the node stops
// leading.
var errLeadershipLost = errors.New("leadership lost")

// lead runs the duties of one term until leadership is lost, ctx ends or one of
// them cannot go on, and joins them. It returns the first cause.
func (c *Coordinator) lead(parent context.Context) error {
	ctx, end := context.WithCancelCause(parent)
	defer end(nil)
	defer c.roster.set(nil, time.Time{}) // another leader looks after the agents
	defer c.troubles.over(parts()...)    // and knows its own
	c.quiet.set(time.Time{})
	var wg sync.WaitGroup
	for _, run := range []func(context.Context) error{newDuty(c).loop, c.intake, c.retain, c.watch} {
		wg.Go(func() {
			if err := run(ctx); err != nil {
				end(err)
			}
		})
	}
	wg.Wait()
	return context.Cause(ctx)
}

// watch returns errLeadershipLost as soon as this node does not lead any more,
// nil when ctx ends.
func (c *Coordinator) watch(ctx context.Context) error {
	for {
		leading, changed := c.registry.Leadership()
		if !leading {
			return errLeadershipLost
		}
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		}
	}
}

// final reports whether an error means that this service can never go on.
func final(err error) bool {
	return errors.Is(err, registry.ErrClosed) || errors.Is(err, queue.ErrClosed)
}

// stepDown reports whether an error ends the duties: another node leads, or
// nothing works any more.
func stepDown(err error) bool {
	return errors.Is(err, registry.ErrNotLeader) || final(err)
}

// pause waits for d, or until ctx ends or wake is closed.
func pause(ctx context.Context, d time.Duration, wake <-chan struct{}) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-wake:
	case <-timer.C:
	}
}

// propose commits a command, in the lowest version that it can be written in. It
// fails with registry.ErrOldMember where a coordinator could not apply it: that
// one would stop, and others that are like it.
func (c *Coordinator) propose(ctx context.Context, cmd registry.Command) (reply registry.Reply, err error) {
	if cmd.Version, err = registry.Gate(cmd, c.registry.View().Members); err != nil {
		return registry.Reply{}, err
	}
	return c.registry.Propose(ctx, cmd)
}

package child

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/oomfleet/oomfleet/agent/probe"
	"github.com/oomfleet/oomfleet/agent/runner"
	"github.com/oomfleet/oomfleet/proto"
)

// ErrClosed is returned by calls after Close.
var ErrClosed = errors.New("prober is closed")

// Prober runs tasks on one card, one at a time, in processes of their own. It
// keeps a warm runner between runs and starts another when that one broke.
//
// Errors of its methods mean that nothing was learnt about any cell; their text
// is one sentence that says what to do. What a run itself did wrong is evidence.
type Prober struct {
	cfg Config
	// busy holds the right to use what follows; capacity 1.
	busy chan struct{}
	tree *tree
	// stuck is a killed tree that did not go away: nothing is started beside it.
	stuck    *tree
	identity probe.Identity
	runs     int
	closed   bool
}

// New returns a prober. It starts nothing: the first call does.
func New(cfg Config) (*Prober, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("prober: %w", err)
	}
	cfg.Timing = cfg.Timing.withDefaults()
	if cfg.Meter != nil {
		cfg.Meter = newPatient(cfg.Meter, cfg.Timing.Meter)
	}
	return &Prober{cfg: cfg, busy: make(chan struct{}, 1)}, nil
}

func (p *Prober) acquire(ctx context.Context) error {
	select {
	case p.busy <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if p.closed {
		<-p.busy
		return ErrClosed
	}
	return nil
}

func (p *Prober) release() { <-p.busy }

// Describe says what the prober runs on, as of now: the card is asked again at
// each call, and a runner that was started on another driver is replaced.
func (p *Prober) Describe(ctx context.Context) (probe.Description, error) {
	if err := p.acquire(ctx); err != nil {
		return probe.Description{}, err
	}
	defer p.release()
	if err := p.ensure(ctx); err != nil {
		return probe.Description{}, err
	}
	return p.describe()
}

func (p *Prober) describe() (probe.Description, error) {
	hello, id := p.tree.hello, p.identity
	if hello.Simulated {
		id = probe.Identity{GPU: hello.GPU, Driver: hello.Driver, UUID: hello.UUID, Total: proto.Bytes(hello.TotalBytes)}
	}
	d := probe.Description{
		Stack: proto.Stack{GPU: id.GPU, Driver: id.Driver, CUDA: hello.CUDA, Torch: hello.Torch,
			Transformers: hello.Transformers, Python: hello.Python},
		Card:      proto.Card{UUID: id.UUID, Total: id.Total},
		Simulated: hello.Simulated,
	}
	for _, name := range hello.QuotaKinds {
		kind, err := proto.ParseQuotaKind(name)
		if err != nil {
			return probe.Description{}, &violation{err}
		}
		d.QuotaKinds = append(d.QuotaKinds, kind)
	}
	return d, nil
}

// ensure has a runner ready that was started on the card as it is now.
func (p *Prober) ensure(ctx context.Context) error {
	if p.stuck != nil {
		if !p.stuck.hasEnded() {
			return p.stuck.wait(0)
		}
		p.stuck = nil
	}
	if p.tree != nil && !p.tree.idle() {
		p.cfg.Log.Warn("runner ended or spoke between runs: starting another")
		if err := p.kill(); err != nil {
			return err
		}
	}
	if p.cfg.Meter != nil {
		id, err := p.cfg.Meter.Identify()
		if err != nil {
			return fmt.Errorf("read the card: %w", err)
		}
		if p.tree != nil && id != p.identity {
			p.cfg.Log.Info("card or driver changed: starting the runner anew", "was", p.identity, "is", id)
			if err := p.kill(); err != nil {
				return err
			}
		}
		p.identity = id
	}
	if p.tree != nil {
		return nil
	}
	return p.start(ctx)
}

// start starts a runner and waits for its hello.
func (p *Prober) start(ctx context.Context) error {
	t, err := startTree(p.cfg)
	if err != nil {
		return err
	}
	p.tree = t
	timeout, stop := after(p.cfg.Timing.Hello)
	defer stop()
	event, err := t.next(ctx, timeout)
	if err == nil {
		err = p.greet(event)
	}
	if err == nil {
		return nil
	}
	if stuck := p.kill(); stuck != nil {
		return stuck
	}
	switch {
	case errors.Is(err, errTimeout):
		return fmt.Errorf("runner %s said nothing for %v, last words: %s: run it by hand to see what it waits for",
			p.commandLine(), p.cfg.Timing.Hello, orNothing(lastLine(printable(t.stderr.bytes()))))
	case errors.Is(err, io.EOF):
		return p.stillborn(t)
	default:
		return err
	}
}

// greet takes a runner's first event.
func (p *Prober) greet(event runner.Event) error {
	switch e := event.(type) {
	case *runner.Hello:
		switch {
		case e.Protocol != runner.Protocol:
			return fmt.Errorf("runner %s speaks protocol %d and this agent %d: use the runner that came with this build", p.commandLine(), e.Protocol, runner.Protocol)
		case e.Simulated && (e.GPU == "" || e.Driver == "" || e.UUID == "" || e.TotalBytes <= 0):
			return &violation{errors.New("a simulated runner's hello needs gpu, driver, uuid and total_bytes")}
		case !e.Simulated && p.cfg.Meter == nil:
			return errors.New("a runner of a real GPU needs a meter: start the agent with the gpu prober")
		}
		p.tree.hello = e
		return nil
	case *runner.Fault:
		return errors.New(e.Message)
	default:
		return &violation{fmt.Errorf("first event is %T, not a hello", event)}
	}
}

// stillborn says why a runner ended before its hello.
func (p *Prober) stillborn(t *tree) error {
	if t.cmd.ProcessState.ExitCode() == exitNotFound {
		return fmt.Errorf("runner %s could not be started (%s): install it or name another interpreter with --python",
			p.cfg.Command[0], strings.TrimPrefix(lastLine(printable(t.stderr.bytes())), "guard: "))
	}
	return fmt.Errorf("runner %s ended before it said hello: %s: run it by hand to see more", p.commandLine(), t.obituary())
}

// kill ends the present runner. After an error its tree is stuck.
func (p *Prober) kill() error {
	t := p.tree
	p.tree = nil
	if err := t.kill(p.cfg.Timing.Gone); err != nil {
		p.stuck = t
		return err
	}
	return nil
}

func (p *Prober) commandLine() string { return strings.Join(p.cfg.Command, " ") }

// Close ends the runner and everything below it, and waits for that. A run in
// progress is waited for: cancel its context first.
func (p *Prober) Close() error {
	p.busy <- struct{}{}
	defer p.release()
	if p.closed {
		return nil
	}
	p.closed = true
	if p.tree == nil {
		return nil
	}
	// A runner may hold more than processes (a daemon's folder): it is asked
	// first, and has as long for that as a run has after its kill.
	t := p.tree
	t.requests.Close() //nolint:errcheck // closing twice is no harm
	if t.wait(p.cfg.Timing.Kill) == nil {
		p.tree = nil
		return nil
	}
	return p.kill()
}

func orNothing(s string) string {
	if s == "" {
		return "none"
	}
	return s
}

package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/oomfleet/oomfleet/agent/probe"
	"github.com/oomfleet/oomfleet/proto"
	"github.com/oomfleet/oomfleet/queue"
)

// Run works until ctx ends; then the run in progress is ended and its task
// handed back. It also returns after Drain. It returns an error at once when
// another agent has the work folder, and when the card or the runner cannot be
// described at the start: nobody would see a quarantine then. It also returns
// one when the queue was closed under it.
func (a *Agent) Run(ctx context.Context) error {
	lock, err := lockFolder(a.cfg.WorkDir)
	switch {
	case err == nil:
		defer lock.Close() //nolint:errcheck // nothing was written
	case errors.Is(err, errInUse):
		return err
	default:
		a.log.Warn("the work folder cannot be locked: make sure that no other agent uses it", "error", err)
	}
	seen, err := a.describe(ctx)
	if err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	a.self.set(a.info(seen))
	ctx, cancel := context.WithCancel(ctx)
	idle, rest := context.WithCancel(ctx) // ends with ctx, and when there is to be no more work
	var beside sync.WaitGroup
	beside.Go(func() { a.announce(ctx) })
	beside.Go(func() { a.awaitDrain(ctx, rest, cancel) })
	defer func() {
		rest()
		cancel()
		beside.Wait()
	}()
	return a.loop(ctx, idle, seen)
}

// loop works until idle ends. It listens to the coordinators of the pool that
// the agent is in.
func (a *Agent) loop(ctx, idle context.Context, seen probe.Description) error {
	ear := a.listen(ctx, IDOf(seen.Card.UUID), seen.Pool())
	defer func() { ear() }()
	pause := a.cfg.Pause
	for idle.Err() == nil {
		before := seen
		err := a.once(ctx, idle, &seen)
		if !seen.Equal(before) {
			ear()
			ear = a.listen(ctx, IDOf(seen.Card.UUID), seen.Pool())
		}
		switch {
		case err == nil:
			pause = a.cfg.Pause
		case ctx.Err() != nil:
		case errors.Is(err, queue.ErrClosed):
			return err
		default:
			a.quarantine(idle, err, pause)
			pause = min(2*pause, a.cfg.LongestPause)
		}
	}
	return nil
}

// describe asks the prober what it runs on.
func (a *Agent) describe(ctx context.Context) (probe.Description, error) {
	d, err := a.deps.Prober.Describe(ctx)
	if err == nil && d.Card.UUID == "" {
		err = errors.New("the prober names no card, and an agent is known by its card's UUID: look at the runner's hello")
	}
	return d, err
}

// info is what the agent announces about itself.
func (a *Agent) info(d probe.Description) proto.AgentInfo {
	kinds := slices.Clone(d.QuotaKinds)
	if kinds == nil {
		kinds = []proto.QuotaKind{}
	}
	return proto.AgentInfo{ID: IDOf(d.Card.UUID), Origin: d.Origin(), Stack: d.Stack, Card: d.Card, Host: a.cfg.Host, PID: a.cfg.PID,
		Version: a.cfg.Version, QuotaKinds: kinds, State: proto.AgentIdle}
}

// quarantine stops taking work for a while and says why; the agent describes
// itself again before it goes on.
func (a *Agent) quarantine(ctx context.Context, why error, pause time.Duration) {
	a.log.Error("agent in quarantine", "error", why, "pause", pause)
	a.metrics.faults.Inc()
	a.self.state(proto.AgentQuarantined, why.Error(), "")
	wait(ctx, pause)
}

// wait blocks for d, or until ctx ends.
func wait(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// clear lets a suspect agent work again when its card passes a check; without
// one, a card that answers the driver's questions and breaks every run would
// take one task after the other, and with them the attempts of one cell after
// the other.
//
// A fault behind a passed check is the cell's until a check fails: a program
// that breaks its runner must come to an end some time, and one attempt for each
// passed check is what a card costs that is broken only now and then. The pauses
// go on doubling over passed checks as long as each run is a fault.
//
// No check is made at the start, which is to be fast: a new agent on a broken
// card costs one attempt.
func (a *Agent) clear(ctx context.Context) error {
	if !a.suspect {
		return nil
	}
	err := a.deps.Prober.Check(ctx)
	switch {
	case ctx.Err() != nil:
		return nil
	case err != nil:
		return fmt.Errorf("the card fails its check: %w", err)
	}
	a.suspect = false
	a.log.Info("the card passes its check")
	return nil
}

// once brings home what lies in the outbox, then takes and works on one task,
// which it waits for until idle ends. An error is a fault of the agent's own.
func (a *Agent) once(ctx, idle context.Context, seen *probe.Description) error {
	if err := a.deliverLeftovers(ctx); err != nil {
		return err
	}
	now, err := a.describe(ctx)
	if err != nil {
		return err
	}
	if !now.Equal(*seen) {
		a.log.Warn("stack changed", "from", seen.Stack, "to", now.Stack, "card", now.Card.UUID)
		*seen = now
		a.self.set(a.info(now))
	}
	if err := a.clear(idle); err != nil {
		return err
	}
	if idle.Err() != nil {
		return nil
	}
	a.self.state(proto.AgentIdle, "", "")
	patient, cancel := context.WithTimeout(idle, a.cfg.LookAgain)
	d, err := a.deps.Queue.Next(patient, now.Pool())
	cancel()
	switch {
	case err == nil && idle.Err() != nil: // it came as the wait ended
		a.settle(ctx, d, run{}, ending{})
		return nil
	case err == nil:
		return a.work(ctx, d, now)
	case idle.Err() != nil, patient.Err() != nil && errors.Is(err, context.DeadlineExceeded):
		return nil
	}
	return fmt.Errorf("take a task: %w", err)
}

package agent

import (
	"context"
	"sync"
	"time"

	"github.com/oomfleet/oomfleet/proto"
)

// presence is what the agent says of itself at any moment.
type presence struct {
	wake  chan struct{} // capacity 1, no data: the info is the truth
	first chan struct{} // closed at the first announcement

	mu       sync.Mutex // guards the rest
	info     proto.AgentInfo
	draining bool
}

func newPresence() *presence {
	return &presence{wake: make(chan struct{}, 1), first: make(chan struct{})}
}

// set replaces everything.
func (p *presence) set(info proto.AgentInfo) {
	p.change(func(i *proto.AgentInfo) { *i = info })
}

// state changes what the agent is doing.
func (p *presence) state(s proto.AgentState, reason string, task proto.TaskID) {
	p.change(func(i *proto.AgentInfo) { i.State, i.Reason, i.Task = s, reason, task })
}

func (p *presence) change(f func(*proto.AgentInfo)) {
	p.mu.Lock()
	f(&p.info)
	p.mu.Unlock()
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// drain lets every state from now on be that of draining.
func (p *presence) drain() {
	p.mu.Lock()
	p.draining = true
	p.mu.Unlock()
	p.change(func(*proto.AgentInfo) {})
}

func (p *presence) now() proto.AgentInfo {
	p.mu.Lock()
	defer p.mu.Unlock()
	info := p.info
	if p.draining {
		info.State = proto.AgentDraining
	}
	return info
}

// announce keeps the announcement alive until ctx ends, then takes it back. It
// alone speaks for the agent, so that no old word can follow a newer one: when
// the card is another one, the old card's announcement is taken back here too.
func (a *Agent) announce(ctx context.Context) {
	tick := time.NewTicker(max(a.cfg.Presence/3, time.Millisecond))
	defer tick.Stop()
	var known proto.AgentID // what may be announced now
	ready := sync.OnceFunc(func() { close(a.self.first) })
	for {
		info := a.self.now()
		if known != "" && known != info.ID {
			a.retire(ctx, known)
		}
		known = info.ID
		info.SeenUnixMS = time.Now().UnixMilli()
		err := a.deps.Queue.Announce(ctx, info, a.cfg.Presence)
		switch {
		case err == nil:
			ready()
		case ctx.Err() == nil:
			a.log.Warn("announcement failed", "error", err)
		}
		select {
		case <-ctx.Done():
			a.retire(ctx, known)
			return
		case <-a.self.wake:
		case <-tick.C:
		}
	}
}

func (a *Agent) retire(ctx context.Context, id proto.AgentID) {
	// Detached: the announcement must go although the agent ends.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), handBack)
	defer cancel()
	if err := a.deps.Queue.Retire(ctx, id); err != nil {
		a.log.Warn("announcement stays until it expires", "agent", id, "error", err)
	}
}

package agent

import (
	"context"
	"sync"
	"time"

	"github.com/oomfleet/oomfleet/proto"
)

// presence is what the agent says of itself at any moment.
type presence struct {
	// mu guards the fields below.
	mu    sync.Mutex
	info  proto.AgentInfo
	wake  chan struct{} // capacity 1, no data: the info is the truth
	first chan struct{} // closed at the first announcement
}

func (p *presence) initLocked() {
	if p.wake == nil {
		p.wake, p.first = make(chan struct{}, 1), make(chan struct{})
	}
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
	p.initLocked()
	f(&p.info)
	wake := p.wake
	p.mu.Unlock()
	select {
	case wake <- struct{}{}:
	default:
	}
}

func (p *presence) now() (proto.AgentInfo, <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.initLocked()
	return p.info, p.wake
}

func (p *presence) announced() chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.initLocked()
	return p.first
}

// announce keeps the announcement alive until ctx ends, then takes it back.
func (a *Agent) announce(ctx context.Context) {
	tick := time.NewTicker(a.cfg.Presence / 3)
	defer tick.Stop()
	said := false
	for {
		info, wake := a.self.now()
		info.SeenUnixMS = time.Now().UnixMilli()
		if err := a.deps.Queue.Announce(ctx, info, a.cfg.Presence); err != nil {
			if ctx.Err() == nil {
				a.log.Warn("announcement failed", "error", err)
			}
		} else if !said {
			said = true
			close(a.self.announced())
		}
		select {
		case <-ctx.Done():
			a.retire(ctx)
			return
		case <-wake:
		case <-tick.C:
		}
	}
}

func (a *Agent) retire(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), handBack)
	defer cancel()
	info, _ := a.self.now()
	if err := a.deps.Queue.Retire(ctx, info.ID); err != nil {
		a.log.Warn("announcement stays until it expires", "error", err)
	}
}

package main

import (
	"context"
	"sync"
	"time"

	"github.com/oomfleet/oomfleet/internal/config"
	"github.com/oomfleet/oomfleet/storage/raftnode"
	"github.com/oomfleet/oomfleet/storage/registry"
)

// replica gives the coordinator the part of a raft node that it knows. A node
// that was just elected has not applied all that was committed before; its
// leadership counts here once it has.
type replica struct {
	*raftnode.Node

	// mu guards the fields below.
	mu      sync.Mutex
	term    uint64 // of which leadership is complete
	changed chan struct{}
}

func newReplica(node *raftnode.Node) *replica {
	return &replica{Node: node, changed: make(chan struct{})}
}

// Leadership says whether this node leads and is up to date, and when to ask
// again.
func (r *replica) Leadership() (bool, <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now, _ := r.Node.Leadership()
	return now.Leading && now.Term == r.term, r.changed
}

// Run completes each new leadership with a barrier and makes the members of the
// configuration known to the registry, until ctx ends.
func (r *replica) Run(ctx context.Context, fleet *config.Fleet) error {
	for {
		now, changed := r.Node.Leadership()
		var retry <-chan time.Time
		if now.Leading && r.Barrier(ctx) != nil {
			retry = time.After(200 * time.Millisecond)
		} else {
			r.turn(now)
			if now.Leading && r.announce(ctx, fleet) != nil {
				retry = time.After(time.Second)
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		case <-retry:
		}
	}
}

// turn records who leads now and wakes whoever waits for it.
func (r *replica) turn(now raftnode.Leadership) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.term = 0
	if now.Leading {
		r.term = now.Term
	}
	close(r.changed)
	r.changed = make(chan struct{})
}

// announce puts the API addresses of the configuration into the registry.
func (r *replica) announce(ctx context.Context, fleet *config.Fleet) error {
	known := r.View().Members
	for _, c := range fleet.Coordinators {
		if known[c.ID].API == c.API {
			continue
		}
		member := registry.Member{ID: c.ID, API: c.API, CommandVersion: registry.CommandVersion}
		if _, err := r.Propose(ctx, registry.Command{SetMember: &registry.SetMember{Member: member}}); err != nil {
			return err
		}
	}
	return nil
}

// awaitLeader calls ready once this node knows a leader that has announced the
// cluster's members; from then on any request can be answered.
func (r *replica) awaitLeader(ctx context.Context, ready func()) error {
	for {
		view := r.View()
		_, changed := r.Node.Leadership()
		if leader := r.LeaderID(); leader != "" && view.Members[leader].API != "" {
			ready()
			<-ctx.Done()
			return nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		case <-r.Changed(view.AppliedIndex):
		}
	}
}

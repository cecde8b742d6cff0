package main

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/oomfleet/oomfleet/internal/config"
	"github.com/oomfleet/oomfleet/storage/raftnode"
	"github.com/oomfleet/oomfleet/storage/registry"
)

// replica is a raft node as the coordinator wants it: a node that was just
// elected has not applied all that was committed before, so its leadership
// counts here once it has. The cluster's members come from the configuration
// file, and the leader puts them into the registry, each with the command version
// that it says itself.
type replica struct {
	*raftnode.Node
	fleet *config.Fleet

	// mu guards the fields below.
	mu      sync.Mutex
	term    uint64        // of which leadership is complete
	changed chan struct{} // closed when term has changed
}

func newReplica(node *raftnode.Node, fleet *config.Fleet) *replica {
	return &replica{Node: node, fleet: fleet, changed: make(chan struct{})}
}

// Leadership says whether this node leads and is up to date, and when to ask
// again.
func (r *replica) Leadership() (bool, <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now, _ := r.Node.Leadership()
	return now.Leading && now.Term == r.term, r.changed
}

// run completes each new leadership, until ctx ends.
func (r *replica) run(ctx context.Context) error {
	for {
		now, changed := r.Node.Leadership()
		var retry <-chan time.Time
		if now.Leading && r.complete(ctx) != nil {
			now.Leading = false
			retry = time.After(200 * time.Millisecond)
		}
		r.turn(now)
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		case <-retry:
		}
	}
}

// complete waits for all that was committed and makes the members known.
// Followers need their addresses to pass writes on.
func (r *replica) complete(ctx context.Context) error {
	if err := r.Barrier(ctx); err != nil {
		return err
	}
	known := r.View().Members
	for _, c := range r.fleet.Coordinators {
		belongs := slices.ContainsFunc(r.Servers(), func(s raftnode.Server) bool { return s.ID == c.ID })
		moved := known[c.ID].API != "" && c.ID != r.ID() // this file may be older than what AddMember was told
		if known[c.ID].API == c.API || moved || !belongs {
			continue
		}
		// What the others apply is known when they have been asked: attend.
		member := registry.Member{ID: c.ID, API: c.API, CommandVersion: known[c.ID].CommandVersion}
		if _, err := r.Propose(ctx, registry.Command{SetMember: &registry.SetMember{Member: member}}); err != nil {
			return err
		}
	}
	return nil
}

// turn records whose term it is and wakes whoever waits for a change.
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

package raftnode

import (
	"sync"

	"github.com/hashicorp/raft"
)

// Leadership is who leads, as far as this node knows.
type Leadership struct {
	// Leading is whether this node does. It may have been deposed without
	// knowing it yet: a read that must be of now needs VerifyLeader.
	Leading bool
	Term    uint64
	// LeaderID is empty while no leader is known.
	LeaderID string
}

// lead wakes those that wait for a change of leadership.
type lead struct {
	raft     *raft.Raft
	observer *raft.Observer
	events   chan raft.Observation
	ended    chan struct{}
	joined   chan struct{}

	mu      sync.Mutex // guards changed
	changed chan struct{}
}

// start begins to watch; stop ends it. The channel of events has room for one:
// raft drops what does not fit, and one is enough to look again.
func (l *lead) start(r *raft.Raft) {
	l.raft = r
	l.events = make(chan raft.Observation, 1)
	l.ended, l.joined, l.changed = make(chan struct{}), make(chan struct{}), make(chan struct{})
	l.observer = raft.NewObserver(l.events, false, func(o *raft.Observation) bool {
		switch o.Data.(type) {
		case raft.RaftState, raft.LeaderObservation:
			return true
		}
		return false
	})
	r.RegisterObserver(l.observer)
	go l.watch()
}

func (l *lead) watch() {
	defer close(l.joined)
	for {
		select {
		case <-l.ended:
			return
		case <-l.events:
			l.mu.Lock()
			close(l.changed)
			l.changed = make(chan struct{})
			l.mu.Unlock()
		}
	}
}

func (l *lead) stop() {
	l.raft.DeregisterObserver(l.observer)
	close(l.ended)
	<-l.joined
}

// Leadership is who leads now, and a channel that is closed when that may have
// changed. It stays open when the node is closed.
func (n *Node) Leadership() (Leadership, <-chan struct{}) {
	n.lead.mu.Lock()
	changed := n.lead.changed // before the state is read: no change is missed
	n.lead.mu.Unlock()
	_, id := n.raft.LeaderWithID()
	return Leadership{Leading: n.IsLeader(), Term: n.Term(), LeaderID: string(id)}, changed
}

// Leading is the part of Leadership that a service needs which works only on the
// leader. A new leader calls Barrier before it relies on View.
func (n *Node) Leading() (leading bool, changed <-chan struct{}) {
	now, changed := n.Leadership()
	return now.Leading, changed
}

// IsLeader is whether this node believes that it leads.
func (n *Node) IsLeader() bool { return n.raft.State() == raft.Leader }

// Term is the current term.
func (n *Node) Term() uint64 { return n.raft.CurrentTerm() }

// LeaderID is the leader's id, empty while none is known.
func (n *Node) LeaderID() string {
	_, id := n.raft.LeaderWithID()
	return string(id)
}

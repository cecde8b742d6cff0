package raftnode

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
)

// Leadership is who leads, as far as this node knows.
type Leadership struct {
	// Leading is whether this node does. It may have been deposed without
	// knowing it yet: a read that must be of now needs Consistent.
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

	// complete is the term of which a barrier has passed: all that was committed
	// before it has been applied. quiet is a position up to which no command is
	// left to apply, heard whether a leader was ever heard of.
	complete, quiet atomic.Uint64
	heard           atomic.Bool

	mu      sync.Mutex // guards all below
	changed chan struct{}
	// lost is when the last leader was given up, at first the node's start;
	// known is whether there is one.
	lost  time.Time
	known bool
}

// start begins to watch; stop ends it. The channel of events has room for one:
// raft drops what does not fit, and one is enough to look again.
func (l *lead) start(r *raft.Raft) {
	l.raft = r
	l.events = make(chan raft.Observation, 1)
	l.ended, l.joined, l.changed = make(chan struct{}), make(chan struct{}), make(chan struct{})
	l.lost = time.Now()
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
			_, leader := l.raft.LeaderWithID()
			l.turn(leader != "")
		}
	}
}

// turn notes whether there is a leader now, and wakes those that wait.
func (l *lead) turn(known bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.known && !known {
		l.lost = time.Now()
	}
	if l.known = known; known {
		l.heard.Store(true)
	}
	close(l.changed)
	l.changed = make(chan struct{})
}

func (l *lead) lostAt() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lost
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

package raftnode

import (
	"cmp"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
	"github.com/oomfleet/oomfleet/storage/registry"
)

// Keep says how a leader tends its cluster; the zero value is the default.
type Keep struct {
	// Every is how often the leader looks at its members; 0 is four heartbeats.
	Every time.Duration
	// RemoveDeadAfter is how long a member may be silent before the leader
	// removes it, if enough others are well; 0 is 30 minutes, negative never.
	RemoveDeadAfter time.Duration
	// MinVoters is how many voters must be well, without the dead one, for
	// that; 0 is as many as formed the cluster. So a cluster of three that
	// loses one waits for it, or for the one that is to replace it.
	MinVoters int
	// CompareEvery is how often the members' states are held against each
	// other; 0 is 15 seconds.
	CompareEvery time.Duration
}

func (k Keep) every(heartbeat time.Duration) time.Duration { return cmp.Or(k.Every, 4*heartbeat) }
func (k Keep) deadAfter() time.Duration                    { return cmp.Or(k.RemoveDeadAfter, 30*time.Minute) }
func (k Keep) compareEvery() time.Duration                 { return cmp.Or(k.CompareEvery, 15*time.Second) }

// contact is what a leader knows of a follower from the calls that it makes
// anyway. Raft itself keeps both numbers to itself.
type contact struct {
	last  time.Time // of the last answer
	term  uint64    // in which match was found
	match uint64    // last entry that is known to be on its disk
}

// group is what a node knows of its cluster beside raft.
type group struct {
	raft      atomic.Pointer[raft.Raft] // nil until raft runs
	addresses *addresses
	ended     chan struct{} // closed by Close
	joined    chan struct{} // closed when the keeper has ended
	reached   atomic.Uint64 // what noteReached has noted
	hashes    hashes
	unwritten unwritten

	mu       sync.Mutex // guards all below
	contacts map[raft.ServerID]contact
	counts   GroupStats
	applies  map[string]int // the newest command version that a member has said it applies
}

func newGroup(a *addresses) *group {
	return &group{addresses: a, ended: make(chan struct{}), joined: make(chan struct{}), contacts: map[raft.ServerID]contact{}, applies: map[string]int{},
		hashes: hashes{sum: registry.View.Hash}}
}

// answered notes an answer of a follower; match is 0 for one that says nothing
// of its log.
func (g *group) answered(id raft.ServerID, term, match uint64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	c := g.contacts[id]
	if c.term != term {
		c.term, c.match = term, 0
	}
	c.last, c.match = time.Now(), max(c.match, match)
	g.contacts[id] = c
}

func (g *group) contact(id raft.ServerID) contact {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.contacts[id]
}

// forget drops what was known of servers that are no members any more.
func (g *group) forget(members []raft.Server) {
	keep := map[raft.ServerID]bool{}
	for _, s := range members {
		keep[s.ID] = true
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	maps.DeleteFunc(g.contacts, func(id raft.ServerID, _ contact) bool { return !keep[id] })
	maps.DeleteFunc(g.applies, func(id string, _ int) bool { return !keep[raft.ServerID(id)] })
}

func (g *group) says(id string, applies int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.applies[id] = applies
}

// Applies is, for each member that has been asked, the newest command version of
// its build as it said itself. A leader asks all of them when it begins to lead
// and every Keep.CompareEvery after; its own is always there.
func (n *Node) Applies() map[string]int {
	n.group.mu.Lock()
	defer n.group.mu.Unlock()
	out := maps.Clone(n.group.applies)
	out[n.cfg.ID] = n.cfg.applies()
	return out
}

func (g *group) count(change func(*GroupStats)) {
	g.mu.Lock()
	defer g.mu.Unlock()
	change(&g.counts)
}

func (g *group) stats() GroupStats {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.counts
}

// GroupStats counts what a leader has seen and done; a follower's are of when it
// led.
type GroupStats struct {
	// Silent is how many members have not answered for longer than a leader
	// waits, or do not answer a node that knows no leader; 0 on one that follows.
	// Differing is how many had another state at the same entry, an alarm; 0 on a
	// node that does not lead.
	Silent, Differing int
	// Compared counts states that were compared, Promoted members that were
	// given a vote, Removed dead ones that were removed.
	Compared, Promoted, Removed uint64
}

// watchedTransport notes who answers, and how far their logs are.
type watchedTransport struct {
	*raft.NetworkTransport
	group *group
}

// AppendEntries sends entries, or a heartbeat, which has none and no place.
func (w watchedTransport) AppendEntries(id raft.ServerID, to raft.ServerAddress, in *raft.AppendEntriesRequest, out *raft.AppendEntriesResponse) error {
	err := w.NetworkTransport.AppendEntries(id, to, in, out)
	if err == nil {
		match := uint64(0)
		if out.Success {
			match = in.PrevLogEntry + uint64(len(in.Entries))
		}
		w.group.answered(id, in.Term, match)
	}
	return err
}

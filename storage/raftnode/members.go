package raftnode

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/hashicorp/raft"
	"github.com/oomfleet/oomfleet/storage/registry"
)

// Errors of changes to the cluster.
var (
	// ErrNotFit is returned when a server cannot be added as it is; the message
	// says why and what to do.
	ErrNotFit = errors.New("the server cannot be added")
	// ErrNotMember is returned for a server that the cluster does not have.
	ErrNotMember = errors.New("the cluster has no such member")
	// ErrQuorum is returned when what was asked would leave a cluster without a
	// majority that answers.
	ErrQuorum = errors.New("the cluster would be left without a majority that answers")
)

// MemberState is how a member's state compares with that of the node that was
// asked.
type MemberState string

const (
	// StateSame is the same content at the same entry.
	StateSame MemberState = "same"
	// StateDiffers is other content at the same entry: an alarm.
	StateDiffers MemberState = "differs"
	// StateUnknown is for members that do not answer or are at another entry, and
	// where a hash takes longer than an answer waits for it.
	StateUnknown MemberState = "unknown"
)

// Member is one server of the cluster as it says itself.
type Member struct {
	Server
	// Voter is whether it counts for a majority. Role is raft's word for what
	// it does, like Leader; empty when it does not answer, and Why says why.
	Voter bool
	Role  string
	Why   string
	// AppliedIndex and Hash are its state, Age how old that may be.
	AppliedIndex uint64
	Hash         string
	Age          time.Duration
	State        MemberState
	// Applies is the newest command version that its build applies; 0 when it
	// does not answer.
	Applies int
	// Trouble is what a person has to do for it to go on, by its own word.
	Trouble string
}

// compareTries is how often a member that is at another entry is asked again.
const compareTries = 3

// Members asks all members how they stand, this one first. It takes up to some
// seconds when one does not answer. Any node can be asked.
func (n *Node) Members(ctx context.Context) []Member {
	servers, err := n.servers()
	if err != nil {
		return nil
	}
	own := n.stand(ctx, question{Late: true})
	out := make([]Member, len(servers))
	var wait sync.WaitGroup
	for i, s := range servers {
		addr := n.group.addresses.of(s.ID, s.Address)
		out[i] = Member{Server: Server{ID: string(s.ID), RaftAddr: string(addr)}, Voter: s.Suffrage == raft.Voter, State: StateUnknown}
		if out[i].ID == n.cfg.ID {
			out[i].take(own)
			out[i].State = StateSame
			continue
		}
		wait.Go(func() { n.look(ctx, &out[i], own) })
	}
	wait.Wait()
	return out
}

func (m *Member) take(s standing) {
	m.Role, m.AppliedIndex, m.Hash, m.Age, m.Applies, m.Trouble = s.State, s.Applied, s.Hash, s.Age, max(s.Applies, 1), s.Trouble
}

// look asks one member, again as long as it is ahead: then this node's own state
// is looked at anew.
func (n *Node) look(ctx context.Context, m *Member, own standing) {
	for range compareTries {
		theirs, err := n.ask(ctx, raft.ServerAddress(m.RaftAddr), question{At: own.Applied, Late: true})
		if err == nil && theirs.ID != m.ID {
			err = fmt.Errorf("%s is the address of %q", m.RaftAddr, theirs.ID)
		}
		if err != nil {
			m.Why = err.Error()
			return
		}
		m.take(theirs)
		if theirs.Applied < own.Applied {
			return
		}
		if theirs.Applied > own.Applied {
			own = n.stand(ctx, question{At: theirs.Applied, Late: true})
		}
		if theirs.Applied == own.Applied {
			switch {
			case theirs.Hash == "" || own.Hash == "": // late: the next look may have it
			case theirs.Hash == own.Hash:
				m.State = StateSame
			default:
				m.State = StateDiffers
			}
			return
		}
	}
}

// Add makes a server a member, or gives a member that has moved its new address.
// Only the leader can. The server must answer at that address under its id, and
// a new one must be empty. It has no vote before it has caught up, so one that
// turns out to be dead costs no majority. Adding what is there changes nothing.
func (n *Node) Add(ctx context.Context, s Server) error {
	if err := n.Consistent(ctx); err != nil {
		return fmt.Errorf("add %s: %w", s.ID, err)
	}
	future := n.raft.GetConfiguration()
	if err := future.Error(); err != nil {
		return fmt.Errorf("add %s: %w", s.ID, err)
	}
	if _, _, err := net.SplitHostPort(s.RaftAddr); err != nil || s.ID == "" {
		return fmt.Errorf("%w: name its id, and its raft address as host:port", ErrNotFit)
	}
	id, addr := raft.ServerID(s.ID), raft.ServerAddress(s.RaftAddr)
	var known *raft.Server
	for _, m := range future.Configuration().Servers {
		switch at := n.group.addresses.of(m.ID, m.Address); {
		case m.ID == id && at == addr && m.Address == addr:
			return nil
		case m.ID == id:
			known = &m
		case at == addr:
			return fmt.Errorf("%w: %s is the address of member %s", ErrNotFit, addr, m.ID)
		}
	}
	if err := n.fits(ctx, s, known != nil); err != nil {
		return err
	}
	add := n.raft.AddNonvoter
	if known != nil && known.Suffrage == raft.Voter {
		add = n.raft.AddVoter // which is how raft spells a new address
	}
	err := n.call(ctx, func() raft.Future { return add(id, addr, future.Index(), enqueueWait(ctx)) })
	if err != nil {
		return fmt.Errorf("add %s: %w", s.ID, err)
	}
	n.logger.Info("member was added", "member", s.ID, "address", s.RaftAddr, "moved", known != nil)
	return nil
}

// fits asks the server itself.
func (n *Node) fits(ctx context.Context, s Server, member bool) error {
	theirs, err := n.ask(ctx, raft.ServerAddress(s.RaftAddr), question{Late: true})
	switch {
	case err != nil:
		return fmt.Errorf("%w: nobody answers at %s, start it first (with join: true in its configuration): %w", ErrNotFit, s.RaftAddr, err)
	case theirs.ID != s.ID:
		return fmt.Errorf("%w: at %s is %q, not %q", ErrNotFit, s.RaftAddr, theirs.ID, s.ID)
	case theirs.Formed && !member:
		return fmt.Errorf("%w: %q has formed or joined a cluster before: stop it, empty its data_dir and start it with join: true", ErrNotFit, s.ID)
	}
	return nil
}

// Remove takes a server out of the cluster. Only the leader can; to remove the
// leader itself, leadership is handed over first and the error is
// registry.ErrNotLeader: ask the new one. It refuses what would leave a cluster
// without a majority that answers.
func (n *Node) Remove(ctx context.Context, id string) error {
	if err := n.Consistent(ctx); err != nil {
		return fmt.Errorf("remove %s: %w", id, err)
	}
	future := n.raft.GetConfiguration()
	if err := future.Error(); err != nil {
		return fmt.Errorf("remove %s: %w", id, err)
	}
	member, voters := false, 0
	for _, s := range future.Configuration().Servers {
		member = member || s.ID == raft.ServerID(id)
		if s.Suffrage == raft.Voter && s.ID != raft.ServerID(id) {
			voters++
		}
	}
	if !member {
		return fmt.Errorf("%w: %q", ErrNotMember, id)
	}
	well := 0
	for _, m := range n.Members(ctx) {
		if m.Voter && m.ID != id && m.Role != "" {
			well++
		}
	}
	if well < voters/2+1 {
		return fmt.Errorf("%w: %d of the other %d voters answer", ErrQuorum, well, voters)
	}
	if id == n.cfg.ID {
		if err := n.Transfer(ctx); err != nil {
			return fmt.Errorf("remove %s: %w", id, err)
		}
		return fmt.Errorf("remove %s: it has led until now: %w", id, &registry.NotLeaderError{Leader: n.LeaderID()})
	}
	err := n.call(ctx, func() raft.Future { return n.raft.RemoveServer(raft.ServerID(id), future.Index(), enqueueWait(ctx)) })
	if err != nil {
		return fmt.Errorf("remove %s: %w", id, err)
	}
	n.logger.Warn("member was removed", "member", id)
	return nil
}

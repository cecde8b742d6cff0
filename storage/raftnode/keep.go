package raftnode

import (
	"context"
	"time"

	"github.com/hashicorp/raft"
)

// promoteLag is how many entries a member without a vote may be behind to be
// given one, steadyTicks how many looks in a row must find it so.
const (
	promoteLag  = 64
	steadyTicks = 3
)

// keeper is the leader's memory between two looks at its members.
type keeper struct {
	*Node
	term     uint64                      // of which the rest is
	seen     map[raft.ServerID]time.Time // when a member was first there
	steady   map[raft.ServerID]int       // looks in a row that found a member caught up
	compared time.Time
	voters   int // at the last look
	// asked is when the others were asked last because nobody leads.
	asked time.Time
}

// keep tends the cluster as long as this node leads: it gives members that have
// caught up a vote, removes dead ones where that leaves enough, and holds the
// members' states against each other. It changes one thing at a look.
func (n *Node) keep() {
	defer close(n.group.joined)
	ctx, cancel := context.WithCancel(n.stream.ctx)
	defer cancel()
	go func() { // ends with keep
		select {
		case <-n.group.ended:
			cancel()
		case <-ctx.Done():
		}
	}()
	tick := time.NewTicker(n.cfg.Keep.every(n.cfg.heartbeat()))
	defer tick.Stop()
	k := &keeper{Node: n}
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			n.noteReached()
			k.look(ctx)
		}
	}
}

func (k *keeper) look(ctx context.Context) {
	servers, err := k.servers()
	if err != nil || !k.IsLeader() {
		k.term = 0
		k.missLeader(ctx)
		return
	}
	k.asked = time.Time{}
	if term := k.Term(); term != k.term {
		k.term, k.seen, k.steady, k.compared, k.voters = term, map[raft.ServerID]time.Time{}, map[raft.ServerID]int{}, time.Time{}, 0
	}
	k.weigh(servers)
	k.group.forget(servers)
	k.meet(servers)
	silent := 0
	for _, s := range servers {
		if k.silence(s.ID) > k.patience() {
			silent++
		}
	}
	k.group.count(func(s *GroupStats) { s.Silent = silent })
	if id := k.caughtUp(servers); id != "" {
		k.promote(servers, id)
	} else if id := k.removable(servers); id != "" {
		k.bury(id)
	}
	if now := time.Now(); now.Sub(k.compared) >= k.cfg.Keep.compareEvery() {
		k.compared = now
		k.compare(ctx)
	}
}

// missLeader counts who does not answer where nobody leads for longer than an
// election takes: there is no leader to count them. With one there is nothing to
// count here.
func (k *keeper) missLeader(ctx context.Context) {
	switch now := time.Now(); {
	case k.LeaderID() != "":
		k.asked = time.Time{}
		k.group.count(func(s *GroupStats) { s.Silent, s.Differing = 0, 0 })
	case now.Sub(k.lead.lostAt()) < k.patience(): // perhaps an election
		k.asked = time.Time{}
	case now.Sub(k.asked) >= k.cfg.Keep.compareEvery():
		k.asked = now
		silent := 0
		for _, m := range k.Members(ctx) {
			if m.Role == "" {
				silent++
			}
		}
		k.group.count(func(s *GroupStats) { s.Silent, s.Differing = silent, 0 })
	}
}

// weigh warns of a cluster of two voters, once until their number changes.
func (k *keeper) weigh(servers []raft.Server) {
	voters := 0
	for _, s := range servers {
		if s.Suffrage == raft.Voter {
			voters++
		}
	}
	if voters == 2 && k.voters != 2 {
		k.logger.Warn("the cluster has two voters: the loss of either stops it, which is worse than one alone; add a third (cluster join)")
	}
	k.voters = voters
}

// patience is after how long without an answer a member counts as silent.
func (n *Node) patience() time.Duration { return 8 * n.cfg.heartbeat() }

// meet notes who is new: a member that was added just now has not been silent
// since this node began to lead.
func (k *keeper) meet(servers []raft.Server) {
	seen := map[raft.ServerID]time.Time{}
	for _, s := range servers {
		if at, ok := k.seen[s.ID]; ok {
			seen[s.ID] = at
		} else {
			seen[s.ID] = time.Now()
		}
	}
	k.seen = seen
}

// silence is for how long a member has not answered, at most since this leader
// first saw it.
func (k *keeper) silence(id raft.ServerID) time.Duration {
	if id == raft.ServerID(k.cfg.ID) {
		return 0
	}
	last := k.group.contact(id).last
	if seen := k.seen[id]; last.Before(seen) {
		last = seen
	}
	return time.Since(last)
}

// caughtUp is a member that has earned a vote.
func (k *keeper) caughtUp(servers []raft.Server) raft.ServerID {
	last := k.raft.LastIndex()
	for _, s := range servers {
		c := k.group.contact(s.ID)
		if s.Suffrage != raft.Nonvoter || c.term != k.term || c.match+promoteLag < last || k.silence(s.ID) > k.patience() {
			delete(k.steady, s.ID)
			continue
		}
		if k.steady[s.ID]++; k.steady[s.ID] >= steadyTicks {
			delete(k.steady, s.ID)
			return s.ID
		}
	}
	return ""
}

func (k *keeper) promote(servers []raft.Server, id raft.ServerID) {
	for _, s := range servers {
		if s.ID != id {
			continue
		}
		if err := k.raft.AddVoter(id, s.Address, 0, ioTimeout).Error(); err != nil {
			k.logger.Warn("member was not given a vote", "member", id, "error", err)
			return
		}
		k.logger.Info("member has caught up and votes now", "member", id)
		k.group.count(func(c *GroupStats) { c.Promoted++ })
	}
}

// removable is a member that has been dead for long and that the cluster can do
// without: one that has no vote, or a voter beside whom enough are well.
func (k *keeper) removable(servers []raft.Server) raft.ServerID {
	after := k.cfg.Keep.deadAfter()
	if after < 0 {
		return ""
	}
	well, dead := 0, raft.ServerID("")
	for _, s := range servers {
		switch silence := k.silence(s.ID); {
		case s.Suffrage == raft.Voter && silence <= k.patience():
			well++
		case silence > after && s.Suffrage == raft.Nonvoter:
			return s.ID
		case silence > after:
			dead = s.ID
		}
	}
	if well < k.minVoters() {
		return ""
	}
	return dead
}

// minVoters is how many voters must be well for a dead one to be removed.
func (n *Node) minVoters() int {
	if n.cfg.Keep.MinVoters > 0 {
		return n.cfg.Keep.MinVoters
	}
	return len(n.cfg.cluster("").Servers)
}

func (k *keeper) bury(id raft.ServerID) {
	if err := k.raft.RemoveServer(id, 0, ioTimeout).Error(); err != nil {
		k.logger.Warn("dead member was not removed", "member", id, "error", err)
		return
	}
	k.logger.Warn("dead member was removed; add it again once it is back, with an empty folder", "member", id)
	k.group.count(func(c *GroupStats) { c.Removed++ })
}

// compare holds the members' states against this node's.
func (k *keeper) compare(ctx context.Context) {
	compared, differing := 0, 0
	for _, m := range k.Members(ctx) {
		if m.Applies > 0 {
			k.group.says(m.ID, m.Applies)
		}
		switch m.State {
		case StateSame:
			compared++
		case StateDiffers:
			compared++
			differing++
			k.logger.Error("this member's state differs from the leader's at the same entry: stop it, keep a copy of its folder, empty it and start it again",
				"member", m.ID, "index", m.AppliedIndex, "hash", m.Hash)
		}
	}
	k.group.count(func(s *GroupStats) { s.Compared, s.Differing = s.Compared+uint64(compared), differing })
}

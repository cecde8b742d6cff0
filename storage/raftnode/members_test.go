package raftnode

import (
	"bytes"
	"errors"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"github.com/oomfleet/oomfleet/proto"
	"github.com/oomfleet/oomfleet/storage/registry"
)

// hasty looks at its members all the time.
var hasty = Keep{Every: 20 * time.Millisecond, CompareEvery: 50 * time.Millisecond}

// joiner is a server that waits to be added to a cluster.
func joiner(t *testing.T, id string, servers []Server) (*Node, Server) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	own := Server{ID: id, RaftAddr: listener.Addr().String(), Join: true}
	n := open(t, Config{ID: id, DataDir: t.TempDir(), Listener: listener, Heartbeat: 2 * time.Second, Keep: hasty, Servers: append(append([]Server{}, servers...), own)})
	return n, Server{ID: own.ID, RaftAddr: own.RaftAddr}
}

// until asks all the time, and fails the test when that takes too long.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	ctx := patient(t)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("waited in vain: %s", what)
		}
	}
}

func suffrage(n *Node, id string) (raft.ServerSuffrage, bool) {
	servers, err := n.servers()
	if err != nil {
		return 0, false
	}
	for _, s := range servers {
		if string(s.ID) == id {
			return s.Suffrage, true
		}
	}
	return 0, false
}

func votes(n *Node, id string) bool {
	s, ok := suffrage(n, id)
	return ok && s == raft.Voter
}

func member(n *Node, id string) bool {
	_, ok := suffrage(n, id)
	return ok
}

// hastyThree is a cluster whose leader looks at its members all the time.
func hastyThree(t *testing.T) ([]*Node, []Server) {
	cfgs := configs(t, t.TempDir(), t.TempDir(), t.TempDir())
	for i := range cfgs {
		cfgs[i].Keep = hasty
	}
	return cluster(t, cfgs, nil), cfgs[0].Servers
}

// TestJoinWithoutAVoteFirst: a new member is added without a vote, is given one
// once it has caught up, and leads when the others hand over to it.
func TestJoinWithoutAVoteFirst(t *testing.T) {
	t.Parallel()
	nodes, servers := hastyThree(t)
	l := leader(t, nodes...)
	propose(t, l, sweep("a", 5))
	fourth, own := joiner(t, "n4", servers)
	for range 2 { // the second changes nothing
		if err := l.Add(patient(t), own); err != nil {
			t.Fatal(err)
		}
	}
	caughtUp(t, fourth, l)
	until(t, "the new member votes", func() bool { return votes(l, "n4") })
	until(t, "one promotion is counted", func() bool { return l.Stats().Group.Promoted == 1 })
	// The log has both steps.
	var steps []raft.ServerSuffrage
	last, err := l.store.log.LastIndex()
	if err != nil {
		t.Fatal(err)
	}
	for index := uint64(1); index <= last; index++ {
		var entry raft.Log
		if err := l.store.log.GetLog(index, &entry); err != nil {
			t.Fatal(err)
		}
		if entry.Type != raft.LogConfiguration {
			continue
		}
		for _, s := range raft.DecodeConfiguration(entry.Data).Servers {
			if s.ID == "n4" {
				steps = append(steps, s.Suffrage)
			}
		}
	}
	if len(steps) != 2 || steps[0] != raft.Nonvoter || steps[1] != raft.Voter {
		t.Errorf("the new member's suffrage went %v", steps)
	}
	// A server that is dead is refused before it costs anything.
	dead := Server{ID: "n5", RaftAddr: "127.0.0.1:1"}
	if err := l.Add(patient(t), dead); !errors.Is(err, ErrNotFit) || member(l, "n5") {
		t.Errorf("a dead server: %v", err)
	}
}

// TestStrangersAreNotAdded: what answers at the address must be the server that
// was named, empty, and at an address of its own.
func TestStrangersAreNotAdded(t *testing.T) {
	t.Parallel()
	nodes, servers := hastyThree(t)
	l := leader(t, nodes...)
	_, empty := joiner(t, "n4", servers)
	other := lone(t, t.TempDir()) // of a cluster of its own
	for name, s := range map[string]Server{
		"another id":      {ID: "n5", RaftAddr: empty.RaftAddr},
		"another cluster": {ID: "n1b", RaftAddr: other.Addr()},
		"no address":      {ID: "n5", RaftAddr: "somewhere"},
		"a taken address": {ID: "n5", RaftAddr: l.Addr()},
		"no id":           {RaftAddr: empty.RaftAddr},
	} {
		if err := l.Add(patient(t), s); !errors.Is(err, ErrNotFit) {
			t.Errorf("%s: %v", name, err)
		}
	}
	same := lone(t, t.TempDir()) // n1, of another cluster, under the name of a member
	if l.cfg.ID != "n1" {
		if err := l.Add(patient(t), Server{ID: "n9", RaftAddr: same.Addr()}); !errors.Is(err, ErrNotFit) {
			t.Errorf("a formed server: %v", err)
		}
	}
	f := others(nodes, l)[0]
	if err := f.Add(patient(t), empty); !errors.Is(err, registry.ErrNotLeader) {
		t.Errorf("a follower: %v", err)
	}
	if servers, err := l.servers(); err != nil || len(servers) != 3 {
		t.Errorf("the cluster has %v, %v", servers, err)
	}
}

// TestRemoveKeepsAMajority: members can be removed as long as most of the rest
// answer, the leader after it has handed over.
func TestRemoveKeepsAMajority(t *testing.T) {
	t.Parallel()
	nodes, _ := hastyThree(t)
	l := leader(t, nodes...)
	rest := others(nodes, l)
	if err := l.Remove(patient(t), "n7"); !errors.Is(err, ErrNotMember) {
		t.Errorf("no member: %v", err)
	}
	closeNode(t, rest[0])
	if err := l.Remove(patient(t), rest[1].cfg.ID); !errors.Is(err, ErrQuorum) {
		t.Errorf("the last one that answers: %v", err)
	}
	if err := l.Remove(patient(t), rest[0].cfg.ID); err != nil {
		t.Fatalf("the dead one: %v", err)
	}
	if err := l.Remove(patient(t), l.cfg.ID); !errors.Is(err, registry.ErrNotLeader) {
		t.Errorf("the leader itself: %v", err)
	}
	next := leader(t, rest[1])
	if next != rest[1] {
		t.Fatal("leadership was not handed over")
	}
	propose(t, next, sweep("a", 1))
}

// TestMovedMember: one member comes back at another address. The others' files
// still name the old one; Add tells them, also after they start again.
func TestMovedMember(t *testing.T) {
	t.Parallel()
	nodes, servers := hastyThree(t)
	l := leader(t, nodes...)
	gone := others(nodes, l)[0]
	closeNode(t, gone)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	moved := gone.cfg
	moved.Listener = listener
	moved.Servers = append([]Server{}, servers...)
	for i := range moved.Servers {
		if moved.Servers[i].ID == moved.ID {
			moved.Servers[i].RaftAddr = listener.Addr().String()
		}
	}
	back := open(t, moved)
	propose(t, l, sweep("a", 3))
	if err := l.Add(patient(t), Server{ID: moved.ID, RaftAddr: listener.Addr().String()}); err != nil {
		t.Fatal(err)
	}
	caughtUp(t, back, l)
	if !votes(l, moved.ID) {
		t.Error("the member that moved has lost its vote")
	}
	// One that starts again with the old file knows the new address.
	third := others(others(nodes, l), gone)[0]
	closeNode(t, third)
	again := third.cfg
	again.Listener = nil
	third = open(t, again)
	caughtUp(t, third, l)
	addr, err := third.ServerAddr(raft.ServerID(moved.ID))
	if err != nil || string(addr) != listener.Addr().String() {
		t.Errorf("after a restart the member is at %s, %v", addr, err)
	}
}

// TestDeadMemberIsReplaced: a dead voter stays as long as the cluster needs its
// place, and goes once another has taken it.
func TestDeadMemberIsReplaced(t *testing.T) {
	t.Parallel()
	cfgs := configs(t, t.TempDir(), t.TempDir(), t.TempDir())
	for i := range cfgs {
		cfgs[i].Keep = hasty
		cfgs[i].Keep.RemoveDeadAfter = 6 * time.Second // longer than a busy machine keeps a member silent
	}
	nodes := cluster(t, cfgs, nil)
	l := leader(t, nodes...)
	gone := others(nodes, l)[0]
	closeNode(t, gone)
	until(t, "the leader misses it", func() bool { return l.Stats().Group.Silent == 1 })
	servers, err := l.servers()
	if err != nil {
		t.Fatal(err)
	}
	// By a keeper to whom it has been dead for an hour.
	k := &keeper{Node: l, seen: map[raft.ServerID]time.Time{}}
	for _, s := range servers {
		k.seen[s.ID] = time.Now()
	}
	dead := raft.ServerID(gone.cfg.ID)
	k.seen[dead] = time.Now().Add(-time.Hour)
	l.group.mu.Lock()
	delete(l.group.contacts, dead)
	l.group.mu.Unlock()
	if id := k.removable(servers); id != "" {
		t.Fatalf("%s would be removed, and two are left of three", id)
	}
	// One that is added now has not been silent before it was there.
	k.meet(append(servers, raft.Server{ID: "n4", Suffrage: raft.Nonvoter}))
	if id := k.removable([]raft.Server{{ID: "n4", Suffrage: raft.Nonvoter}}); id != "" {
		t.Fatalf("%s would be removed before it could answer", id)
	}
	_, own := joiner(t, "n4", cfgs[0].Servers)
	until(t, "a new one is added", func() bool { return leader(t, others(nodes, gone)...).Add(patient(t), own) == nil })
	until(t, "the dead member is gone", func() bool { return !member(leader(t, others(nodes, gone)...), gone.cfg.ID) })
	if now := leader(t, others(nodes, gone)...); !votes(now, "n4") {
		t.Error("it went before the new one had a vote")
	}
	until(t, "nobody is missed", func() bool { return leader(t, others(nodes, gone)...).Stats().Group.Silent == 0 })
}

// TestSilentWithoutALeader: the one that is left of three leads nobody and follows
// nobody, and counts the silent ones all the same, until somebody leads.
func TestSilentWithoutALeader(t *testing.T) {
	t.Parallel()
	cfgs := configs(t, t.TempDir(), t.TempDir(), t.TempDir())
	for i := range cfgs {
		cfgs[i].Keep, cfgs[i].Heartbeat = hasty, 250*time.Millisecond
	}
	nodes := cluster(t, cfgs, nil)
	l := leader(t, nodes...)
	rest := others(nodes, l)
	left, back := rest[0], rest[1].cfg
	ready(t, l)
	closeNode(t, rest[1])
	closeNode(t, l)
	until(t, "both are missed", func() bool { s := left.Stats(); return s.LeaderID == "" && s.Group.Silent == 2 })
	back.Listener = nil
	again := open(t, back)
	until(t, "a leader misses the third alone", func() bool {
		a, b := left.Stats(), again.Stats()
		return a.LeaderID != "" && a.LeaderID == b.LeaderID && a.Group.Silent+b.Group.Silent == 1
	})
}

// TestStatesAreCompared: a node whose state is another one at the same entry is
// an alarm.
func TestStatesAreCompared(t *testing.T) {
	t.Parallel()
	nodes, _ := hastyThree(t)
	l := leader(t, nodes...)
	propose(t, l, sweep("a", 3))
	for _, n := range others(nodes, l) {
		caughtUp(t, n, l)
	}
	for _, m := range l.Members(patient(t)) {
		if m.State != StateSame || m.Role == "" || m.Hash != l.View().Hash() {
			t.Errorf("before: %+v", m)
		}
	}
	until(t, "states were compared", func() bool { return l.Stats().Group.Compared > 2 })
	if n := l.Stats().Group.Differing; n != 0 {
		t.Fatalf("%d members differ", n)
	}
	// What no command may do: one node's state changes beside the log.
	odd := others(nodes, l)[0]
	other := odd.View()
	other.Members = map[string]registry.Member{"ghost": {ID: "ghost", API: "http://ghost"}}
	packed, err := packSnapshot(other)
	if err != nil {
		t.Fatal(err)
	}
	if err := odd.fsm.restore(bytes.NewReader(packed)); err != nil {
		t.Fatal(err)
	}
	until(t, "the alarm", func() bool { return l.Stats().Group.Differing == 1 })
	differ := 0
	for _, m := range l.Members(patient(t)) {
		if m.State == StateDiffers {
			differ++
			if m.ID != odd.cfg.ID {
				t.Errorf("%s differs, want %s", m.ID, odd.cfg.ID)
			}
		}
	}
	if differ != 1 {
		t.Errorf("%d members differ", differ)
	}
}

// TestRecover: of three, two are lost for good. The third becomes a cluster of
// its own with all that was acknowledged, and takes new members.
func TestRecover(t *testing.T) {
	t.Parallel()
	cfgs := configs(t, t.TempDir(), t.TempDir(), t.TempDir())
	nodes := cluster(t, cfgs, nil)
	l := leader(t, nodes...)
	propose(t, l, sweep("a", 3))
	survivor := others(nodes, l)[0]
	caughtUp(t, survivor, l)
	if _, err := Recover(survivor.cfg); err == nil || !strings.Contains(err.Error(), "in use") {
		t.Errorf("recover a node that runs: %v", err)
	}
	for _, n := range nodes {
		closeNode(t, n)
	}
	cfg := survivor.cfg
	cfg.Listener = nil
	done, err := Recover(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if len(done.Was) != 3 || done.LastIndex == 0 {
		t.Errorf("recovered %+v", done)
	}
	t.Cleanup(func() { os.RemoveAll(done.Copy) })
	if s, err := openStore(done.Copy, newLogger(l.logger)); err != nil {
		t.Errorf("the copy: %v", err)
	} else if err := s.close(); err != nil {
		t.Error(err)
	}
	cfg.Keep = hasty
	alone := open(t, cfg)
	ready(t, leader(t, alone))
	if alone.View().Sweeps["a"] == nil || len(alone.Stats().Servers) != 1 {
		t.Fatalf("sweeps %v, members %v", alone.View().Sweeps, alone.Stats().Servers)
	}
	second, own := joiner(t, "n7", cfg.Servers)
	if err := alone.Add(patient(t), own); err != nil {
		t.Fatal(err)
	}
	caughtUp(t, second, alone)
	until(t, "the new member votes", func() bool { return votes(alone, "n7") })
	propose(t, alone, registry.Command{CancelSweep: &registry.CancelSweep{ID: proto.MatrixID("a")}})
	empty := cfg
	empty.DataDir = t.TempDir()
	if _, err := Recover(empty); err == nil {
		t.Error("an empty folder was recovered")
	}
	stranger := cfg
	stranger.ID, stranger.Servers = "n9", nil
	stranger.DataDir = done.Copy
	if _, err := Recover(stranger); err == nil || !strings.Contains(err.Error(), "no member") {
		t.Errorf("a stranger: %v", err)
	}
}

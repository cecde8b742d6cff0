package raftnode

import (
	"context"
	"errors"
	"os"
	"testing"

	"github.com/hashicorp/raft"
	"github.com/oomfleet/oomfleet/storage/registry"
)

func TestAnotherLeaderGoesOn(t *testing.T) {
	t.Parallel()
	nodes := three(t)
	first := leader(t, nodes...)
	propose(t, first, sweep("a", 2))
	_, before := first.Leadership()
	closeNode(t, first)
	<-before
	rest := others(nodes, first)
	second := leader(t, rest...)
	ready(t, second)
	if second.View().Sweeps["a"] == nil {
		t.Fatal("the new leader does not know what the old one acked")
	}
	propose(t, second, sweep("b", 2))
	for _, n := range others(rest, second) {
		caughtUp(t, n, second)
	}
	again := first.cfg
	again.Listener = nil // listen on the address that the others know
	back := open(t, again)
	caughtUp(t, back, second)
}

func TestFollowerNamesTheLeader(t *testing.T) {
	t.Parallel()
	nodes := three(t)
	l := leader(t, nodes...)
	for _, n := range others(nodes, l) {
		leader(t, n, l) // n knows who leads
		_, err := n.Propose(patient(t), sweep("a", 1))
		var not *registry.NotLeaderError
		if !errors.Is(err, registry.ErrNotLeader) || !errors.As(err, &not) || not.Leader != l.cfg.ID {
			t.Fatalf("got %v, want the leader %s", err, l.cfg.ID)
		}
		if err := n.VerifyLeader(patient(t)); !errors.Is(err, registry.ErrNotLeader) {
			t.Fatalf("verify: %v", err)
		}
	}
	if err := l.VerifyLeader(patient(t)); err != nil {
		t.Fatal(err)
	}
}

func TestTransfer(t *testing.T) {
	t.Parallel()
	nodes := three(t)
	l := leader(t, nodes...)
	term := l.Term()
	_, changed := l.Leadership()
	if err := l.Transfer(patient(t)); err != nil {
		t.Fatal(err)
	}
	<-changed
	next := leader(t, others(nodes, l)...)
	if next.Term() <= term {
		t.Fatalf("%s leads in term %d, %s did in %d", next.cfg.ID, next.Term(), l.cfg.ID, term)
	}
	if err := lone(t, t.TempDir()).Transfer(patient(t)); err == nil {
		t.Fatal("a cluster of one handed leadership to somebody")
	}
}

func TestWithoutAMajorityNothingIsAcked(t *testing.T) {
	t.Parallel()
	nodes := three(t)
	l := leader(t, nodes...)
	ready(t, l)
	for _, n := range others(nodes, l) {
		closeNode(t, n)
	}
	_, err := l.Propose(patient(t), sweep("a", 1))
	if !errors.Is(err, registry.ErrUncertain) && !errors.Is(err, registry.ErrNotLeader) {
		t.Fatalf("got %v", err)
	}
	if l.View().Sweeps["a"] != nil {
		t.Fatal("applied without a majority")
	}
}

// held is a future that comes when it is closed.
type held chan struct{}

func (h held) Error() error {
	<-h
	return nil
}

func TestContextEndsAWait(t *testing.T) {
	t.Parallel()
	n := lone(t, t.TempDir())
	gone, cancel := context.WithCancelCause(t.Context())
	because := errors.New("the caller has gone")
	cancel(because)
	if _, err := n.Propose(gone, sweep("a", 1)); !errors.Is(err, because) || errors.Is(err, registry.ErrUncertain) {
		t.Errorf("before anything was written: %v", err)
	}
	future := make(held)
	err := n.call(gone, func() raft.Future { return future })
	if !errors.Is(err, because) || !errors.Is(err, registry.ErrUncertain) {
		t.Errorf("on the way: %v", err)
	}
	close(future)
}

func TestAllAddressesChange(t *testing.T) {
	t.Parallel()
	dirs := []string{t.TempDir(), t.TempDir(), t.TempDir()}
	nodes := cluster(t, configs(t, dirs...), nil)
	propose(t, leader(t, nodes...), sweep("a", 2))
	for _, n := range nodes {
		closeNode(t, n)
	}
	moved := cluster(t, configs(t, dirs...), nil)
	l := leader(t, moved...)
	if reply := propose(t, l, sweep("a", 2)); reply.Known != 2 {
		t.Fatalf("%+v", reply)
	}
	for _, n := range others(moved, l) {
		caughtUp(t, n, l)
	}
}

func TestEmptiedNodeGetsASnapshot(t *testing.T) {
	t.Parallel()
	nodes := three(t)
	l := leader(t, nodes...)
	away := others(nodes, l)[0]
	closeNode(t, away)
	if err := os.RemoveAll(away.cfg.DataDir); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"a", "b", "c", "d"} { // more than one segment of the log holds
		cmd := sweep(id, 5)
		cmd.AddSweep.Source = noise(segmentSize * 2 / 5)
		propose(t, l, cmd)
	}
	// With hardly any log left behind whoever leads, only a snapshot can help.
	for _, n := range others(nodes, away) {
		caughtUp(t, n, l)
		reload := n.raft.ReloadableConfig()
		reload.TrailingLogs = 1
		if err := errors.Join(n.raft.ReloadConfig(reload), n.Snapshot(patient(t))); err != nil {
			t.Fatal(err)
		}
		if first, err := n.store.log.FirstIndex(); err != nil || first < 3 {
			t.Fatalf("the log of %s still begins at %d, %v", n.cfg.ID, first, err)
		}
	}
	again := away.cfg
	again.Listener = nil
	back := open(t, again)
	caughtUp(t, back, l)
	newestSnapshot(t, back.cfg.DataDir) // it cannot have come otherwise
	propose(t, leader(t, l, back, others(others(nodes, l), away)[0]), sweep("e", 1))
}

func TestChangedWaitsForThePosition(t *testing.T) {
	t.Parallel()
	n := lone(t, t.TempDir())
	applied := propose(t, n, sweep("a", 1)).Index
	<-n.Changed(applied - 1)
	next, far := n.Changed(applied), n.Changed(applied+100)
	select {
	case <-next:
		t.Fatal("closed before anything changed")
	default:
	}
	propose(t, n, sweep("b", 1))
	<-next
	select {
	case <-far:
		t.Fatal("closed before the position was reached")
	default:
	}
}

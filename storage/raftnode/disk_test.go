package raftnode

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/hashicorp/raft"
	"github.com/oomfleet/oomfleet/storage/registry"
)

// TestTermThatCannotBeWritten: raft would panic where it cannot write its term.
// Here the node says that it cannot go on, closes well, and the others go on.
func TestTermThatCannotBeWritten(t *testing.T) {
	t.Parallel()
	nodes := three(t)
	l := leader(t, nodes...)
	propose(t, l, sweep("a", 1))
	rest := others(nodes, l)
	bad, good := rest[0], rest[1]
	if err := bad.Wait(cancelled(t)); err != nil {
		t.Fatalf("a node that works says: %v", err)
	}
	if err := bad.store.meta.Close(); err != nil { // terms are written there
		t.Fatal(err)
	}
	// It becomes a candidate, in a new term.
	l.raft.LeadershipTransferToServer(raft.ServerID(bad.cfg.ID), raft.ServerAddress(bad.Addr()))
	err := bad.Wait(patient(t))
	if err == nil || !strings.Contains(err.Error(), "free disk space there and start again, nothing is lost") {
		t.Fatalf("the node does not say that it cannot go on: %v", err)
	}
	bad.Close() // its store was closed above, which it may say
	next := leader(t, good, l)
	for _, err := next.Propose(patient(t), sweep("b", 1)); err != nil; _, err = next.Propose(patient(t), sweep("b", 1)) {
		if !errors.Is(err, registry.ErrNotLeader) && !errors.Is(err, registry.ErrUncertain) {
			t.Fatal(err)
		}
		next = leader(t, good, l) // the handover was broken off, and may take another vote
	}
	again := bad.cfg
	again.Listener = nil
	caughtUp(t, open(t, again), next)
}

// TestLogThatCannotBeWritten: the log's writer cannot go on after a failed
// write, so the node cannot either.
func TestLogThatCannotBeWritten(t *testing.T) {
	t.Parallel()
	n := lone(t, t.TempDir())
	if err := n.store.log.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := n.Propose(patient(t), sweep("a", 1)); err == nil {
		t.Fatal("a command was committed that cannot be in the log")
	}
	if err := n.Wait(patient(t)); err == nil {
		t.Fatal("the node does not say that it cannot go on")
	}
}

func cancelled(t *testing.T) context.Context {
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("over"))
	return ctx
}

package raftnode

import (
	"context"
	"errors"
	"os"
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

// TestNothingIsWrittenAfterAFailure: a node that has said that it cannot go on
// acknowledges nothing more, even where the disk would take it, until it is opened
// again.
func TestNothingIsWrittenAfterAFailure(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	n := lone(t, dir)
	propose(t, n, sweep("a", 1))
	full := errors.New("no space left")
	n.disk.breaks(full)
	if _, err := n.Propose(patient(t), sweep("b", 1)); !errors.Is(err, full) || n.View().Sweeps["b"] != nil {
		t.Errorf("after the log could not be written: %v", err)
	}
	closeNode(t, n)
	n = lone(t, dir)
	propose(t, n, sweep("c", 1))
	if v := n.View(); v.Sweeps["a"] == nil || v.Sweeps["b"] != nil || v.Sweeps["c"] == nil {
		t.Errorf("opened again it has %d sweeps", len(v.Sweeps))
	}
}

// TestUnwrittenIsSeen: what a node goes on without, though it could not write it,
// is known to whoever looks at the cluster, until it could.
func TestUnwrittenIsSeen(t *testing.T) {
	t.Parallel()
	cfgs := configs(t, t.TempDir(), t.TempDir(), t.TempDir())
	for i := range cfgs {
		cfgs[i].Keep = hasty
	}
	nodes := cluster(t, cfgs, nil)
	l := leader(t, nodes...)
	rest := others(nodes, l)
	bad, other := rest[0], rest[1]
	trouble := func() string {
		for _, m := range other.Members(patient(t)) {
			if m.ID == bad.cfg.ID {
				return m.Trouble
			}
		}
		return "it is no member"
	}
	propose(t, l, sweep("a", 1))
	until(t, "it is well, and something is noted", func() bool { return bad.store.reached() > 0 && trouble() == "" })
	half := bad.store.reachedFile() + ".half" // a folder in the place of a file is refused to everybody
	if err := os.Mkdir(half, 0o750); err != nil {
		t.Fatal(err)
	}
	propose(t, l, sweep("b", 1))
	until(t, "how far its log has come cannot be noted", func() bool { return strings.Contains(trouble(), "how far its log has come: ") })
	caughtUp(t, bad, l) // it goes on all the same
	if bad.store.reached() == 0 {
		t.Error("what was noted before is gone")
	}
	full := &fullSink{}
	if snapshot, err := bad.fsm.Snapshot(); err != nil || snapshot.Persist(full) == nil {
		t.Error("a snapshot was written where there is no room", err)
	}
	if text := trouble(); !strings.Contains(text, "free disk space there") || !strings.Contains(text, "(a snapshot: ") || text != bad.Stats().Trouble {
		t.Errorf("%s", text)
	}
	if err := errors.Join(os.Remove(half), bad.Snapshot(patient(t))); err != nil {
		t.Fatal(err)
	}
	until(t, "it is well again, with no entry more", func() bool { return trouble() == "" })
}

// fullSink is a snapshot for which there is no room.
type fullSink struct{ raft.SnapshotSink }

func (*fullSink) Write([]byte) (int, error) { return 0, errors.New("no space left") }

func cancelled(t *testing.T) context.Context {
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("over"))
	return ctx
}

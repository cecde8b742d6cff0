package raftnode

import (
	"errors"
	"strings"
	"testing"

	"github.com/hashicorp/raft"
	"github.com/oomfleet/oomfleet/storage/registry"
)

// TestVersionsAreTheMembersOwn: a leader of a newer build writes what its older
// followers read, and knows of each member what that member says itself.
func TestVersionsAreTheMembersOwn(t *testing.T) {
	t.Parallel()
	cfgs := configs(t, t.TempDir(), t.TempDir(), t.TempDir())
	for i := range cfgs {
		cfgs[i].Keep = hasty
		cfgs[i].build = registry.CommandVersion + i
	}
	nodes := cluster(t, cfgs, nil)
	l := leader(t, nodes...)
	propose(t, l, registry.Command{SetMember: &registry.SetMember{Member: registry.Member{ID: "n3", API: "http://n3:1", CommandVersion: registry.CommandVersion + 2}}})
	until(t, "the leader has asked everybody", func() bool { return len(leader(t, nodes...).Applies()) == 3 })
	for i, n := range nodes {
		if has := leader(t, nodes...).Applies()[n.cfg.ID]; has != registry.CommandVersion+i {
			t.Errorf("%s is said to apply %d", n.cfg.ID, has)
		}
	}
	for _, m := range l.Members(patient(t)) {
		if want := registry.CommandVersion + int(m.ID[1]-'1'); m.Applies != want {
			t.Errorf("%s applies %d, want %d", m.ID, m.Applies, want)
		}
	}
	for _, n := range others(nodes, l) {
		caughtUp(t, n, l)
	}
}

// TestEntryOfANewerBuildEndsTheNode: with a sentence, and not with a panic of one
// of raft's goroutines; the entry that it cannot read is then still in its log.
func TestEntryOfANewerBuildEndsTheNode(t *testing.T) {
	t.Parallel()
	nodes := three(t)
	l := leader(t, nodes...)
	propose(t, l, sweep("a", 1))
	newer := "\x00" + `{"v":99,"cancel_sweep":{"id":"a"}}`
	l.raft.Apply([]byte(newer), ioTimeout) // every node here is too old for it
	for _, n := range nodes {
		err := n.Wait(patient(t))
		if err == nil || !strings.Contains(err.Error(), "start the build that wrote it or a newer one, nothing is lost") {
			t.Errorf("%s: %v", n.cfg.ID, err)
		}
		if n.View().Sweeps["a"] == nil {
			t.Errorf("%s lost what came before the entry", n.cfg.ID)
		}
	}
	for _, n := range nodes {
		closeNode(t, n)
	}
	again := nodes[0].cfg
	again.Listener = nil
	s, err := openStore(again.DataDir, newLogger(nodes[0].logger))
	if err != nil {
		t.Fatal(err)
	}
	last, err := s.log.LastIndex()
	var entry raft.Log
	for ; err == nil && last > 0 && string(entry.Data) != newer; last-- {
		err = s.log.GetLog(last, &entry)
	}
	if err = errors.Join(err, s.close()); err != nil || string(entry.Data) != newer {
		t.Errorf("the log ends with %q, %v", entry.Data, err)
	}
}

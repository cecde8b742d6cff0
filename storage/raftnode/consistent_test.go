package raftnode

import (
	"bytes"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/oomfleet/oomfleet/proto"
	"github.com/oomfleet/oomfleet/storage/registry"
)

func TestConsistentOnTheLeaderOnly(t *testing.T) {
	t.Parallel()
	nodes := three(t)
	l := leader(t, nodes...)
	propose(t, l, sweep("a", 1))
	for range 2 { // the first costs a barrier, the second none
		if err := l.Consistent(patient(t)); err != nil {
			t.Fatal(err)
		}
		if age, ready := l.Standing(); age != 0 || !ready {
			t.Errorf("the leader is %s old, ready %v", age, ready)
		}
	}
	for _, n := range others(nodes, l) {
		caughtUp(t, n, l)
		if err := n.Consistent(patient(t)); !errors.Is(err, registry.ErrNotLeader) {
			t.Errorf("a follower: %v", err)
		}
		if age, ready := n.Standing(); age > 10*time.Second || !ready {
			t.Errorf("a follower that has all is %s old, ready %v", age, ready)
		}
	}
	for _, n := range others(nodes, l) {
		closeNode(t, n)
	}
	if err := l.Consistent(patient(t)); err == nil {
		t.Error("a leader without a majority says that its view is of now")
	}
	_, changed := l.Leadership()
	for l.LeaderID() != "" {
		<-changed
		_, changed = l.Leadership()
	}
	young, ready := l.Standing()
	if young == 0 || ready {
		t.Errorf("a node without a leader is %s old, ready %v", young, ready)
	}
	if older, _ := l.Standing(); older <= young {
		t.Errorf("its age went from %s to %s", young, older)
	}
}

// TestNotReadyBeforeTheLogIsApplied: a node that starts again leads before it has
// applied its log, and says so.
func TestNotReadyBeforeTheLogIsApplied(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	n := lone(t, dir)
	for i := range 300 {
		propose(t, n, sweep(fmt.Sprintf("s-%d", i), 3))
	}
	want := n.View().Content()
	closeNode(t, n)
	n = open(t, Config{ID: "n1", DataDir: dir})
	if _, ready := n.Standing(); ready {
		t.Error("ready at its start")
	}
	leader(t, n)
	if _, ready := n.Standing(); ready {
		t.Error("ready before anybody has seen that all is applied")
	}
	if err := n.Consistent(patient(t)); err != nil {
		t.Fatal(err)
	}
	if _, ready := n.Standing(); !ready || n.View().Content() != want {
		t.Errorf("ready %v, %d sweeps", ready, len(n.View().Sweeps))
	}
}

func TestRestoreReachesEveryNode(t *testing.T) {
	t.Parallel()
	from := lone(t, t.TempDir())
	for i := range 20 {
		propose(t, from, sweep(fmt.Sprintf("s-%d", i), 2))
	}
	var file bytes.Buffer
	if err := from.View().WriteBackup(&file); err != nil {
		t.Fatal(err)
	}
	nodes := three(t)
	l := leader(t, nodes...)
	propose(t, l, registry.Command{SetMember: &registry.SetMember{Member: registry.Member{ID: "n1", API: "http://here:1"}}})
	if _, err := others(nodes, l)[0].Restore(patient(t), bytes.NewReader(file.Bytes()), false); !errors.Is(err, registry.ErrNotLeader) {
		t.Errorf("on a follower: %v", err)
	}
	waiting := l.Changed(l.View().AppliedIndex)
	got, err := l.Restore(patient(t), bytes.NewReader(file.Bytes()), false)
	if err != nil {
		t.Fatal(err)
	}
	<-waiting
	if want := from.View().Content(); got.Content != want || got.Sweeps != 20 || got.Cells != 2 || got.BackupIndex != from.View().AppliedIndex {
		t.Errorf("restored %+v, want content %s", got, want)
	}
	for _, n := range nodes {
		caughtUp(t, n, l)
		if v := n.View(); v.Content() != got.Content || v.Restored != got.Index || v.Members["n1"].API == "" {
			t.Errorf("%s holds %s, restored at %d, members %v", n.cfg.ID, v.Content(), v.Restored, v.Members)
		}
	}
	if reply := propose(t, l, sweep("s-3", 2)); reply.Known != 2 || reply.Index <= got.Index {
		t.Errorf("afterwards: %+v", reply)
	}
	// What holds something is replaced by force alone.
	if _, err := l.Restore(patient(t), bytes.NewReader(file.Bytes()), false); !errors.Is(err, registry.ErrNotEmpty) {
		t.Errorf("not empty: %v", err)
	}
	propose(t, l, sweep("lost", 1))
	again, err := l.Restore(patient(t), bytes.NewReader(file.Bytes()), true)
	if err != nil || again.Content != got.Content || again.Index <= got.Index {
		t.Fatalf("by force: %+v, %v", again, err)
	}
	// It holds through a restart of everything.
	var dirs []Config
	for _, n := range nodes {
		closeNode(t, n)
		cfg := n.cfg
		cfg.Listener = nil
		dirs = append(dirs, cfg)
	}
	nodes = cluster(t, dirs, nil)
	l = leader(t, nodes...)
	ready(t, l)
	for _, n := range nodes {
		caughtUp(t, n, l)
		if n.View().Content() != got.Content {
			t.Errorf("%s came back with something else", n.cfg.ID)
		}
	}
}

func TestDamagedBackupChangesNothing(t *testing.T) {
	t.Parallel()
	n := lone(t, t.TempDir())
	var file bytes.Buffer
	if err := n.View().WriteBackup(&file); err != nil {
		t.Fatal(err)
	}
	before := n.View().Hash()
	if _, err := n.Restore(patient(t), bytes.NewReader(file.Bytes()[:file.Len()-5]), true); !errors.Is(err, registry.ErrSnapshotDamaged) {
		t.Errorf("cut: %v", err)
	}
	newer := bytes.Replace(file.Bytes(), []byte(`"version":1`), []byte(`"version":2`), 1)
	if _, err := n.Restore(patient(t), bytes.NewReader(newer), true); !errors.Is(err, registry.ErrSnapshotVersion) {
		t.Errorf("newer: %v", err)
	}
	torn := n.View()
	torn.Sweeps = map[proto.MatrixID]*registry.Sweep{"s": {ID: "s", Origin: proto.OriginSimulated, Cells: []proto.CellID{"c"}}}
	var whole bytes.Buffer
	if err := torn.WriteBackup(&whole); err != nil {
		t.Fatal(err)
	}
	if _, err := n.Restore(patient(t), &whole, true); !errors.Is(err, registry.ErrSnapshotDamaged) {
		t.Errorf("without a record: %v", err)
	}
	if n.View().Hash() != before {
		t.Error("the state is another one")
	}
	// An empty backup into an empty registry, and the lone node starts again.
	if _, err := n.Restore(patient(t), bytes.NewReader(file.Bytes()), false); err != nil {
		t.Fatal(err)
	}
	closeNode(t, n)
	cfg := n.cfg
	again := open(t, cfg)
	ready(t, leader(t, again))
}

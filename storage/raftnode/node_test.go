package raftnode

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	"github.com/oomfleet/oomfleet/storage/registry"
	"github.com/prometheus/client_golang/prometheus"
)

func TestRestartKeepsTheState(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	n := lone(t, dir)
	reply := propose(t, n, sweep("s", 3))
	if reply.New != 3 || reply.Index == 0 || n.View().AppliedIndex != reply.Index {
		t.Fatalf("%+v at %d", reply, n.View().AppliedIndex)
	}
	if err := n.Snapshot(patient(t)); err != nil {
		t.Fatal(err)
	}
	propose(t, n, sweep("after-the-snapshot", 4))
	want := n.View().Hash()
	closeNode(t, n)
	again := lone(t, dir)
	if again.View().Hash() != want {
		t.Fatal("the state is not what it was")
	}
	if propose(t, again, sweep("s", 3)).Known != 3 {
		t.Fatal("the sweep is not known any more")
	}
}

func TestCallsAfterClose(t *testing.T) {
	t.Parallel()
	n := lone(t, t.TempDir())
	closeNode(t, n)
	closeNode(t, n)
	if _, err := n.Propose(patient(t), sweep("s", 1)); !errors.Is(err, registry.ErrClosed) {
		t.Errorf("propose: %v", err)
	}
	if err := n.Barrier(patient(t)); !errors.Is(err, registry.ErrClosed) {
		t.Errorf("barrier: %v", err)
	}
	if err := n.Snapshot(patient(t)); !errors.Is(err, registry.ErrClosed) {
		t.Errorf("snapshot: %v", err)
	}
	n.Stats() // does not hang
}

func TestProposalsDuringClose(t *testing.T) {
	t.Parallel()
	n := lone(t, t.TempDir())
	ended := make(chan error)
	for range 4 {
		go func() {
			for {
				if _, err := n.Propose(context.Background(), sweep("s", 1)); err != nil {
					ended <- err
					return
				}
			}
		}()
	}
	<-n.Changed(n.View().AppliedIndex + 20)
	closeNode(t, n)
	for range 4 {
		if err := <-ended; !errors.Is(err, registry.ErrClosed) {
			t.Errorf("a proposal ended with %v", err)
		}
	}
}

func TestOpenAndCloseManyTimes(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for range 20 {
		n, err := Open(Config{ID: "n1", DataDir: dir})
		if err != nil {
			t.Fatal(err)
		}
		closeNode(t, n)
	}
	ready(t, lone(t, dir))
}

func TestFolderInUseIsRefused(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	lone(t, dir)
	if _, err := Open(Config{ID: "n1", DataDir: dir}); err == nil || !strings.Contains(err.Error(), "in use by another process") {
		t.Fatalf("got %v", err)
	}
}

func TestProposeTooLarge(t *testing.T) {
	t.Parallel()
	n := lone(t, t.TempDir())
	cmd := sweep("s", 1)
	cmd.AddSweep.Source = noise(2 * MaxEntry)
	if _, err := n.Propose(patient(t), cmd); !errors.Is(err, registry.ErrTooLarge) {
		t.Fatalf("got %v", err)
	}
	propose(t, n, sweep("s", 1))
}

func TestTenThousandCellsFit(t *testing.T) {
	t.Parallel()
	packer, err := newPacker()
	if err != nil {
		t.Fatal(err)
	}
	cmd := sweep("large", 10_000)
	cmd.Version = registry.CommandVersion
	entry, err := packer.pack(cmd)
	if err != nil {
		t.Fatal(err)
	}
	if len(entry) > raft.SuggestedMaxDataSize {
		t.Fatalf("10,000 cells take %d bytes in the log", len(entry))
	}
	nodes := three(t)
	l := leader(t, nodes...)
	if reply := propose(t, l, cmd); reply.New != 10_000 {
		t.Fatalf("%+v", reply)
	}
	for _, n := range others(nodes, l) {
		caughtUp(t, n, l)
	}
}

func TestEntriesThatCannotBeRead(t *testing.T) {
	t.Parallel()
	packer, err := newPacker()
	if err != nil {
		t.Fatal(err)
	}
	for name, entry := range map[string]string{
		"empty":         "",
		"other packing": "\x07{}",
		"not zstd":      "\x01{}",
		"not a command": "\x00{}",
		"newer command": "\x00" + `{"v":99,"cancel_sweep":{"id":"a"}}`,
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := packer.unpack([]byte(entry)); err == nil {
				t.Fatal("no error")
			}
			defer func() {
				if recover() == nil {
					t.Fatal("the machine went on without the entry")
				}
			}()
			stop := func(why error) { panic(why) }
			(&fsm{machine: registry.New(), packer: packer, stop: stop}).Apply(&raft.Log{Index: 1, Data: []byte(entry)})
		})
	}
}

func TestConfigurationsReachNoMachine(t *testing.T) {
	t.Parallel()
	f := &fsm{machine: registry.New()}
	if got := f.Apply(&raft.Log{Index: 1, Type: raft.LogConfiguration}); got != nil || f.machine.View().AppliedIndex != 0 {
		t.Fatalf("got %v", got)
	}
}

func TestSecondBootstrapIsHarmless(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	n := lone(t, dir)
	propose(t, n, sweep("s", 1))
	closeNode(t, n)
	listed := configs(t, dir, t.TempDir(), t.TempDir())
	n = open(t, listed[0]) // as one of three: the cluster stays one of one
	ready(t, leader(t, n))
	if got := n.Stats().Servers; len(got) != 1 || n.View().Sweeps["s"] == nil {
		t.Fatalf("servers %v", got)
	}
	for _, cfg := range listed[1:] {
		if err := cfg.Listener.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestBootstrapIsFinishedAfterACrash(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s, err := openStore(dir, hclog.NewNullLogger())
	if err != nil {
		t.Fatal(err)
	}
	// The first of the two writes of raft.BootstrapCluster.
	if err := errors.Join(s.log.SetUint64([]byte("CurrentTerm"), 1), s.close()); err != nil {
		t.Fatal(err)
	}
	propose(t, lone(t, dir), sweep("s", 1))
}

func TestMetrics(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewRegistry()
	for range 2 { // a closed node leaves nothing behind in the registry
		n := open(t, Config{ID: "n1", DataDir: t.TempDir(), Registerer: reg})
		ready(t, leader(t, n))
		propose(t, n, sweep("s", 1))
		families, err := reg.Gather()
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]float64{}
		for _, f := range families {
			got[f.GetName()] = f.GetMetric()[0].GetGauge().GetValue() + float64(f.GetMetric()[0].GetHistogram().GetSampleCount())
		}
		if got["oomfleet_raft_leader"] != 1 || got["oomfleet_raft_propose_seconds"] != 1 || got["oomfleet_raft_log_bytes"] == 0 ||
			got["oomfleet_raft_applied_index"] != float64(n.View().AppliedIndex) {
			t.Fatalf("%v", got)
		}
		closeNode(t, n)
	}
}

func TestConfigValidate(t *testing.T) {
	t.Parallel()
	err := Config{Heartbeat: time.Millisecond, Servers: []Server{{ID: "a", RaftAddr: "x:1"}, {ID: "a", RaftAddr: "no port"}}}.Validate()
	for _, want := range []string{"ID is missing", "DataDir is missing", "below 50ms", "there twice", "no port", "do not list this node"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("no %q in %v", want, err)
		}
	}
	if _, err := Open(Config{}); err == nil {
		t.Error("opened without a folder")
	}
	if _, err := Open(Config{ID: "a", DataDir: filepath.Join(t.TempDir(), "d"), RaftAddr: "256.0.0.1:1"}); err == nil {
		t.Error("listened nowhere")
	}
}

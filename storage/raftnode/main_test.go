package raftnode

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/oomfleet/oomfleet/proto"
	"github.com/oomfleet/oomfleet/storage/registry"
	"go.uber.org/goleak"
)

// childDir makes the test binary a node in that folder that proposes until it
// is killed; see TestKilledProcessLosesNothingAcked.
const childDir = "OOMFLEET_RAFTNODE_CHILD"

func TestMain(m *testing.M) {
	if dir := os.Getenv(childDir); dir != "" {
		fmt.Fprintln(os.Stderr, proposeUntilKilled(dir))
		os.Exit(1)
	}
	goleak.VerifyTestMain(m)
}

// patience ends a test that waits for something that does not come.
const patience = 3 * time.Minute

func patient(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeoutCause(t.Context(), patience, errors.New("the test has waited long enough"))
	t.Cleanup(cancel)
	return ctx
}

// open opens a node that is closed at the end of the test, if not before.
func open(t *testing.T, cfg Config) *Node {
	t.Helper()
	n, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeNode(t, n) })
	return n
}

func closeNode(t *testing.T, n *Node) {
	t.Helper()
	if err := n.Close(); err != nil {
		t.Fatalf("close %s: %v", n.cfg.ID, err)
	}
}

// lone opens a cluster of one and waits until it leads and has its state.
func lone(t *testing.T, dir string) *Node {
	t.Helper()
	n := open(t, Config{ID: "n1", DataDir: dir})
	ready(t, leader(t, n))
	return n
}

func ready(t *testing.T, n *Node) {
	t.Helper()
	if err := n.Barrier(patient(t)); err != nil {
		t.Fatal(err)
	}
}

// configs are the configurations of a cluster on loopback ports that are open
// already, so that everybody knows everybody's address.
func configs(t *testing.T, dirs ...string) []Config {
	t.Helper()
	var servers []Server
	var out []Config
	for i, dir := range dirs {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		servers = append(servers, Server{ID: fmt.Sprintf("n%d", i+1), RaftAddr: listener.Addr().String()})
		// Slower than the default: these tests share a machine, and a leader
		// that steps down because it was not scheduled is not their subject.
		out = append(out, Config{ID: servers[i].ID, DataDir: dir, Listener: listener, Heartbeat: 2 * time.Second})
	}
	for i := range out {
		out[i].Servers = servers
	}
	return out
}

func cluster(t *testing.T, cfgs []Config, secure *tls.Config) []*Node {
	t.Helper()
	var nodes []*Node
	for _, cfg := range cfgs {
		cfg.TLS = secure
		nodes = append(nodes, open(t, cfg))
	}
	return nodes
}

func three(t *testing.T) []*Node {
	return cluster(t, configs(t, t.TempDir(), t.TempDir(), t.TempDir()), nil)
}

// leader waits until one of nodes leads, as the first of them knows it.
func leader(t *testing.T, nodes ...*Node) *Node {
	t.Helper()
	ctx := patient(t)
	for {
		now, changed := nodes[0].Leadership()
		for _, n := range nodes {
			if n.cfg.ID == now.LeaderID && n.IsLeader() {
				return n
			}
		}
		select {
		case <-changed:
		case <-ctx.Done():
			t.Fatalf("no leader: %v", context.Cause(ctx))
		}
	}
}

// others are nodes without n.
func others(nodes []*Node, n *Node) []*Node {
	var out []*Node
	for _, o := range nodes {
		if o != n {
			out = append(out, o)
		}
	}
	return out
}

// caughtUp waits until n has applied all that reference has.
func caughtUp(t *testing.T, n, reference *Node) {
	t.Helper()
	if want := reference.View().AppliedIndex; want > 0 {
		select {
		case <-n.Changed(want - 1):
		case <-patient(t).Done():
			t.Fatalf("%s is at %d, want %d", n.cfg.ID, n.View().AppliedIndex, want)
		}
	}
	if n.View().Hash() != reference.View().Hash() {
		t.Fatalf("%s and %s have different states", n.cfg.ID, reference.cfg.ID)
	}
}

func sweep(id string, cells int) registry.Command {
	add := &registry.AddSweep{ID: proto.MatrixID(id), Name: id, Origin: proto.OriginMeasured,
		Search: proto.Search{Strategy: proto.StrategyPredict, Certify: proto.CertifyEdges}}
	for i := range cells {
		add.Cells = append(add.Cells, proto.Cell{
			Workload: proto.Workload{Name: "esmfold", Params: map[string]string{"model": "3B", "weights": "random", "stem": "bfloat16", "trunk": "float32"}},
			GPU:      "NVIDIA H200", Driver: "580.159.04", SeqLen: i + 1, Batch: 1, ChunkSize: 64,
			Env:       map[string]string{"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"},
			QuotaKind: proto.QuotaAllocator, Step: proto.DefaultStep})
	}
	return registry.Command{AddSweep: add}
}

func propose(t *testing.T, n *Node, cmd registry.Command) registry.Reply {
	t.Helper()
	reply, err := n.Propose(patient(t), cmd)
	if err != nil {
		t.Fatal(err)
	}
	return reply
}

// noise is text that packs badly.
func noise(size int) string {
	var b strings.Builder
	for i := uint64(1); b.Len() < size; i = i*6364136223846793005 + 1442695040888963407 {
		b.WriteByte(byte('A' + i>>32%50))
	}
	return b.String()
}

// newestSnapshot is the folder of the newest snapshot in a data folder.
func newestSnapshot(t *testing.T, dir string) string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(dir, "snapshots", "*-*-*"))
	if err != nil || len(found) == 0 {
		t.Fatalf("no snapshots in %s: %v", dir, err)
	}
	newest := found[0]
	for _, f := range found {
		a, _ := os.Stat(f)
		b, _ := os.Stat(newest)
		if a.ModTime().After(b.ModTime()) {
			newest = f
		}
	}
	return newest
}

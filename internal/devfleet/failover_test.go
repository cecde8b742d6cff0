package devfleet

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/oomfleet/oomfleet/coordinator/api"
	"github.com/oomfleet/oomfleet/proto"
	"github.com/oomfleet/oomfleet/storage/raftnode"
	"github.com/oomfleet/oomfleet/storage/registry"
)

// oneCell is the smallest write through the API: a sweep of one cell of the small
// matrix, which is known from the second time on.
const oneCell = `apiVersion: oomfleet/v1
name: one-cell
workload: {name: esmfold, params: {model: esmfold_v1, weights: random, stem: bfloat16, trunk: float32, recycles: 1}}
target: {gpu: NVIDIA H200}
axes: {seq_len: [128], batch: [1], driver: [580.159.04]}
search: {strategy: predict, certify: edges}
`

// writer writes to whichever coordinator takes it, the next at every failure.
type writer struct {
	servers []string
	next    int
	body    []byte
	http    http.Client
}

func (w *world) writer() *writer {
	w.t.Helper()
	body, err := json.Marshal(api.Submission{Source: oneCell, Origin: proto.OriginSimulated})
	if err != nil {
		w.t.Fatal(err)
	}
	return &writer{servers: strings.Split(w.API(), ","), body: body, http: http.Client{Timeout: time.Second}}
}

// write tries one coordinator once.
func (w *writer) write(ctx context.Context) (acked, error) {
	began := time.Now()
	err := w.try(ctx)
	if err != nil {
		w.next++
	}
	return acked{began, time.Now()}, err
}

func (w *writer) try(ctx context.Context) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, w.servers[w.next%len(w.servers)]+"/v1/sweeps", bytes.NewReader(w.body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	answer, err := w.http.Do(req)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if _, err := io.Copy(io.Discard, answer.Body); err != nil {
		return err
	}
	if answer.StatusCode >= 300 {
		return fmt.Errorf("status %d", answer.StatusCode)
	}
	return nil
}

// TestFailover kills the leader again and again, and measures how long it takes
// until the next write is acknowledged; then the same with raft alone: the same
// log and heartbeat, without coordinators, API and HTTP. The bound is loose, and
// looser where raft alone is slow, as the machine may be busy with other tests;
// `make chaos` wants the promise.
func TestFailover(t *testing.T) {
	kills, limit := 3, 5*time.Second
	if *chaos {
		kills, limit = 9, time.Second
	}
	var fleet, alone []time.Duration
	t.Run("fleet", func(t *testing.T) { fleet = failFleet(t, kills) })
	t.Run("raft alone", func(t *testing.T) { alone = failRaft(t, kills) })
	if len(fleet) != kills || len(alone) != kills {
		t.Fatalf("measured %v and %v", fleet, alone)
	}
	t.Logf("from kill -9 of the leader to the next acknowledged write, heartbeat 250 ms, %d times each, median (shortest to longest):\n"+
		"  the fleet, a submission through the API of any coordinator: %s\n  raft alone, a proposal:                                     %s",
		kills, spread(fleet), spread(alone))
	if !*chaos {
		limit = max(limit, 10*median(alone))
	}
	if m := median(fleet); m > limit {
		t.Errorf("the median of the fleet is %s, want at most %s", m, limit)
	}
}

func median(times []time.Duration) time.Duration {
	sorted := slices.Sorted(slices.Values(times))
	return sorted[len(sorted)/2]
}

func spread(times []time.Duration) string {
	return fmt.Sprintf("%.2f s (%.2f to %.2f)", median(times).Seconds(), slices.Min(times).Seconds(), slices.Max(times).Seconds())
}

func failFleet(t *testing.T, kills int) (took []time.Duration) {
	w := start(t, Config{Coordinators: 3, Agents: 1})
	w.gate.open()
	for range kills {
		w.sameState() // everybody is back
		leader := w.leader()
		writer := w.writer()
		await(t, "a write is taken", func() bool { _, err := writer.write(t.Context()); return err == nil })
		began := time.Now()
		w.down("coordinator-" + leader)
		for ended := false; !ended; pause(t.Context(), 5*time.Millisecond) {
			if a, err := writer.write(t.Context()); err == nil {
				took = append(took, a.ended.Sub(began))
				ended = true
			}
			if time.Since(began) > patience {
				t.Fatal("no write is taken any more")
			}
		}
		w.up("coordinator-" + leader)
	}
	return took
}

// raftAlone makes the test binary one node of a cluster, described by its value,
// which writes whenever it leads, and says so; see failRaft.
const raftAlone = "OOMFLEET_RAFT_ALONE"

// runRaftAlone proposes for as long as stdin is open.
func runRaftAlone(text string) error {
	var cfg raftnode.Config
	if err := json.Unmarshal([]byte(text), &cfg); err != nil {
		return err
	}
	n, err := raftnode.Open(cfg)
	if err != nil {
		return err
	}
	defer n.Close()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() { // ends with the process
		io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	for i := 0; pause(ctx, 5*time.Millisecond); i++ {
		member := registry.Member{ID: "x", API: fmt.Sprint(i)}
		if _, err := n.Propose(ctx, registry.Command{SetMember: &registry.SetMember{Member: member}}); err == nil {
			fmt.Println("wrote")
		}
	}
	return nil
}

// lone is one node of raft alone.
type lone struct {
	cmd   *exec.Cmd
	stdin io.Closer

	mu    sync.Mutex // guards wrote
	wrote time.Time  // last
}

func failRaft(t *testing.T, kills int) (took []time.Duration) {
	var cfgs []raftnode.Config
	var servers []raftnode.Server
	for i := range 3 {
		addr, err := freePort()
		if err != nil {
			t.Fatal(err)
		}
		servers = append(servers, raftnode.Server{ID: fmt.Sprintf("n%d", i), RaftAddr: addr})
		cfgs = append(cfgs, raftnode.Config{ID: servers[i].ID, DataDir: filepath.Join(t.TempDir(), servers[i].ID)})
	}
	nodes := make([]*lone, 3)
	for i := range cfgs {
		cfgs[i].Servers = servers
		nodes[i] = startLone(t, cfgs[i])
	}
	writing := func(after time.Time, but int) int {
		for i, n := range nodes {
			n.mu.Lock()
			wrote := n.wrote
			n.mu.Unlock()
			if i != but && wrote.After(after) {
				return i
			}
		}
		return -1
	}
	for range kills {
		leader, since := -1, time.Now().Add(time.Second/2) // everybody has heard of it by then
		await(t, "somebody writes", func() bool { leader = writing(since, -1); return leader >= 0 })
		began := time.Now()
		if err := nodes[leader].cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		nodes[leader].cmd.Wait() //nolint:errcheck // it was killed
		next := -1
		for next < 0 {
			if next = writing(began, leader); next < 0 && !pause(t.Context(), time.Millisecond) || time.Since(began) > patience {
				t.Fatal("nobody writes any more")
			}
		}
		nodes[next].mu.Lock()
		took = append(took, nodes[next].wrote.Sub(began))
		nodes[next].mu.Unlock()
		nodes[leader] = startLone(t, cfgs[leader])
	}
	return took
}

func startLone(t *testing.T, cfg raftnode.Config) *lone {
	t.Helper()
	text, err := json.Marshal(cfg)
	if err != nil {
		t.Fatal(err)
	}
	n := &lone{cmd: exec.Command(os.Args[0])}
	n.cmd.Env = append(os.Environ(), raftAlone+"="+string(text))
	n.cmd.Stderr = os.Stderr
	if n.stdin, err = n.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := n.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := n.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	joined := make(chan struct{})
	go func() { // ends with the process
		defer close(joined)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			n.mu.Lock()
			n.wrote = time.Now()
			n.mu.Unlock()
		}
	}()
	t.Cleanup(func() {
		n.cmd.Process.Kill() //nolint:errcheck // it may have ended
		n.stdin.Close()
		<-joined
		n.cmd.Wait() //nolint:errcheck // it was killed
	})
	return n
}

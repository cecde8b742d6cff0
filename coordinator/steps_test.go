package coordinator

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/oomfleet/oomfleet/proto"
	"github.com/oomfleet/oomfleet/queue"
	"github.com/oomfleet/oomfleet/storage/raftnode"
	"github.com/oomfleet/oomfleet/storage/registry"
)

// deaths says at which step the next leader ends.
type deaths struct {
	mu    sync.Mutex // guards armed
	armed string
	fired chan string // ids of members that have come to their step
}

func (d *deaths) arm(step string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.armed = step
}

func (d *deaths) at(step, id string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.armed != step {
		return false
	}
	d.armed = ""
	d.fired <- id
	return true
}

// mortal is a raft node, and the queue, of a coordinator that ends at a step:
// from then on nothing that it does reaches anybody.
type mortal struct {
	node
	deaths *deaths
	mu     sync.Mutex // guards gone
	gone   bool
}

func (m *mortal) ends(step string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.gone = m.gone || m.deaths.at(step, m.ID())
	return m.gone
}

func (m *mortal) Propose(ctx context.Context, cmd registry.Command) (registry.Reply, error) {
	step := stepOf(cmd)
	if m.ends(step + ", before it is committed") {
		return registry.Reply{}, &registry.NotLeaderError{}
	}
	reply, err := m.node.Propose(ctx, cmd)
	if err == nil && m.ends(step+", committed") {
		return registry.Reply{}, registry.ErrUncertain
	}
	return reply, err
}

func stepOf(cmd registry.Command) string {
	switch {
	case cmd.AddSweep != nil:
		return "submitted"
	case cmd.Issue != nil:
		return "planned"
	case cmd.TakeResult != nil:
		return "taken in"
	case cmd.SetPrediction != nil:
		return "replayed"
	case cmd.Settle != nil:
		return "settled"
	case cmd.SetCoefficients != nil:
		return "fitted"
	}
	return "other"
}

type mortalQueue struct {
	queue.Queue
	m *mortal
}

func (q mortalQueue) Publish(ctx context.Context, tasks []proto.Task) (int, error) {
	if q.m.ends("published, before") {
		return 0, errors.New("its process has ended")
	}
	n, err := q.Queue.Publish(ctx, tasks)
	if err == nil && len(tasks) > 0 && q.m.ends("published, after") {
		return n, errors.New("its process has ended")
	}
	return n, err
}

// member is one coordinator of three, with its raft node.
type member struct {
	*mortal
	*Coordinator
	end func()
}

// TestLeaderLostAtEveryStep: three raft nodes on sockets, and the coordinator that
// leads ends at each step of a cell. The next one goes on from there: every cell
// settles as it would have, and no step is done twice.
func TestLeaderLostAtEveryStep(t *testing.T) {
	f := newFleet(t)
	f.queue = newNATS(f.ctx, t)
	d := &deaths{fired: make(chan string, 1)}
	var servers []raftnode.Server
	listeners, folders, members := map[string]net.Listener{}, map[string]string{}, map[string]*member{}
	for _, id := range []string{"a", "b", "c"} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		listeners[id], folders[id] = l, t.TempDir()
		servers = append(servers, raftnode.Server{ID: id, RaftAddr: l.Addr().String()})
	}
	begin := func(id string) {
		t.Helper()
		n, err := raftnode.Open(raftnode.Config{ID: id, DataDir: folders[id], Listener: listeners[id], Servers: servers, Heartbeat: 500 * time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		listeners[id] = nil // at its next start it listens itself
		m := &mortal{node: node{n}, deaths: d}
		c, err := New(f.cfg, Deps{Registry: m, Queue: mortalQueue{f.queue, m}, Traces: f.traces, Log: slog.New(slog.DiscardHandler), Metrics: prometheus.NewRegistry()})
		if err != nil {
			t.Fatal(err)
		}
		stop := f.background(c.Run)
		members[id] = &member{m, c, sync.OnceFunc(func() {
			stop()
			if err := n.Close(); err != nil {
				t.Error(err)
			}
		})}
		t.Cleanup(members[id].end)
	}
	for _, s := range servers {
		begin(s.ID)
	}
	f.agents(2, f.honest)
	// submit is what a client does: it asks whoever leads, until somebody says yes.
	submit := func(lengths string) proto.MatrixID {
		t.Helper()
		for f.ctx.Err() == nil {
			now, changed := members["a"].Node.Leadership()
			if leader := members[now.LeaderID]; leader != nil {
				reply, err := leader.Submit(f.ctx, SubmitRequest{Source: source(lengths), Origin: proto.OriginMeasured})
				if err == nil {
					return reply.Matrix.ID
				}
				select {
				case id := <-d.fired: // at the submission itself
					members[id].end()
					begin(id)
					continue
				default:
				}
			}
			pause(f.ctx, 50*time.Millisecond, changed)
		}
		t.Fatal("nobody takes the sweep")
		return ""
	}
	steps := []string{"published, before", "published, after"}
	for _, step := range []string{"submitted", "planned", "taken in", "replayed", "settled", "fitted"} {
		steps = append(steps, step+", before it is committed", step+", committed")
	}
	for i, step := range steps {
		lengths := fmt.Sprintf("[%d, %d, %d]", 100+10*i, 102+10*i, 104+10*i)
		d.arm(step)
		id := submit(lengths)
		if i < 2 || i > 3 { // not the submission itself
			select {
			case id := <-d.fired:
				members[id].end()
				begin(id)
			case <-f.ctx.Done():
				t.Fatalf("no leader came to %q", step)
			}
		}
		v := await(f.ctx, t, members["a"].Node, func(v registry.View) bool {
			r, ok := v.Report(id)
			return ok && r.State == registry.SweepSettled && len(r.Coefficients) > 0
		})
		r, _ := v.Report(id)
		f.check(r)
		if r.Counts.Settled() != 3 || r.Counts.Failed != 0 {
			t.Errorf("%s: %+v", step, r.Counts)
		}
		t.Logf("the leader ended %s: entry %d", step, v.AppliedIndex)
	}
	if d.arm(""); len(d.fired) > 0 {
		t.Error("a leader ended that nobody waited for")
	}
	last := slices.MaxFunc([]*member{members["a"], members["b"], members["c"]}, func(a, b *member) int { return int(a.View().AppliedIndex) - int(b.View().AppliedIndex) })
	want := last.View()
	for id, m := range members {
		got := await(f.ctx, t, m.Node, func(v registry.View) bool { return v.AppliedIndex >= want.AppliedIndex })
		if got.AppliedIndex == want.AppliedIndex && got.Hash() != want.Hash() {
			t.Errorf("%s has another state", id)
		}
	}
}

func await(ctx context.Context, t *testing.T, n *raftnode.Node, is func(registry.View) bool) registry.View {
	t.Helper()
	for {
		v := n.View()
		if is(v) {
			return v
		}
		select {
		case <-n.Changed(v.AppliedIndex):
		case <-ctx.Done():
			t.Fatalf("gave up at entry %d: %+v", v.AppliedIndex, v.SweepList())
		}
	}
}

package coordinator

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
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

// trio are three coordinators on raft nodes, on sockets.
type trio struct {
	*fleet
	deaths    *deaths
	servers   []raftnode.Server
	listeners map[string]net.Listener
	folders   map[string]string
	members   map[string]*member
	ended     int // leaders that came to their step, and were begun again
}

func newTrio(f *fleet) *trio {
	o := &trio{fleet: f, deaths: &deaths{fired: make(chan string, 1)},
		listeners: map[string]net.Listener{}, folders: map[string]string{}, members: map[string]*member{}}
	for _, id := range []string{"a", "b", "c"} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			f.t.Fatal(err)
		}
		o.listeners[id], o.folders[id] = l, f.t.TempDir()
		o.servers = append(o.servers, raftnode.Server{ID: id, RaftAddr: l.Addr().String()})
	}
	for _, s := range o.servers {
		o.begin(s.ID)
	}
	return o
}

// begin starts a member on its folder.
func (o *trio) begin(id string) {
	o.t.Helper()
	n, err := raftnode.Open(raftnode.Config{ID: id, DataDir: o.folders[id], Listener: o.listeners[id], Servers: o.servers, Heartbeat: 500 * time.Millisecond})
	if err != nil {
		o.t.Fatal(err)
	}
	o.listeners[id] = nil // at its next start it listens itself
	m := &mortal{node: node{n}, deaths: o.deaths}
	c, err := New(o.cfg, Deps{Registry: m, Queue: mortalQueue{o.queue, m}, Traces: o.traces, Log: slog.New(slog.DiscardHandler), Metrics: prometheus.NewRegistry()})
	if err != nil {
		o.t.Fatal(err)
	}
	stop := o.background(c.Run)
	end := sync.OnceFunc(func() {
		stop()
		if err := n.Close(); err != nil {
			o.t.Error(err)
		}
	})
	o.members[id] = &member{m, c, end}
	o.t.Cleanup(end)
}

func (o *trio) again(id string) {
	o.ended++
	o.members[id].end()
	o.begin(id)
}

// submits is what a client does: it asks whoever leads, until somebody says yes. A
// leader that ends at that is begun again.
func (o *trio) submits(lengths string) proto.MatrixID {
	o.t.Helper()
	for o.ctx.Err() == nil {
		now, changed := o.members["a"].Node.Leadership()
		if leader := o.members[now.LeaderID]; leader != nil {
			reply, err := leader.Submit(o.ctx, SubmitRequest{Source: source(lengths), Origin: proto.OriginMeasured})
			if err == nil {
				return reply.Matrix.ID
			}
			select {
			case id := <-o.deaths.fired:
				o.again(id)
				continue
			default:
			}
		}
		pause(o.ctx, 50*time.Millisecond, changed)
	}
	o.t.Fatal("nobody takes the sweep")
	return ""
}

// agree waits until all members have the same state.
func (o *trio) agree() {
	o.t.Helper()
	var want registry.View
	for _, m := range o.members {
		if v := m.View(); v.AppliedIndex >= want.AppliedIndex {
			want = v
		}
	}
	for id, m := range o.members {
		got := await(o.ctx, o.t, m.Node, func(v registry.View) bool { return v.AppliedIndex >= want.AppliedIndex })
		if got.AppliedIndex == want.AppliedIndex && got.Hash() != want.Hash() {
			o.t.Errorf("%s has another state", id)
		}
	}
}

// TestLeaderLostAtEveryStep: the coordinator that leads ends at each step of a
// cell. The next one goes on from there, and every cell settles as it would have.
func TestLeaderLostAtEveryStep(t *testing.T) {
	f := newFleet(t)
	f.queue = newNATS(f.ctx, t)
	o := newTrio(f)
	f.agents(2, f.honest)
	steps := []string{"published, before", "published, after"}
	for _, step := range []string{"submitted", "planned", "taken in", "replayed", "settled", "fitted"} {
		steps = append(steps, step+", before it is committed", step+", committed")
	}
	for i, step := range steps {
		o.deaths.arm(step)
		id := o.submits(fmt.Sprintf("[%d, %d, %d]", 100+10*i, 102+10*i, 104+10*i))
		if o.ended == i { // else it was gone before the client had its answer
			select {
			case id := <-o.deaths.fired:
				o.again(id)
			case <-f.ctx.Done():
				t.Fatalf("no leader came to %q", step)
			}
		}
		v := await(f.ctx, t, o.members["a"].Node, func(v registry.View) bool {
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
	if o.deaths.arm(""); len(o.deaths.fired) > 0 {
		t.Error("a leader ended that nobody waited for")
	}
	o.agree()
}

// await waits until a node's state is as it is to be.
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

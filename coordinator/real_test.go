package coordinator

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/oomfleet/oomfleet/internal/natsserver"
	"github.com/oomfleet/oomfleet/proto"
	"github.com/oomfleet/oomfleet/queue"
	"github.com/oomfleet/oomfleet/queue/natsq"
	"github.com/oomfleet/oomfleet/storage/raftnode"
	"github.com/oomfleet/oomfleet/storage/registry"
	"github.com/oomfleet/oomfleet/storage/trace"
	"github.com/oomfleet/oomfleet/storage/trace/dir"
)

// newNATS is a client of an embedded server of its own.
func newNATS(ctx context.Context, t *testing.T) queue.Queue {
	t.Helper()
	serving, end := context.WithCancel(context.WithoutCancel(ctx)) // the server ends last
	url, ended := make(chan string, 1), make(chan error, 1)
	folder := t.TempDir() // before the cleanup that ends the server, so that it is removed after
	go func() {
		ended <- natsserver.Run(serving, natsserver.Config{Dir: folder, SyncLater: true, Ready: func(u string) { url <- u }})
	}()
	t.Cleanup(func() {
		end()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	select {
	case u := <-url:
		q, err := natsq.Open(ctx, natsq.Config{URL: u, ReportLease: 300 * time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := q.Close(); err != nil {
				t.Error(err)
			}
		})
		return q
	case <-ctx.Done():
		t.Fatal("no queue server")
		return nil
	}
}

// node is a raft node as a coordinator wants it.
type node struct{ *raftnode.Node }

func (n node) Leadership() (bool, <-chan struct{}) {
	l, changed := n.Node.Leadership()
	return l.Leading, changed
}

// openNode is a cluster of one that leads and is up to date.
func openNode(ctx context.Context, t *testing.T, folder string) node {
	t.Helper()
	n, err := raftnode.Open(raftnode.Config{ID: "one", DataDir: folder})
	if err != nil {
		t.Fatal(err)
	}
	for !n.IsLeader() {
		l, changed := n.Leadership()
		if l.Leading {
			break
		}
		select {
		case <-changed:
		case <-ctx.Done():
			t.Fatal("nobody leads")
		}
	}
	if err := n.Barrier(ctx); err != nil {
		t.Fatal(err)
	}
	return node{n}
}

// TestOnRealServers: a matrix on NATS, raft and a trace folder, with the whole
// coordinator (raft node included) stopped half-way and started again.
func TestOnRealServers(t *testing.T) {
	f := newFleet(t)
	f.queue = newNATS(f.ctx, t)
	driver, err := dir.New(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	store := trace.NewStore(driver)
	folder := t.TempDir()
	start := func() (*Coordinator, node, func()) {
		n := openNode(f.ctx, t, folder)
		c, err := New(f.cfg, Deps{Registry: n, Queue: f.queue, Traces: store, Log: slog.New(slog.DiscardHandler), Metrics: prometheus.NewRegistry()})
		if err != nil {
			t.Fatal(err)
		}
		stop := f.background(c.Run)
		return c, n, func() {
			stop()
			if err := n.Close(); err != nil {
				t.Error(err)
			}
		}
	}
	c, n, stop := start()
	f.agents(2, func(ctx context.Context, d queue.Delivery, agent proto.AgentID) error {
		task, err := d.Task()
		if err != nil {
			return err
		}
		r := runOf(task, agent)
		if task.Kind == proto.TaskRecord {
			size := int64(task.Cell.SeqLen) << 20
			ref, err := store.PutTrace(ctx, program(size), trace.Meta{Cell: task.Cell, Stack: r.Stack})
			if err != nil {
				return err
			}
			r.Evidence.Trace = &ref
		}
		if err := f.queue.Report(ctx, r); err != nil {
			return err
		}
		return d.Ack(ctx)
	})
	reply, err := c.Submit(f.ctx, SubmitRequest{Source: source(lengths), Origin: proto.OriginMeasured})
	if err != nil {
		t.Fatal(err)
	}
	await(f.ctx, t, n.Node, func(v registry.View) bool { return v.SweepList()[0].Counts.Settled() >= 2 })
	stop()
	_, n, stop = start()
	defer stop()
	v := await(f.ctx, t, n.Node, func(v registry.View) bool {
		r, _ := v.Report(reply.Matrix.ID)
		return r.State == registry.SweepSettled && len(r.Coefficients) == 3
	})
	r, _ := v.Report(reply.Matrix.ID)
	f.check(r)
}

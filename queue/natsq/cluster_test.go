package natsq_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	natsd "github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/oomfleet/oomfleet/internal/natsserver"
	"github.com/oomfleet/oomfleet/proto"
	"github.com/oomfleet/oomfleet/queue/natsq"
)

// clusterOf runs three NATS servers as one cluster, as an operator would give us.
func clusterOf(t *testing.T) (servers map[string]*natsd.Server, urls string) {
	t.Helper()
	var routes []*url.URL
	var ports []int
	for range 3 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		ports = append(ports, l.Addr().(*net.TCPAddr).Port)
		routes = append(routes, &url.URL{Scheme: "nats", Host: l.Addr().String()})
		l.Close()
	}
	servers = map[string]*natsd.Server{}
	var all []string
	for i, port := range ports {
		name := fmt.Sprintf("s%d", i)
		s, err := natsd.NewServer(&natsd.Options{ServerName: name, Host: "127.0.0.1", Port: natsd.RANDOM_PORT, JetStream: true, StoreDir: t.TempDir(),
			NoSigs: true, NoLog: true, Routes: routes, Cluster: natsd.ClusterOpts{Name: "theirs", Host: "127.0.0.1", Port: port}})
		if err != nil {
			t.Fatal(err)
		}
		s.Start()
		t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
		if !s.ReadyForConnections(patience) {
			t.Fatal("not ready")
		}
		servers[name] = s
		all = append(all, s.ClientURL())
	}
	return servers, strings.Join(all, ",")
}

// TestClusteredServer: the queue is a NATS cluster of somebody else's. A server
// of it dies, the stream's own leader, and the work goes on.
func TestClusteredServer(t *testing.T) {
	servers, urls := clusterOf(t)
	ctx := within(t, patience)
	var q *natsq.Queue
	for q == nil { // before the servers have a leader they do not answer
		try, cancel := context.WithTimeout(ctx, 15*time.Second)
		var err error
		q, err = natsq.Open(try, natsq.Config{URL: urls, Replicas: 3})
		cancel()
		if ctx.Err() != nil {
			t.Fatal(err)
		}
	}
	defer q.Close()
	if err := q.Canary(ctx); err != nil {
		t.Fatal(err)
	}
	pool := proto.PoolOf(proto.OriginSimulated, "NVIDIA H200", "580.159.04")
	task := proto.Task{ID: "s-cell-1", Fence: 7, Origin: proto.OriginSimulated, Cell: proto.Cell{GPU: "NVIDIA H200", Driver: "580.159.04"}}
	if n, err := q.Publish(ctx, []proto.Task{task}); n != 1 || err != nil {
		t.Fatalf("%d, %v", n, err)
	}
	nc, err := nats.Connect(urls, nats.Timeout(patience))
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	s, err := js.Stream(ctx, natsq.TasksStream)
	if err != nil {
		t.Fatal(err)
	}
	info := s.CachedInfo()
	if info.Config.Replicas != 3 || info.Cluster == nil {
		t.Fatalf("the stream has %d replicas", info.Config.Replicas)
	}
	leader := servers[info.Cluster.Leader]
	if leader == nil {
		t.Fatalf("no server is the leader %q", info.Cluster.Leader)
	}
	leader.Shutdown()
	leader.WaitForShutdown()
	d, err := q.Next(ctx, pool)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := d.Task(); err != nil || got.ID != task.ID || got.Fence != task.Fence {
		t.Errorf("task %+v, %v", got, err)
	}
	if err := d.Ack(ctx); err != nil {
		t.Error(err)
	}
	for q.Canary(ctx) != nil { // the others may still be choosing
		if ctx.Err() != nil {
			t.Fatal("no canary passes any more")
		}
	}
}

// TestCanary: nothing of it stays, also of one that was broken off, and a server
// that does not do what tasks need is told at the start.
func TestCanary(t *testing.T) {
	at := server(t, natsserver.Config{})
	q := open(t, natsq.Config{URL: at})
	nc, err := nats.Connect(at, nats.Timeout(patience))
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	// Many start at once, and leave each other's alone.
	var wait sync.WaitGroup
	for i := range 5 {
		other := open(t, natsq.Config{URL: at, Name: fmt.Sprint("coordinator-", i)})
		wait.Go(func() {
			for range 10 {
				if err := other.Canary(t.Context()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for range 10 {
		if err := q.Canary(t.Context()); err != nil {
			t.Error(err)
		}
	}
	wait.Wait()
	s, err := js.Stream(t.Context(), natsq.TasksStream)
	if err != nil {
		t.Fatal(err)
	}
	if n := s.CachedInfo().State.Msgs; n != 0 {
		t.Errorf("%d messages stay in the queue", n)
	}
	// One that was broken off is not in the way of the next.
	left := fmt.Sprintf("oomfleet.task.canary.%x", sha256.Sum256([]byte("oomfleet")))[:len("oomfleet.task.canary.")+16]
	if _, err := js.Publish(t.Context(), left, []byte("x")); err != nil {
		t.Fatal(err)
	}
	if waiting, err := q.Waiting(t.Context()); len(waiting) != 0 || err != nil {
		t.Errorf("it is taken for a task: %v, %v", waiting, err)
	}
	if err := errors.Join(q.Room(t.Context()), q.Canary(t.Context())); err != nil {
		t.Error(err)
	}
	if info, err := s.Info(t.Context()); err != nil || info.State.Msgs != 0 {
		t.Errorf("%d messages stay in the queue, %v", info.State.Msgs, err)
	}
	// An operator takes batches away after the start.
	sealed := s.CachedInfo().Config
	sealed.AllowAtomicPublish = false
	if _, err := js.UpdateStream(t.Context(), sealed); err != nil {
		t.Fatal(err)
	}
	if err := q.Canary(t.Context()); err == nil || !strings.Contains(err.Error(), "try the queue: publish") {
		t.Errorf("without batches: %v", err)
	}
}

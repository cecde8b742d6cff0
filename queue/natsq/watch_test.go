package natsq_test

import (
	"context"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/oomfleet/oomfleet/internal/natsserver"
	"github.com/oomfleet/oomfleet/proto"
	"github.com/oomfleet/oomfleet/queue/natsq"
	"github.com/oomfleet/oomfleet/queue/queuetest"
)

// TestSilentConsumer is B30: messages wait and none is delivered. Here an
// operator's setting is the reason, behind the back of a client that knows
// the consumer already.
func TestSilentConsumer(t *testing.T) {
	ctx := within(t, 30*time.Second)
	url := server(t, natsserver.Config{})
	q := open(t, natsq.Config{URL: url, Patience: 300 * time.Millisecond})
	tasks := queuetest.Tasks("1", 2)
	pool := tasks[0].Pool()
	if _, err := q.Publish(ctx, tasks); err != nil {
		t.Fatal(err)
	}
	if _, err := q.Next(ctx, pool); err != nil { // held
		t.Fatal(err)
	}
	js := operator(t, url)
	cons, err := js.Consumer(ctx, natsq.TasksStream, "pool-"+string(pool))
	if err != nil {
		t.Fatal(err)
	}
	cfg := cons.CachedInfo().Config
	cfg.MaxAckPending = 1
	if _, err := js.UpdateConsumer(ctx, natsq.TasksStream, cfg); err != nil {
		t.Fatal(err)
	}
	for {
		d, err := q.Next(ctx, pool)
		if err != nil {
			t.Fatal(err)
		}
		task, err := d.Task()
		if err != nil {
			t.Fatal(err)
		}
		if task.ID == tasks[1].ID { // the held one comes again, which is harmless
			return
		}
	}
}

func TestConsumerDeletedWhileWaiting(t *testing.T) {
	ctx := within(t, 30*time.Second)
	url := server(t, natsserver.Config{})
	q, other := open(t, natsq.Config{URL: url}), open(t, natsq.Config{URL: url})
	task := queuetest.NewTask("1", 1, 7)
	got := make(chan error, 1)
	go func() { _, err := q.Next(ctx, task.Pool()); got <- err }()
	waitConsumer(ctx, t, other)
	if err := operator(t, url).DeleteConsumer(ctx, natsq.TasksStream, "pool-"+string(task.Pool())); err != nil {
		t.Fatal(err)
	}
	if _, err := other.Publish(ctx, []proto.Task{task}); err != nil {
		t.Fatal(err)
	}
	if err := <-got; err != nil {
		t.Fatal(err)
	}
}

// proxy is a wire that can fall silent: connections stay open, and nothing
// passes any more. New connections pass.
type proxy struct {
	net.Listener
	target string
	wires  sync.WaitGroup

	mu     sync.Mutex // guards the rest
	frozen chan struct{}
	open   []net.Conn
}

func startProxy(t *testing.T, url string) *proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{Listener: l, target: strings.TrimPrefix(url, "nats://"), frozen: make(chan struct{})}
	p.wires.Go(p.accept)
	t.Cleanup(func() {
		l.Close()
		p.mu.Lock()
		for _, c := range p.open {
			c.Close()
		}
		p.mu.Unlock()
		p.wires.Wait()
	})
	return p
}

func (p *proxy) url() string { return "nats://" + p.Addr().String() }

func (p *proxy) accept() {
	for {
		client, err := p.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", p.target)
		if err != nil {
			client.Close()
			continue
		}
		p.mu.Lock()
		frozen := p.frozen
		p.open = append(p.open, client, server)
		p.mu.Unlock()
		p.wires.Go(func() { pass(client, server, frozen) })
		p.wires.Go(func() { pass(server, client, frozen) })
	}
}

// pass copies until frozen; then it swallows.
func pass(to io.WriteCloser, from io.Reader, frozen <-chan struct{}) {
	defer to.Close()
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		if err != nil {
			return
		}
		select {
		case <-frozen:
			continue
		default:
		}
		if _, err := to.Write(buf[:n]); err != nil {
			return
		}
	}
}

// freeze silences the connections that exist.
func (p *proxy) freeze() {
	p.mu.Lock()
	defer p.mu.Unlock()
	close(p.frozen)
	p.frozen = make(chan struct{})
}

// TestSilentConnection: the connection is up and carries nothing, as after a
// firewall has forgotten it. Missed heartbeats find it out.
func TestSilentConnection(t *testing.T) {
	ctx := within(t, 30*time.Second)
	url := server(t, natsserver.Config{})
	p := startProxy(t, url)
	q, other := open(t, natsq.Config{URL: p.url(), Patience: 2 * time.Second}), open(t, natsq.Config{URL: url})
	task := queuetest.NewTask("1", 1, 7)
	got := make(chan error, 1)
	go func() { _, err := q.Next(ctx, task.Pool()); got <- err }()
	waitConsumer(ctx, t, other)
	p.freeze()
	publishWhenQuiet(ctx, t, other, task)
	if err := <-got; err != nil {
		t.Fatal(err)
	}
}

// publishWhenQuiet publishes after the server has dropped or answered the pull
// that went into the void; before, the task would lie in it for a whole lease.
func publishWhenQuiet(ctx context.Context, t *testing.T, q *natsq.Queue, task proto.Task) {
	t.Helper()
	short, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	if _, err := q.Next(short, task.Pool()); short.Err() == nil {
		t.Fatalf("Next of an empty pool: %v", err)
	}
	if _, err := q.Publish(ctx, []proto.Task{task}); err != nil {
		t.Fatal(err)
	}
}

package natsq_test

import (
	"context"
	"testing"
	"time"

	"github.com/oomfleet/oomfleet/internal/natsserver"
	"github.com/oomfleet/oomfleet/proto"
	"github.com/oomfleet/oomfleet/queue/natsq"
	"github.com/oomfleet/oomfleet/queue/queuetest"
)

// TestSilentConsumer: messages wait and none is delivered. Here an
// operator's setting is the reason, behind the back of a client that knows
// the consumer already.
func TestSilentConsumer(t *testing.T) {
	ctx := within(t, patience)
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
	ctx := within(t, patience)
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

// TestSilentConnection: the connection is up and carries nothing, as after a
// firewall has forgotten it. Missed heartbeats find it out.
func TestSilentConnection(t *testing.T) {
	ctx := within(t, patience)
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

package natsq_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/oomfleet/oomfleet/proto"
	"github.com/oomfleet/oomfleet/queue"
	"github.com/oomfleet/oomfleet/queue/natsq"
	"github.com/oomfleet/oomfleet/queue/queuetest"
)

// crash is a fleet in small around a server that dies: a coordinator that
// publishes and takes reports, and agents that work. All on real connections.
type crash struct {
	t     *testing.T
	srv   *child
	tasks []proto.Task

	mu       sync.Mutex // guards the rest
	executed map[proto.TaskID]int
	taken    map[proto.TaskID]int
	progress chan struct{} // capacity 1: something was taken
}

func (c *crash) config() natsq.Config {
	return natsq.Config{URL: c.srv.url, Lease: 2 * time.Second, ReportLease: time.Second, Patience: time.Second}
}

// again repeats do until it succeeds or ctx ends, as agent and coordinator do.
func again(ctx context.Context, do func(context.Context) error) error {
	for {
		once, cancel := context.WithTimeout(ctx, 5*time.Second)
		err := do(once)
		cancel()
		if err == nil || ctx.Err() != nil {
			return err
		}
		select { // a refused connection fails at once
		case <-ctx.Done():
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// work is one agent: take, report, ack; an ack that is lost is the queue's
// trouble, not the agent's.
func (c *crash) work(ctx context.Context, q *natsq.Queue, id proto.AgentID) {
	for {
		d, err := q.Next(ctx, c.tasks[0].Pool())
		if err != nil {
			if ctx.Err() == nil {
				c.t.Errorf("agent %s: %v", id, err)
			}
			return
		}
		task, err := d.Task()
		if err != nil {
			c.t.Errorf("agent %s: %v", id, err)
			return
		}
		c.mu.Lock()
		c.executed[task.ID]++
		c.mu.Unlock()
		if again(ctx, func(ctx context.Context) error { return q.Report(ctx, queuetest.NewResult(task, id)) }) != nil {
			return // the test is over
		}
		ackCtx, cancel := context.WithTimeout(ctx, time.Second)
		_ = d.Ack(ackCtx)
		cancel()
	}
}

// intake is the leader: commit (here: count), then ack.
func (c *crash) intake(ctx context.Context, q *natsq.Queue) {
	for {
		rep, err := q.NextReport(ctx)
		if err != nil {
			if ctx.Err() == nil {
				c.t.Errorf("intake: %v", err)
			}
			return
		}
		r, err := rep.Result()
		if err != nil {
			c.t.Errorf("intake: %v", err)
			return
		}
		c.mu.Lock()
		c.taken[r.Task]++
		c.mu.Unlock()
		select {
		case c.progress <- struct{}{}:
		default:
		}
		ackCtx, cancel := context.WithTimeout(ctx, time.Second)
		_ = rep.Ack(ackCtx)
		cancel()
	}
}

func (c *crash) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.taken)
}

// waitTaken waits until n tasks have a result.
func (c *crash) waitTaken(ctx context.Context, n int) {
	c.t.Helper()
	for c.count() < n {
		select {
		case <-ctx.Done():
			c.t.Fatalf("%d of %d tasks have a result", c.count(), n)
		case <-c.progress:
		}
	}
}

// TestKillServerMidWork: the server is killed three times while
// tasks are published, worked on and taken. What was published is executed at
// least once, no result that was reported is lost, and every wait recovers.
func TestKillServerMidWork(t *testing.T) {
	ctx := within(t, 3*patience) // 2,400 tasks, each of which is eight requests
	c := &crash{t: t, srv: startChild(t), tasks: queuetest.Tasks("1", 2400),
		executed: map[proto.TaskID]int{}, taken: map[proto.TaskID]int{}, progress: make(chan struct{}, 1)}
	work, stop := context.WithCancel(ctx)
	var all sync.WaitGroup
	defer all.Wait()
	defer stop()
	for i, id := range []proto.AgentID{"agent-0", "agent-1", "agent-2", "agent-3"} {
		q := open(t, c.config())
		all.Go(func() { c.work(work, q, id) })
		if i == 0 {
			all.Go(func() { c.intake(work, q) })
		}
	}
	coordinator := open(t, c.config())
	var published atomic.Int64
	all.Go(func() {
		for rest := c.tasks; len(rest) > 0 && work.Err() == nil; {
			_ = again(work, func(ctx context.Context) error {
				n, err := coordinator.Publish(ctx, rest[:min(100, len(rest))])
				rest = rest[n:]
				published.Add(int64(n))
				return err
			})
		}
	})
	for kill := 1; kill <= 3; kill++ {
		c.waitTaken(ctx, kill*len(c.tasks)/5)
		c.srv.kill()
		c.srv.start()
	}
	c.waitTaken(ctx, len(c.tasks))
	if n := published.Load(); n != int64(len(c.tasks)) {
		t.Fatalf("published %d of %d", n, len(c.tasks))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	twice, late := 0, 0
	for _, task := range c.tasks {
		if c.executed[task.ID] == 0 {
			t.Errorf("task %s was never executed", task.ID)
		}
		if c.executed[task.ID] > 1 {
			twice++
		}
		if c.taken[task.ID] > 1 {
			late++
		}
	}
	t.Logf("%d tasks, %d executed more than once, %d with a late result", len(c.tasks), twice, late)
}

// TestHolderKeepsTaskAcrossRestart: a run that keeps extending its lease is not
// disturbed by the server's death, and its ack counts.
func TestHolderKeepsTaskAcrossRestart(t *testing.T) {
	ctx := within(t, patience)
	srv := startChild(t)
	cfg := natsq.Config{URL: srv.url, Lease: 20 * time.Second, Patience: time.Second}
	holder, other := open(t, cfg), open(t, cfg)
	task := queuetest.NewTask("1", 1, 7)
	if _, err := holder.Publish(ctx, []proto.Task{task}); err != nil {
		t.Fatal(err)
	}
	d, err := holder.Next(ctx, task.Pool())
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Extend(ctx); err != nil {
		t.Fatal(err)
	}
	srv.kill()
	short, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
	defer cancel()
	if err := d.Extend(short); err == nil {
		t.Error("Extend with the server dead: no error")
	}
	srv.start()
	if err := again(ctx, d.Extend); err != nil {
		t.Fatalf("Extend after the restart: %v", err)
	}
	short, cancel = context.WithTimeout(ctx, 500*time.Millisecond)
	defer cancel()
	if _, err := other.Next(short, task.Pool()); err == nil {
		// Possible, and harmless: the server had not written the delivery yet.
		t.Log("the task was delivered a second time")
	}
	if err := d.Ack(ctx); err != nil {
		t.Fatalf("Ack after the restart: %v", err)
	}
	if ids, err := other.Waiting(ctx); err != nil || len(ids) != 0 {
		t.Fatalf("waiting %v, %v after the ack", ids, err)
	}
}

// TestNextAcrossRestart: the server restarts while
// nothing but Next is going on, and then a task comes.
func TestNextAcrossRestart(t *testing.T) {
	ctx := within(t, patience)
	srv := startChild(t)
	q := open(t, natsq.Config{URL: srv.url, Patience: 10 * patience}) // recovery must not wait for it
	task := queuetest.NewTask("1", 1, 7)
	got := make(chan error, 1)
	go func() {
		_, err := q.Next(ctx, task.Pool())
		got <- err
	}()
	other := open(t, natsq.Config{URL: srv.url})
	waitConsumer(ctx, t, other)
	srv.kill()
	srv.start()
	if err := again(ctx, func(ctx context.Context) error {
		_, err := other.Publish(ctx, []proto.Task{task})
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if err := <-got; err != nil {
		t.Fatal(err)
	}
}

// waitConsumer waits until a pool's consumer exists, which Next makes.
func waitConsumer(ctx context.Context, t *testing.T, q *natsq.Queue) {
	t.Helper()
	for {
		st, err := q.Stats(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if st.MaxAckPending > 0 {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatal("no consumer")
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// TestServerLosesEverything: the data folder is gone after a crash. Waits go on,
// the streams are made anew, and what the coordinator publishes again arrives.
func TestServerLosesEverything(t *testing.T) {
	ctx := within(t, patience)
	srv := startChild(t)
	q := open(t, natsq.Config{URL: srv.url, Patience: time.Second})
	task := queuetest.NewTask("1", 1, 7)
	if _, err := q.Publish(ctx, []proto.Task{task}); err != nil {
		t.Fatal(err)
	}
	if _, err := q.Next(ctx, task.Pool()); err != nil {
		t.Fatal(err)
	}
	srv.kill()
	if err := os.RemoveAll(filepath.Join(srv.dir, "jetstream")); err != nil {
		t.Fatal(err)
	}
	srv.start()
	var ids map[proto.TaskID]bool
	if err := again(ctx, func(ctx context.Context) (err error) { ids, err = q.Waiting(ctx); return err }); err != nil || len(ids) != 0 {
		t.Fatalf("Waiting: %v, %v, want none", ids, err)
	}
	if _, err := q.Publish(ctx, []proto.Task{task}); err != nil {
		t.Fatal(err)
	}
	d, err := q.Next(ctx, task.Pool())
	if err != nil {
		t.Fatal(err)
	}
	if err := q.Report(ctx, queuetest.NewResult(task, "agent-1")); err != nil {
		t.Fatal(err)
	}
	if err := d.Ack(ctx); err != nil {
		t.Fatal(err)
	}
	if err := q.Announce(ctx, proto.AgentInfo{ID: "agent-1"}, time.Minute); err != nil {
		t.Fatal(err)
	}
}

// lostMessages is a damaged server: it was killed and its message
// files are gone, while the consumer's state, forty tasks on, is not.
func lostMessages(ctx context.Context, t *testing.T, lease time.Duration) (q *natsq.Queue, lost []proto.Task, url string) {
	t.Helper()
	srv := startChild(t)
	q = open(t, natsq.Config{URL: srv.url, Lease: lease, Patience: 500 * time.Millisecond})
	tasks := queuetest.Tasks("1", 50)
	if _, err := q.Publish(ctx, tasks); err != nil {
		t.Fatal(err)
	}
	take(ctx, t, q, 40)
	srv.kill()
	files, err := filepath.Glob(filepath.Join(srv.dir, "jetstream", "*", "streams", natsq.TasksStream, "msgs", "*"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no message files: %v", err)
	}
	for _, path := range files {
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
	srv.start()
	return q, tasks[40:], srv.url
}

// take takes and acks n tasks.
func take(ctx context.Context, t *testing.T, q *natsq.Queue, n int) {
	t.Helper()
	for range n {
		d, err := q.Next(ctx, queuetest.NewTask("1", 1, 7).Pool())
		if err != nil {
			t.Fatal(err)
		}
		if err := d.Ack(ctx); err != nil {
			t.Fatal(err)
		}
	}
}

// TestStreamLosesMessages: what is published at once after the loss all comes,
// though the server thinks that the first is held and waits for its lease.
func TestStreamLosesMessages(t *testing.T) {
	ctx := within(t, patience)
	q, lost, _ := lostMessages(ctx, t, 2*time.Second)
	if err := again(ctx, func(ctx context.Context) error { _, err := q.Publish(ctx, lost); return err }); err != nil {
		t.Fatal(err)
	}
	take(ctx, t, q, len(lost))
}

// TestConsumerAheadOfStream: an idle agent finds the damage before anything is
// published, so nothing waits for a lease (here of half an hour) that nobody
// holds.
func TestConsumerAheadOfStream(t *testing.T) {
	ctx := within(t, patience)
	q, lost, url := lostMessages(ctx, t, 10*patience)
	js, durable := operator(t, url), "pool-"+string(lost[0].Pool())
	for healthy := false; !healthy; {
		idle, cancel := context.WithTimeout(ctx, time.Second)
		_, err := q.Next(idle, lost[0].Pool())
		cancel()
		if !errors.Is(err, context.DeadlineExceeded) || ctx.Err() != nil {
			t.Fatalf("Next of an empty stream: %v", err)
		}
		cons, err := js.Consumer(ctx, natsq.TasksStream, durable)
		healthy = errors.Is(err, jetstream.ErrConsumerNotFound) || err == nil && cons.CachedInfo().Delivered.Stream == 0
	}
	if _, err := q.Publish(ctx, lost); err != nil {
		t.Fatal(err)
	}
	take(ctx, t, q, len(lost))
}

// TestLastBlockTruncated: the last file of messages was cut by a crash; what is
// published again all comes.
func TestLastBlockTruncated(t *testing.T) {
	ctx := within(t, patience)
	srv := startChild(t)
	q := open(t, natsq.Config{URL: srv.url, Patience: time.Second})
	tasks := queuetest.Tasks("1", 100)
	if _, err := q.Publish(ctx, tasks); err != nil {
		t.Fatal(err)
	}
	srv.kill()
	blocks, err := filepath.Glob(filepath.Join(srv.dir, "jetstream", "*", "streams", natsq.TasksStream, "msgs", "*.blk"))
	if err != nil || len(blocks) == 0 {
		t.Fatalf("no message files: %v", err)
	}
	last := blocks[len(blocks)-1]
	info, err := os.Stat(last)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(last, info.Size()/2); err != nil {
		t.Fatal(err)
	}
	srv.start()
	// What the audit does: publish again what is missing.
	if err := again(ctx, func(ctx context.Context) error { _, err := q.Publish(ctx, tasks); return err }); err != nil {
		t.Fatal(err)
	}
	seen := map[proto.TaskID]bool{}
	for len(seen) < len(tasks) {
		d, err := q.Next(ctx, tasks[0].Pool())
		if err != nil {
			t.Fatalf("%d of %d came: %v", len(seen), len(tasks), err)
		}
		task, err := d.Task()
		if err != nil {
			t.Fatal(err)
		}
		seen[task.ID] = true
		if err := d.Ack(ctx); err != nil {
			t.Fatal(err)
		}
	}
}

// TestServerGone: calls with a dead server end with their context and name the
// URL; waits end with theirs.
func TestServerGone(t *testing.T) {
	srv := startChild(t)
	q := open(t, natsq.Config{URL: srv.url, Patience: time.Second})
	srv.kill()
	ctx := within(t, 300*time.Millisecond)
	task := queuetest.NewTask("1", 1, 7)
	if _, err := q.Next(ctx, task.Pool()); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Next: %v, want the deadline", err)
	}
	ctx = within(t, 300*time.Millisecond)
	if n, err := q.Publish(ctx, []proto.Task{task}); n != 0 || err == nil || errors.Is(err, queue.ErrFull) || !strings.Contains(err.Error(), srv.url) {
		t.Errorf("Publish: %d, %v", n, err)
	}
	ctx = within(t, 300*time.Millisecond)
	if err := q.Report(ctx, queuetest.NewResult(task, "agent-1")); err == nil || !strings.Contains(err.Error(), srv.url) {
		t.Errorf("Report: %v", err)
	}
}

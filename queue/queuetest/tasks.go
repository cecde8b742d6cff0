package queuetest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/oomfleet/oomfleet/proto"
	"github.com/oomfleet/oomfleet/queue"
)

func publishThenNext(b *bench) {
	// Values that would break a subject must travel unharmed.
	task := NewTask("580.105.08 beta\t*.>", 1, 7)
	task.Cell.Env = map[string]string{"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}
	task.CellID = task.Cell.ID()
	b.publish(task)
	d, got := b.next(task.Pool())
	if got.ID != task.ID || got.Fence != 7 || got.Cell.Driver != task.Cell.Driver || got.Validate() != nil {
		b.Fatalf("got %+v, want %+v", got, task)
	}
	if d.Lease() != b.Lease {
		b.Fatalf("lease %s, want %s", d.Lease(), b.Lease)
	}
	b.ok("Ack", d.Ack(b.ctx))
	b.nothing(task.Pool())
	if ids := b.waiting(); len(ids) != 0 {
		b.Fatalf("%v waits after the ack", ids)
	}
}

func poolsDoNotMix(b *bench) {
	one, two := NewTask("1", 1, 7), NewTask("2", 1, 7)
	b.publish(one, two)
	if _, got := b.next(two.Pool()); got.ID != two.ID {
		b.Fatalf("pool of %s got %s", two.ID, got.ID)
	}
	b.nothing(two.Pool())
	if _, got := b.next(one.Pool()); got.ID != one.ID {
		b.Fatalf("pool of %s got %s", one.ID, got.ID)
	}
}

func publishedTwice(b *bench) {
	tasks := Tasks("1", 3)
	b.publish(tasks[:2]...)
	b.publish(tasks...)
	b.publish(tasks...)
	for range 3 {
		d, _ := b.next(tasks[0].Pool())
		b.ok("Ack", d.Ack(b.ctx))
	}
	b.nothing(tasks[0].Pool())
}

// publishedAgain is what the coordinator's audit does when a task was acked and
// its result never came: the same id and fence must get through once more.
func publishedAgain(b *bench) {
	task := NewTask("1", 1, 7)
	for range 3 {
		b.publish(task)
		d, got := b.next(task.Pool())
		if got.ID != task.ID {
			b.Fatalf("got %s, want %s", got.ID, task.ID)
		}
		b.ok("Ack", d.Ack(b.ctx))
	}
}

func anotherFence(b *bench) {
	old, renewed := NewTask("1", 1, 7), NewTask("1", 1, 9)
	b.publish(old, NewTask("1", 2, 7))
	b.publish(renewed, NewTask("1", 3, 7))
	fences := map[proto.TaskID]proto.Fence{}
	for range 3 {
		d, got := b.next(old.Pool())
		fences[got.ID] = got.Fence
		b.ok("Ack", d.Ack(b.ctx))
	}
	if len(fences) != 3 || fences[renewed.ID] != 9 {
		b.Fatalf("fences %v, want 9 for %s", fences, renewed.ID)
	}
	b.nothing(old.Pool())
}

func doubledInOneCall(b *bench) {
	task := NewTask("1", 1, 7)
	b.publish(task, NewTask("1", 2, 7), task)
	if ids := b.waiting(); len(ids) != 2 {
		b.Fatalf("%d tasks wait, want 2", len(ids))
	}
}

func publishedWhileHeld(b *bench) {
	task := NewTask("1", 1, 7)
	b.publish(task)
	d, _ := b.next(task.Pool())
	b.publish(task) // an audit that races with the agent
	b.ok("Extend", d.Extend(b.ctx))
	b.nothing(task.Pool())
	b.ok("Ack", d.Ack(b.ctx))
	b.nothing(task.Pool())
}

func severalBatches(b *bench) {
	tasks := Tasks("1", 2100)
	b.publish(tasks[1500:1600]...) // so that one batch finds known tasks
	b.publish(tasks...)
	ids := b.waiting()
	for _, t := range tasks {
		if !ids[t.ID] {
			b.Fatalf("task %s is not there", t.ID)
		}
	}
	if len(ids) != len(tasks) {
		b.Fatalf("%d tasks wait, want %d", len(ids), len(tasks))
	}
	n, err := b.q.Publish(b.ctx, nil)
	if n != 0 || err != nil {
		b.Fatalf("Publish nothing: %d, %v", n, err)
	}
}

// fullQueue: nothing is dropped, the call says how many are in, and the
// rest can be published later.
func fullQueue(b *bench) {
	tasks := Tasks("1", 5)
	n, err := b.q.Publish(b.ctx, tasks)
	if n != 3 || !errors.Is(err, queue.ErrFull) {
		b.Fatalf("Publish 5 into 3: %d, %v", n, err)
	}
	for _, t := range tasks[:3] {
		if !b.waiting()[t.ID] {
			b.Fatalf("task %s was dropped", t.ID)
		}
	}
	if n, err := b.q.Publish(b.ctx, tasks[3:]); n != 0 || !errors.Is(err, queue.ErrFull) {
		b.Fatalf("Publish into a full queue: %d, %v", n, err)
	}
	for range 2 {
		d, _ := b.next(tasks[0].Pool())
		b.ok("Ack", d.Ack(b.ctx))
	}
	b.publish(tasks[3:]...)
	if got := len(b.waiting()); got != 3 {
		b.Fatalf("%d tasks wait, want 3", got)
	}
}

func fullQueueKnown(b *bench) {
	tasks := Tasks("1", 4)
	b.publish(tasks[:3]...)
	b.publish(tasks[:3]...) // all known: no room is needed
	n, err := b.q.Publish(b.ctx, tasks)
	if n != 3 || !errors.Is(err, queue.ErrFull) {
		b.Fatalf("Publish 3 known and 1 new into 3: %d, %v", n, err)
	}
}

func taskTooLarge(b *bench) {
	tasks := Tasks("1", 3)
	tasks[1].Cell.Env = map[string]string{"FASTA": strings.Repeat("A", b.MaxMessage)}
	n, err := b.q.Publish(b.ctx, tasks)
	if n != 1 || !errors.Is(err, queue.ErrTooLarge) {
		b.Fatalf("Publish: %d, %v, want 1 and ErrTooLarge", n, err)
	}
	for _, want := range []string{string(tasks[1].ID), fmt.Sprint(b.MaxMessage)} {
		if !strings.Contains(err.Error(), want) {
			b.Errorf("error %q does not name %s", err, want)
		}
	}
	if ids := b.waiting(); len(ids) != 1 || !ids[tasks[0].ID] {
		b.Fatalf("waiting %v, want the first task alone", ids)
	}
}

func badTaskID(b *bench) {
	for _, id := range []proto.TaskID{"", "a.b", "*", "a b", ">", "A", "a\r\nPUB x 0"} {
		task := NewTask("1", 1, 7)
		task.ID = id
		if n, err := b.q.Publish(b.ctx, []proto.Task{task}); n != 0 || err == nil {
			b.Errorf("Publish of id %q: %d, %v, want an error", id, n, err)
		}
	}
	if ids := b.waiting(); len(ids) != 0 {
		b.Fatalf("waiting %v", ids)
	}
	if _, err := b.q.Next(b.ctx, "no pool.*"); err == nil {
		b.Fatal("Next of a pool that is no token: no error")
	}
}

func waiting(b *bench) {
	if ids := b.waiting(); len(ids) != 0 {
		b.Fatalf("a new queue has %v", ids)
	}
	tasks := append(Tasks("1", 2), Tasks("2", 2)...)
	b.publish(tasks...)
	b.next(tasks[0].Pool()) // delivered tasks still lie in the queue
	if ids := b.waiting(); len(ids) != 4 {
		b.Fatalf("waiting %v, want 4", ids)
	}
}

func remove(b *bench) {
	tasks := Tasks("1", 3)
	b.publish(tasks...)
	held, got := b.next(tasks[0].Pool())
	ids := []proto.TaskID{got.ID, tasks[2].ID, "s-unknown-1"}
	b.ok("Remove", b.q.Remove(b.ctx, tasks[0].Pool(), ids))
	b.ok("Remove again", b.q.Remove(b.ctx, tasks[0].Pool(), ids))
	b.ok("Remove nothing", b.q.Remove(b.ctx, tasks[0].Pool(), nil))
	if waits := b.waiting(); len(waits) != 1 {
		b.Fatalf("waiting %v, want one", waits)
	}
	b.ok("Ack of a removed task", held.Ack(b.ctx))
	d, _ := b.next(tasks[0].Pool())
	b.ok("Ack", d.Ack(b.ctx))
	b.nothing(tasks[0].Pool())
}

func nextEnds(b *bench) {
	ctx, cancel := context.WithCancel(b.ctx)
	done := make(chan error, 1)
	go func() {
		_, err := b.q.Next(ctx, NewTask("1", 1, 7).Pool())
		done <- err
	}()
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		b.Fatalf("Next: %v, want context.Canceled", err)
	}
	if _, err := b.q.NextReport(ctx); !errors.Is(err, context.Canceled) {
		b.Fatalf("NextReport: %v, want context.Canceled", err)
	}
}

func nextWakesUp(b *bench) {
	task := NewTask("1", 1, 7)
	b.nothing(task.Pool()) // the pool is known to the queue by then
	got := make(chan proto.Task, 1)
	go func() {
		_, t := b.nextQuiet(task.Pool())
		got <- t
	}()
	b.publish(task)
	if t := <-got; t.ID != task.ID {
		b.Fatalf("got %q, want %s", t.ID, task.ID)
	}
}

// nextQuiet is next for other goroutines: a failure is a zero task.
func (b *bench) nextQuiet(pool proto.Pool) (queue.Delivery, proto.Task) {
	ctx, cancel := context.WithTimeout(b.ctx, soon)
	defer cancel()
	d, err := b.q.Next(ctx, pool)
	if err != nil {
		return nil, proto.Task{}
	}
	t, _ := d.Task()
	return d, t
}

func leaseRunsOut(b *bench) {
	task := NewTask("1", 1, 7)
	began := time.Now() // before the lease begins: nothing that is slow makes this fail
	b.publish(task)
	b.next(task.Pool())
	d, got := b.next(task.Pool())
	if took := time.Since(began); got.ID != task.ID || took < b.Lease*9/10 {
		b.Fatalf("got %s after %s, want it again after %s", got.ID, took, b.Lease)
	}
	b.ok("Ack", d.Ack(b.ctx))
}

// extendKeeps: a run of several leases is delivered once.
func extendKeeps(b *bench) {
	task := NewTask("1", 1, 7)
	b.publish(task)
	d, _ := b.next(task.Pool())
	for end := time.Now().Add(b.Lease * 5 / 2); time.Now().Before(end); {
		b.ok("Extend", d.Extend(b.ctx))
		b.nothing(task.Pool())
	}
	b.ok("Ack", d.Ack(b.ctx))
	b.nothing(task.Pool())
}

// lateAck holds what the queue does not promise: the first holder's ack
// after its lease is taken without an error, and so is the second's.
func lateAck(b *bench) {
	task := NewTask("1", 1, 7)
	b.publish(task)
	first, _ := b.next(task.Pool())
	second, _ := b.next(task.Pool())
	b.ok("late Ack", first.Ack(b.ctx))
	if ids := b.waiting(); len(ids) != 0 {
		b.Fatalf("waiting %v after the late ack", ids)
	}
	b.ok("second Ack", second.Ack(b.ctx))
	b.nothing(task.Pool())
}

func retryAfter(b *bench) {
	task := NewTask("1", 1, 7)
	b.publish(task)
	d, _ := b.next(task.Pool())
	b.ok("Retry at once", d.Retry(b.ctx, 0))
	d, _ = b.next(task.Pool())
	began, delay := time.Now(), 4*time.Second
	b.ok("Retry", d.Retry(b.ctx, delay))
	if ids := b.waiting(); len(ids) != 1 {
		b.Fatalf("waiting %v, want the task that will be retried", ids)
	}
	b.nothing(task.Pool())
	d, _ = b.next(task.Pool())
	if took := time.Since(began); took < delay*9/10 {
		b.Fatalf("delivered again after %s, want %s", took, delay)
	}
	b.ok("Ack", d.Ack(b.ctx))
}

// delayedRetries: what waits for a retry must not keep others waiting.
func delayedRetries(b *bench) {
	tasks := Tasks("1", 1100)
	pool := tasks[0].Pool()
	b.publish(tasks[:1090]...)
	for range 1090 {
		d, _ := b.next(pool)
		b.ok("Retry", d.Retry(b.ctx, 10*time.Minute))
	}
	b.publish(tasks[1090:]...)
	for range 10 {
		d, _ := b.next(pool)
		b.ok("Ack", d.Ack(b.ctx))
	}
}

func drop(b *bench) {
	task := NewTask("1", 1, 7)
	b.publish(task)
	d, _ := b.next(task.Pool())
	b.ok("Drop", d.Drop(b.ctx, "protocol 9,\nthis build speaks 1 "+strings.Repeat("x", 2000)))
	if ids := b.waiting(); len(ids) != 0 {
		b.Fatalf("waiting %v after the drop", ids)
	}
	b.nothing(task.Pool())
}

func eachToOne(b *bench) {
	tasks := Tasks("1", 60)
	b.publish(tasks...)
	var mu sync.Mutex
	got := map[proto.TaskID]int{}
	var agents sync.WaitGroup
	for range 6 {
		agents.Go(func() {
			for range 10 {
				d, t := b.nextQuiet(tasks[0].Pool())
				if d == nil || d.Ack(b.ctx) != nil {
					return
				}
				mu.Lock()
				got[t.ID]++
				mu.Unlock()
			}
		})
	}
	agents.Wait()
	for _, t := range tasks {
		if got[t.ID] != 1 {
			b.Errorf("task %s was delivered %d times", t.ID, got[t.ID])
		}
	}
}

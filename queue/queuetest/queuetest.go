// Package queuetest owns what every adapter of package queue must do, as one
// suite that each adapter runs against itself. It refuses to know how an
// adapter does it; what only one of them can do is tested beside that one.
//
// Start reading at Run.
package queuetest

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/oomfleet/oomfleet/proto"
	"github.com/oomfleet/oomfleet/queue"
)

// Limits are what a suite's queues are set to.
type Limits struct {
	// Lease and ReportLease are far longer than anything takes on a busy
	// machine, and short where a test waits for them to run out.
	Lease, ReportLease time.Duration
	// MaxTasks and MaxMessage are small, since tests fill them up.
	MaxTasks   int
	MaxMessage int // bytes
}

// Suite tells Run how to make queues.
type Suite struct {
	// Start starts a queue of its own and returns a function that opens one
	// more client of it. Everything ends with t.
	Start func(t *testing.T, l Limits) (open func() queue.Queue)
	// Wrap runs one test, inside a bubble of virtual time for adapters that
	// can live in one. nil runs it as it is.
	Wrap func(t *testing.T, test func(*testing.T))
}

// soon bounds what is expected to happen. It is generous: it is only waited for
// in full when a test fails.
const soon = time.Minute

// never is for how long nothing may happen where nothing should.
const never = 300 * time.Millisecond

func limits() Limits {
	return Limits{Lease: 15 * time.Second, ReportLease: 15 * time.Second, MaxTasks: 3000, MaxMessage: 64 << 10}
}

// short sets leases that a test waits for.
func short(l *Limits) { l.Lease, l.ReportLease = 2*time.Second, 2*time.Second }

// bench is what one test works with.
type bench struct {
	*testing.T
	Limits
	ctx  context.Context
	q    queue.Queue
	open func() queue.Queue
}

// Run runs the whole suite.
func Run(t *testing.T, s Suite) {
	tests := []struct {
		name string
		run  func(*bench)
		set  func(*Limits)
	}{
		{"publish then next", publishThenNext, nil},
		{"pools do not mix", poolsDoNotMix, nil},
		{"published twice while waiting is there once", publishedTwice, nil},
		{"published again after ack is delivered again", publishedAgain, nil},
		{"another fence replaces", anotherFence, nil},
		{"doubled in one call", doubledInOneCall, nil},
		{"published while held", publishedWhileHeld, nil},
		{"several batches", severalBatches, nil},
		{"full queue", fullQueue, func(l *Limits) { l.MaxTasks = 3 }},
		{"full queue with known tasks", fullQueueKnown, func(l *Limits) { l.MaxTasks = 3 }},
		{"task too large", taskTooLarge, nil},
		{"task id that is no token", badTaskID, nil},
		{"waiting", waiting, nil},
		{"remove", remove, nil},
		{"next ends with its context", nextEnds, nil},
		{"next wakes up", nextWakesUp, nil},
		{"lease runs out", leaseRunsOut, short},
		{"extend keeps the lease", extendKeeps, func(l *Limits) { l.Lease = 4 * time.Second }},
		{"late ack of the first holder", lateAck, short},
		{"retry after a delay", retryAfter, nil},
		{"many delayed retries do not block", delayedRetries, nil},
		{"drop", drop, nil},
		{"each task goes to one", eachToOne, nil},
		{"report then next report", reportThenNext, nil},
		{"reported twice is stored once", reportedTwice, nil},
		{"report too large", reportTooLarge, nil},
		{"full of reports", fullOfReports, func(l *Limits) { l.MaxTasks = 3 }},
		{"report unacked comes again", reportUnacked, short},
		{"reports in hand", reportsInHand, nil},
		{"presence", presence, nil},
		{"presence runs out", presenceRunsOut, nil},
		{"told to those who listen", toldToListeners, nil},
		{"close ends listening", closeEndsListening, nil},
		{"close ends waits", closeEnds, nil},
	}
	wrap := s.Wrap
	if wrap == nil {
		wrap = func(t *testing.T, test func(*testing.T)) { test(t) }
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			wrap(t, func(t *testing.T) {
				l := limits()
				if tt.set != nil {
					tt.set(&l)
				}
				open := s.Start(t, l)
				tt.run(&bench{T: t, Limits: l, ctx: t.Context(), q: open(), open: open})
			})
		})
	}
}

// NewTask returns a valid task; tasks with the same driver share a pool.
func NewTask(driver string, number int, fence proto.Fence) proto.Task {
	cell := proto.Cell{
		Workload: proto.Workload{Name: "esmfold"}, GPU: "NVIDIA H200", Driver: driver,
		SeqLen: 128 + number, Batch: 1, Env: map[string]string{}, QuotaKind: proto.QuotaAllocator, Step: proto.DefaultStep,
	}
	return proto.Task{
		ID: proto.TaskID(fmt.Sprintf("s-%s-%d", cell.ID(), number)), Protocol: proto.Version, Fence: fence,
		Kind: proto.TaskRecord, Origin: proto.OriginSimulated, CellID: cell.ID(), Cell: cell, TimeoutSeconds: 600,
	}
}

// Tasks returns n tasks of one pool with different ids.
func Tasks(driver string, n int) []proto.Task {
	tasks := make([]proto.Task, n)
	for i := range tasks {
		tasks[i] = NewTask(driver, i, 7)
	}
	return tasks
}

// NewResult returns a result for a task.
func NewResult(t proto.Task, agent proto.AgentID) proto.Result {
	return proto.Result{
		Task: t.ID, Protocol: proto.Version, Fence: t.Fence, CellID: t.CellID, Origin: t.Origin, Kind: t.Kind,
		Agent: agent, Stack: proto.Stack{GPU: t.Cell.GPU, Driver: t.Cell.Driver}, Outcome: proto.OutcomePass,
	}
}

func (b *bench) publish(tasks ...proto.Task) {
	b.Helper()
	n, err := b.q.Publish(b.ctx, tasks)
	if err != nil || n != len(tasks) {
		b.Fatalf("Publish: %d of %d, %v", n, len(tasks), err)
	}
}

// next returns the next delivery of a pool and its task.
func (b *bench) next(pool proto.Pool) (queue.Delivery, proto.Task) {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, soon)
	defer cancel()
	d, err := b.q.Next(ctx, pool)
	if err != nil {
		b.Fatalf("Next: %v", err)
	}
	t, err := d.Task()
	if err != nil {
		b.Fatalf("Task: %v", err)
	}
	return d, t
}

func (b *bench) nothing(pool proto.Pool) {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, never)
	defer cancel()
	d, err := b.q.Next(ctx, pool)
	if d != nil {
		t, _ := d.Task()
		b.Fatalf("Next delivered task %s, want nothing", t.ID)
	}
	if !errors.Is(err, context.DeadlineExceeded) {
		b.Fatalf("Next: %v, want the deadline", err)
	}
}

func (b *bench) report(r proto.Result) {
	b.Helper()
	if err := b.q.Report(b.ctx, r); err != nil {
		b.Fatalf("Report: %v", err)
	}
}

func (b *bench) nextReport(q queue.Queue) (queue.Report, proto.Result) {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, soon)
	defer cancel()
	rep, err := q.NextReport(ctx)
	if err != nil {
		b.Fatalf("NextReport: %v", err)
	}
	r, err := rep.Result()
	if err != nil {
		b.Fatalf("Result: %v", err)
	}
	return rep, r
}

func (b *bench) ok(what string, err error) {
	b.Helper()
	if err != nil {
		b.Fatalf("%s: %v", what, err)
	}
}

// ids are the ids that wait, as a count and a lookup.
func (b *bench) waiting() map[proto.TaskID]bool {
	b.Helper()
	ids, err := b.q.Waiting(b.ctx)
	b.ok("Waiting", err)
	return ids
}

package agent_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"github.com/oomfleet/oomfleet/agent"
	"github.com/oomfleet/oomfleet/agent/probe"
	"github.com/oomfleet/oomfleet/allocator"
	"github.com/oomfleet/oomfleet/proto"
	"github.com/oomfleet/oomfleet/queue"
	"github.com/oomfleet/oomfleet/queue/memq"
	"github.com/oomfleet/oomfleet/storage/trace"
	"github.com/oomfleet/oomfleet/storage/trace/dir"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const lease = 30 * time.Second

// fleet is what an agent lives in: a queue, a trace store, a card, its work
// folder, and a trail of what it did in which order.
type fleet struct {
	*testing.T
	queue   *memq.Queue // the other side's client
	store   *trace.Store
	card    *card
	workDir string
	reg     *prometheus.Registry

	// deciding is held while fail runs, so that it may keep state. It is no
	// mutex: one who waits for a mutex stops virtual time.
	deciding chan struct{}

	mu    sync.Mutex // guards the rest
	trail []string
	// fail decides whether an operation fails, before it is done.
	fail func(op string) error
	// started is when each run began, tasks which it was.
	started []time.Time
	tasks   []proto.TaskID
}

// inFleet runs a test in virtual time.
func inFleet(t *testing.T, test func(*fleet)) {
	t.Helper()
	inFleetOf(t, memq.Config{Lease: lease}, test)
}

// inFleetOf is inFleet with a queue of another configuration.
func inFleetOf(t *testing.T, cfg memq.Config, test func(*fleet)) {
	t.Helper()
	// The trace writer pools compressors that hold channels, and a channel of
	// one bubble may not be used in another: two collections empty the pools.
	defer runtime.GC()
	defer runtime.GC()
	synctest.Test(t, func(t *testing.T) { test(newFleet(t, cfg)) })
}

func newFleet(t *testing.T, cfg memq.Config) *fleet {
	t.Helper()
	q, err := memq.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	driver, err := dir.New(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	f := &fleet{T: t, queue: q, store: trace.NewStore(driver), workDir: t.TempDir(), reg: prometheus.NewRegistry(),
		deciding: make(chan struct{}, 1)}
	f.card = &card{fleet: f, says: described("GPU-4F2A", "580.159.04")}
	return f
}

func described(uuid, driver string) probe.Description {
	return probe.Description{
		Stack: proto.Stack{GPU: "NVIDIA H200", Driver: driver, CUDA: "13.0", Torch: "2.11.0+cu130"}, Simulated: true,
		Card: proto.Card{UUID: uuid, Total: 140 * proto.GiB}, QuotaKinds: []proto.QuotaKind{proto.QuotaAllocator, proto.QuotaProcess},
	}
}

// card is a scripted Prober. The default run passes.
type card struct {
	*fleet
	says       probe.Description
	describing error
	run        func(ctx context.Context, task proto.Task) (probe.Observation, error)
	check      func(ctx context.Context) error
}

func (c *card) Describe(ctx context.Context) (probe.Description, error) {
	if err := ctx.Err(); err != nil {
		return probe.Description{}, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.says, c.describing
}

func (c *card) Run(ctx context.Context, task proto.Task) (probe.Observation, error) {
	c.mu.Lock()
	c.started, c.tasks = append(c.started, time.Now()), append(c.tasks, task.ID)
	run := c.run
	c.mu.Unlock()
	if run != nil {
		return run(ctx, task)
	}
	return passed(task), nil
}

// Check passes by default; the trail shows it.
func (c *card) Check(ctx context.Context) error {
	c.note("check")
	c.mu.Lock()
	check := c.check
	c.mu.Unlock()
	if check != nil {
		return check(ctx)
	}
	return nil
}

// set changes what the card does; the agent may be running.
func (c *card) set(change func(c *card)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change(c)
}

func ptr[T any](v T) *T { return &v }

// passed is what is seen of a run that passes.
func passed(task proto.Task) probe.Observation {
	seen := probe.Observation{Evidence: proto.Evidence{ExitCode: ptr(0), Phase: "done", OutputFinite: ptr(true), Seconds: 42,
		Settings: map[string]string{"max_split_size": "0"},
		Meters: proto.Meters{PeakAllocated: ptr(2 * proto.GiB), PeakReserved: ptr(3 * proto.GiB), ProcessPeak: ptr(4 * proto.GiB),
			NumAllocRetries: ptr(int64(0)), NumOOMs: ptr(int64(0))}}}
	if task.Kind == proto.TaskRecord {
		seen.Events = recording()
	}
	return seen
}

func recording() []allocator.Event {
	const base, size = 0x7f0000000000, 20 << 20
	return []allocator.Event{
		{Action: allocator.SegmentAlloc, Addr: base, Size: size}, {Action: allocator.Alloc, Addr: base, Size: size},
		{Action: allocator.FreeRequested, Addr: base, Size: size}, {Action: allocator.FreeCompleted, Addr: base, Size: size},
	}
}

// out is what is seen of a run that the quota ends.
func out(proto.Task) probe.Observation {
	return probe.Observation{Evidence: proto.Evidence{ExitCode: ptr(1), Phase: "forward", Exception: "OutOfMemoryError", Seconds: 7,
		Message: "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 139.80 GiB of which 120.00 GiB is free. " +
			"9.00 GiB allowed; Of the allocated memory 8.00 GiB is allocated by PyTorch, and 10.00 MiB is reserved by PyTorch but unallocated.",
		Meters: proto.Meters{NumAllocRetries: ptr(int64(1)), NumOOMs: ptr(int64(1))}}}
}

// note writes a step into the trail and says whether it fails.
func (f *fleet) note(op string) error {
	f.mu.Lock()
	f.trail = append(f.trail, op)
	fail := f.fail
	f.mu.Unlock()
	if fail == nil {
		return nil
	}
	f.deciding <- struct{}{}
	defer func() { <-f.deciding }()
	return fail(op)
}

func (f *fleet) failing(fail func(op string) error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fail = fail
}

// steps are the noted steps of these names, in order.
func (f *fleet) steps(names ...string) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var found []string
	for _, op := range f.trail {
		if slices.Contains(names, op) {
			found = append(found, op)
		}
	}
	return strings.Join(found, " ")
}

// watchedQueue is a client of the queue that leaves a trail.
type watchedQueue struct {
	*memq.Queue
	f *fleet
	// alter changes deliveries; nil leaves them.
	alter func(queue.Delivery) queue.Delivery
}

func (w *watchedQueue) Next(ctx context.Context, pool proto.Pool) (queue.Delivery, error) {
	if err := w.f.note("next"); err != nil {
		return nil, err
	}
	d, err := w.Queue.Next(ctx, pool)
	if err != nil {
		return nil, err
	}
	if w.alter != nil {
		d = w.alter(d)
	}
	return &watchedDelivery{d, w.f}, nil
}

func (w *watchedQueue) Report(ctx context.Context, r proto.Result) error {
	if err := w.f.note("report"); err != nil {
		return err
	}
	return w.Queue.Report(ctx, r)
}

func (w *watchedQueue) Retire(ctx context.Context, id proto.AgentID) error {
	w.f.note("retire " + string(id))
	return w.Queue.Retire(ctx, id)
}

type watchedDelivery struct {
	queue.Delivery
	f *fleet
}

func (w *watchedDelivery) Extend(ctx context.Context) error {
	if err := w.f.note("extend"); err != nil {
		return err
	}
	return w.Delivery.Extend(ctx)
}

func (w *watchedDelivery) Ack(ctx context.Context) error {
	if err := w.f.note("ack"); err != nil {
		return err
	}
	return w.Delivery.Ack(ctx)
}

func (w *watchedDelivery) Retry(ctx context.Context, delay time.Duration) error {
	w.f.note("retry")
	return w.Delivery.Retry(ctx, delay)
}

func (w *watchedDelivery) Drop(ctx context.Context, reason string) error {
	w.f.note("drop: " + reason)
	return w.Delivery.Drop(ctx, reason)
}

// watchedTraces is the trace store with a trail.
type watchedTraces struct{ f *fleet }

func (w watchedTraces) PutTrace(ctx context.Context, events []allocator.Event, meta trace.Meta) (proto.TraceRef, error) {
	if err := w.f.note("store"); err != nil {
		return proto.TraceRef{}, err
	}
	ref, err := w.f.store.PutTrace(ctx, events, meta)
	if err == nil {
		err = w.f.note("stored")
	}
	return ref, err
}

// deps are an agent's, with a queue client of its own.
func (f *fleet) deps() agent.Deps {
	return agent.Deps{Queue: &watchedQueue{Queue: f.queue.Client(), f: f}, Prober: f.card, Traces: watchedTraces{f}}
}

func (f *fleet) agent(deps agent.Deps) *agent.Agent {
	f.Helper()
	a, err := agent.New(agent.Config{WorkDir: f.workDir, Host: "host", PID: 7, Version: "v1"}, deps)
	if err != nil {
		f.Fatal(err)
	}
	return a
}

// running is an agent at work.
type running struct {
	*agent.Agent
	f    *fleet
	end  context.CancelFunc
	done chan error
}

func (f *fleet) start(deps agent.Deps) *running {
	f.Helper()
	a := f.agent(deps)
	ctx, cancel := context.WithCancel(f.Context())
	r := &running{a, f, cancel, make(chan error, 1)}
	go func() { r.done <- a.Run(ctx) }() // joined by stop
	return r
}

// stop ends the agent as its operator does, and joins it.
func (r *running) stop() {
	r.f.Helper()
	r.end()
	if err := <-r.done; err != nil {
		r.f.Errorf("Run: %v", err)
	}
}

// task makes a valid task for the card's stack.
func (f *fleet) task(number int, kind proto.TaskKind) proto.Task {
	cell := proto.Cell{Workload: proto.Workload{Name: "esmfold"}, GPU: "NVIDIA H200", Driver: "580.159.04", SeqLen: 100 + number, Batch: 1,
		Env: map[string]string{}, QuotaKind: proto.QuotaAllocator, Step: proto.DefaultStep}
	t := proto.Task{ID: proto.TaskID(fmt.Sprintf("s-%s-%d", cell.ID(), number)), Protocol: proto.Version, Fence: 7, Kind: kind,
		Origin: proto.OriginSimulated, CellID: cell.ID(), Cell: cell, TimeoutSeconds: 600}
	if kind == proto.TaskProbe {
		t.Quota = 9 * proto.GiB
	}
	return t
}

func (f *fleet) publish(tasks ...proto.Task) {
	f.Helper()
	if n, err := f.queue.Publish(f.Context(), tasks); err != nil || n != len(tasks) {
		f.Fatalf("publish: %d, %v", n, err)
	}
}

// report is the next result that comes home, acked.
func (f *fleet) report() proto.Result {
	f.Helper()
	ctx, cancel := context.WithTimeout(f.Context(), time.Hour)
	defer cancel()
	rep, err := f.queue.NextReport(ctx)
	if err != nil {
		f.Fatalf("no report: %v", err)
	}
	r, err := rep.Result()
	if err != nil {
		f.Fatal(err)
	}
	if err := rep.Ack(ctx); err != nil {
		f.Fatal(err)
	}
	return r
}

// rest waits until the agent has nothing left to do at this moment.
func (f *fleet) rest() { synctest.Wait() }

// pass lets time pass.
func (f *fleet) pass(d time.Duration) {
	wake := time.NewTimer(d)
	<-wake.C
	f.rest()
}

func (f *fleet) noReport() {
	f.Helper()
	if n, err := f.queue.ReportsPending(f.Context()); err != nil || n != 0 {
		f.Errorf("%d reports more than expected, %v", n, err)
	}
}

// lies checks how many tasks lie in the queue.
func (f *fleet) lies(want int) {
	f.Helper()
	if ids, err := f.queue.Waiting(f.Context()); err != nil || len(ids) != want {
		f.Errorf("%d tasks lie in the queue, want %d (%v)", len(ids), want, err)
	}
}

// says is the announcement of the only agent.
func (f *fleet) says() proto.AgentInfo {
	f.Helper()
	agents, err := f.queue.Agents(f.Context())
	if err != nil || len(agents) != 1 {
		f.Fatalf("%d agents are announced, want 1 (%v): %+v", len(agents), err, agents)
	}
	return agents[0]
}

func (f *fleet) ran() []proto.TaskID {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.tasks)
}

// outbox are the files in it.
func (f *fleet) outbox() []string {
	f.Helper()
	entries, err := os.ReadDir(filepath.Join(f.workDir, "outbox"))
	if err != nil {
		f.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func (f *fleet) traces() int {
	f.Helper()
	n := 0
	for _, err := range f.store.List(f.Context()) {
		if err != nil {
			f.Fatal(err)
		}
		n++
	}
	return n
}

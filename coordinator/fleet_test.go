package coordinator

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"github.com/oomfleet/oomfleet/allocator"
	"github.com/oomfleet/oomfleet/proto"
	"github.com/oomfleet/oomfleet/queue"
	"github.com/oomfleet/oomfleet/queue/memq"
	"github.com/oomfleet/oomfleet/storage/registry"
	"github.com/oomfleet/oomfleet/storage/trace"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// replicaOfOne is a Registry over a real machine, committed at once. leading
// and fail are what tests play with.
type replicaOfOne struct {
	mu      sync.Mutex // guards all below
	machine *registry.Machine
	index   uint64
	began   time.Time     // of the log's time
	applied chan struct{} // closed at the next entry
	leading bool
	turned  chan struct{} // closed when leading changes
	// fail is asked before each proposal (n counts from 1). An error that is
	// ErrUncertain commits all the same.
	fail      func(n int, cmd registry.Command) error
	proposals int
}

func newReplicaOfOne() *replicaOfOne {
	return &replicaOfOne{machine: registry.New(), applied: make(chan struct{}), leading: true, turned: make(chan struct{}), began: time.Unix(0, 0)}
}

// from sets the log's time for entries to come.
func (r *replicaOfOne) from(began time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.began = began
}

// failing sets fail while others propose.
func (r *replicaOfOne) failing(fail func(n int, cmd registry.Command) error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.fail = fail
}

func (r *replicaOfOne) Propose(ctx context.Context, cmd registry.Command) (registry.Reply, error) {
	if err := ctx.Err(); err != nil {
		return registry.Reply{}, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.leading {
		return registry.Reply{}, &registry.NotLeaderError{}
	}
	r.proposals++
	var fault error
	if r.fail != nil {
		if fault = r.fail(r.proposals, cmd); fault != nil && !errors.Is(fault, registry.ErrUncertain) {
			return registry.Reply{}, fault
		}
	}
	text, err := registry.EncodeCommand(cmd) // through the codec, as a log would
	if err != nil {
		return registry.Reply{}, err
	}
	if cmd, err = registry.DecodeCommand(text); err != nil {
		return registry.Reply{}, err
	}
	r.index++
	reply := r.machine.Apply(r.index, r.began.Add(time.Duration(r.index)*time.Second), cmd)
	close(r.applied)
	r.applied = make(chan struct{})
	if fault != nil {
		return registry.Reply{}, fault
	}
	return reply, nil
}

// restore puts a state in place of the present one, as a backup does.
func (r *replicaOfOne) restore(v registry.View) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.index += 10
	var text bytes.Buffer
	if err := v.Replacing(r.machine.View(), r.index).WriteSnapshot(&text); err != nil {
		return err
	}
	if err := r.machine.Restore(&text); err != nil {
		return err
	}
	close(r.applied)
	r.applied = make(chan struct{})
	return nil
}

func (r *replicaOfOne) View() registry.View { return r.machine.View() }

func (r *replicaOfOne) Changed(after uint64) <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.index > after {
		c := make(chan struct{})
		close(c)
		return c
	}
	return r.applied
}

func (r *replicaOfOne) Leadership() (bool, <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.leading, r.turned
}

func (r *replicaOfOne) lead(leading bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.leading != leading {
		r.leading = leading
		close(r.turned)
		r.turned = make(chan struct{})
	}
}

// recordings is a trace store in memory. The program of a cell is one block of
// seq_len MiB, so its boundary is known without any model.
type recordings struct {
	mu    sync.Mutex // guards reads and programs
	reads int
	// fail is asked before each read (n counts from 1).
	fail      func(n int) error
	truncated bool
	programs  map[proto.Digest][]byte
}

func (s *recordings) PutProgram(_ context.Context, text []byte) (proto.Digest, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reads++
	if s.fail != nil {
		if err := s.fail(s.reads); err != nil {
			return "", err
		}
	}
	if s.programs == nil {
		s.programs = make(map[proto.Digest][]byte)
	}
	digest := trace.DigestOf(text)
	s.programs[digest] = text
	return digest, nil
}

func (s *recordings) GetProgram(_ context.Context, digest proto.Digest) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reads++
	if s.fail != nil {
		if err := s.fail(s.reads); err != nil {
			return nil, err
		}
	}
	if text, ok := s.programs[digest]; ok {
		return text, nil
	}
	return nil, trace.ErrNotFound
}

func (s *recordings) GetTrace(_ context.Context, digest proto.Digest) ([]allocator.Event, trace.Meta, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reads++
	if s.fail != nil {
		if err := s.fail(s.reads); err != nil {
			return nil, trace.Meta{}, err
		}
	}
	var length int64
	if _, err := fmt.Sscanf(string(digest), "%064x", &length); err != nil {
		return nil, trace.Meta{}, fmt.Errorf("%w: %w", trace.ErrNotFound, err)
	}
	return program(length << 20), trace.Meta{Truncated: s.truncated}, nil
}

// program is the trace of one block in a segment of its own.
func program(size int64) []allocator.Event {
	return []allocator.Event{
		{Action: allocator.SegmentAlloc, Addr: 1 << 40, Size: size},
		{Action: allocator.Alloc, Addr: 1 << 40, Size: size},
		{Action: allocator.FreeRequested, Addr: 1 << 40, Size: size},
		{Action: allocator.FreeCompleted, Addr: 1 << 40, Size: size},
	}
}

// truthOf is the quota from which on a cell really passes: seq_len MiB as its
// recording says, except that every fifth length adapts and passes from 16 MiB
// less, and every seventh needs 6 MiB more than its recording shows.
func truthOf(c proto.Cell) proto.Bytes {
	switch b := proto.Bytes(c.SeqLen) * proto.MiB; {
	case c.SeqLen%5 == 0:
		return b - 16*proto.MiB
	case c.SeqLen%7 == 0:
		return b + 6*proto.MiB
	default:
		return b
	}
}

// wantState is how a cell of truthOf settles.
func wantState(c proto.Cell) proto.CellState {
	switch {
	case c.SeqLen%5 == 0:
		return proto.CellAdaptive
	case c.SeqLen%7 == 0:
		return proto.CellBisected
	}
	return proto.CellCertified
}

// runOf is an honest agent's result.
func runOf(t proto.Task, agent proto.AgentID) proto.Result {
	r := proto.Result{
		Task: t.ID, Protocol: t.Protocol, Fence: t.Fence, CellID: t.CellID, Origin: t.Origin, Kind: t.Kind, Quota: t.Quota, Agent: agent,
		Stack:   proto.Stack{GPU: t.Cell.GPU, Driver: t.Cell.Driver, CUDA: "13.0", Torch: "2.11.0"},
		Card:    proto.Card{UUID: "GPU-1", Total: 64 * proto.GiB},
		Outcome: proto.OutcomePass, Evidence: proto.Evidence{Seconds: 1, StderrTail: "a long story"},
	}
	size := proto.Bytes(t.Cell.SeqLen) * proto.MiB
	if t.Kind == proto.TaskRecord {
		process, weights, context := size+700*proto.MiB, 8*proto.MiB, 600*proto.MiB
		r.Evidence.Meters = proto.Meters{PeakAllocated: &size, PeakReserved: &size, ProcessPeak: &process, Weights: &weights, Context: &context}
		r.Evidence.Trace = &proto.TraceRef{Digest: proto.Digest(fmt.Sprintf("%064x", t.Cell.SeqLen)), Size: 100, Events: 4}
	} else if t.Quota < truthOf(t.Cell) {
		r.Outcome, r.Why = proto.OutcomeOOMQuota, "refused by the quota"
	}
	return r
}

// fleet is a coordinator under test with what it works on.
type fleet struct {
	t        *testing.T
	ctx      context.Context
	registry *replicaOfOne
	queue    queue.Queue
	traces   *recordings
	cfg      Config
	metrics  *prometheus.Registry
}

const gpu, driver = "NVIDIA H200", "580.159.04"

var stack = proto.Stack{GPU: gpu, Driver: driver}

func newFleet(t *testing.T) *fleet {
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	t.Cleanup(cancel)
	q, err := memq.New(memq.Config{ReportLease: 300 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	return &fleet{
		t: t, ctx: ctx, registry: newReplicaOfOne(), queue: q, traces: &recordings{}, metrics: prometheus.NewRegistry(),
		cfg: Config{AuditEvery: 5 * time.Millisecond, Pause: time.Millisecond, ReplayWorkers: 2},
	}
}

// start runs a new coordinator; stop ends and joins it.
func (f *fleet) start() (c *Coordinator, stop func()) {
	f.t.Helper()
	f.metrics = prometheus.NewRegistry()
	c, err := New(f.cfg, Deps{Registry: f.registry, Queue: f.queue, Traces: f.traces, Metrics: f.metrics})
	if err != nil {
		f.t.Fatal(err)
	}
	return c, f.background(c.Run)
}

// agents runs n agents that do work with each delivery.
func (f *fleet) agents(n int, work func(ctx context.Context, d queue.Delivery, agent proto.AgentID) error) (stop func()) {
	f.t.Helper()
	return f.background(func(ctx context.Context) error {
		var wg sync.WaitGroup
		defer wg.Wait()
		for i := range n {
			wg.Go(func() {
				for ctx.Err() == nil {
					d, err := f.queue.Next(ctx, stack.Pool(proto.OriginMeasured))
					if err == nil {
						err = work(ctx, d, proto.AgentID(fmt.Sprintf("agent-%d", i)))
					}
					if err != nil && ctx.Err() == nil {
						f.t.Errorf("agent %d: %v", i, err)
						return
					}
				}
			})
		}
		return nil
	})
}

// honest runs a task, reports and acks.
func (f *fleet) honest(ctx context.Context, d queue.Delivery, agent proto.AgentID) error {
	task, err := d.Task()
	if err != nil {
		return err
	}
	if err := f.queue.Report(ctx, runOf(task, agent)); err != nil {
		return err
	}
	return d.Ack(ctx)
}

func (f *fleet) background(run func(context.Context) error) (stop func()) {
	ctx, cancel := context.WithCancel(f.ctx)
	ended := make(chan error, 1)
	go func() { ended <- run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			f.t.Errorf("run ended with %v", err)
		}
	})
	f.t.Cleanup(stop)
	return stop
}

// wait blocks until the registry's view satisfies is.
func (f *fleet) wait(what string, is func(registry.View) bool) registry.View {
	f.t.Helper()
	for {
		v := f.registry.View()
		if is(v) {
			return v
		}
		select {
		case <-f.registry.Changed(v.AppliedIndex):
		case <-f.ctx.Done():
			f.t.Fatalf("gave up waiting for %s: %+v", what, v.SweepList())
		}
	}
}

// settled waits for a sweep's end and returns its report.
func (f *fleet) settled(id proto.MatrixID) proto.Report {
	f.t.Helper()
	v := f.wait("sweep "+string(id), func(v registry.View) bool {
		r, ok := v.Report(id)
		return ok && r.State != registry.SweepRunning
	})
	r, _ := v.Report(id)
	return r
}

// fitted waits until a sweep's coefficients are committed.
func (f *fleet) fitted(id proto.MatrixID) proto.Report {
	f.t.Helper()
	v := f.wait("coefficients of "+string(id), func(v registry.View) bool {
		r, ok := v.Report(id)
		return ok && len(r.Coefficients) > 0
	})
	r, _ := v.Report(id)
	return r
}

// source is a matrix of the given sequence lengths.
func source(lengths string) string {
	return fmt.Sprintf(`apiVersion: oomfleet/v1
name: test
workload: {name: "mine:run"}
target: {gpu: "%s"}
axes:
  seq_len: %s
  driver: "%s"
`, gpu, lengths, driver)
}

func (f *fleet) submit(c *Coordinator, lengths string) proto.MatrixID {
	f.t.Helper()
	reply, err := c.Submit(f.ctx, SubmitRequest{Source: source(lengths), Origin: proto.OriginMeasured})
	if err != nil {
		f.t.Fatal(err)
	}
	return reply.Matrix.ID
}

// check holds a settled report against the truth.
func (f *fleet) check(r proto.Report) {
	f.t.Helper()
	for _, row := range r.Cells {
		c := proto.Cell{SeqLen: row.SeqLen}
		if row.State != wantState(c) || row.Boundary.Boundary != truthOf(c) {
			f.t.Errorf("L%d settled as %s at %s (%s), want %s at %s", row.SeqLen, row.State, row.Boundary.Boundary, row.Reason, wantState(c), truthOf(c))
		}
		if row.State == proto.CellCertified && row.Probes != 2 {
			f.t.Errorf("L%d took %d probes", row.SeqLen, row.Probes)
		}
	}
}

package fleetsim

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/oomfleet/oomfleet/agent/outcome"
	"github.com/oomfleet/oomfleet/allocator"
	"github.com/oomfleet/oomfleet/proto"
	"github.com/oomfleet/oomfleet/storage/registry"
)

// TestEvidence: what a simulated card shows is what the real classifier takes for
// what it is, for every kind of quota.
func TestEvidence(t *testing.T) {
	for _, kind := range proto.QuotaKinds() {
		cell := proto.Cell{GPU: gpuName, Driver: "1", SeqLen: 320, Batch: 1, QuotaKind: kind, Step: proto.DefaultStep}
		tr := newTruth(newDice(3).of("town"), drawWorkload(newDice(3).of("town")), cell, deviateNone)
		edge := tr.edges()[len(tr.edges())-1]
		for _, c := range []struct {
			name  string
			quota proto.Bytes
			want  proto.Verdict
		}{
			{"recording", 0, proto.VerdictPass},
			{"at the edge", edge, proto.VerdictPass},
			{"below the edge", edge - cell.Step, proto.VerdictFail},
			{"far below", edge / 4, proto.VerdictFail},
		} {
			task := proto.Task{Kind: proto.TaskProbe, Cell: cell, Quota: c.quota}
			if c.quota == 0 {
				task.Kind = proto.TaskRecord
			}
			result := tr.run(c.quota, 0, nil)
			got, why := outcome.Classify(outcome.Run{Task: task, Stack: proto.Stack{GPU: gpuName, Driver: "1"}, Evidence: tr.evidence(task, result)})
			if got.Verdict() != c.want {
				t.Errorf("%s quota, %s at %s: %s (%s)", kind, c.name, c.quota, got, why)
			}
			got, why = outcome.Classify(outcome.Run{Task: task, Stack: proto.Stack{GPU: gpuName, Driver: "1"}, Evidence: tr.refusedByNeighbour(result)})
			if got != proto.OutcomeCrowded {
				t.Errorf("%s quota, %s, beside a neighbour: %s (%s)", kind, c.name, got, why)
			}
		}
	}
}

// TestTruth: the truth that is walked quota by quota is what the sweep says of an
// undisturbed program, and some of the invented ones have fail bands.
func TestTruth(t *testing.T) {
	bands := 0
	for seed := range uint64(60) {
		r := newDice(seed).of("town")
		cell := proto.Cell{SeqLen: 64 * (1 + r.IntN(8)), Batch: 1 + r.IntN(2), QuotaKind: proto.QuotaAllocator, Step: proto.DefaultStep}
		tr := newTruth(r, drawWorkload(r), cell, deviateNone)
		var events []allocator.Event
		tr.run(0, 0, func(e allocator.Event) { events = append(events, e) })
		swept, err := allocator.Sweep(events, allocator.SweepOptions{Step: int64(cell.Step)})
		if err != nil || swept.SelfCheckMismatches > 0 {
			t.Fatalf("seed %d: %d mismatches, %v", seed, swept.SelfCheckMismatches, err)
		}
		if swept.LayoutSensitive {
			continue
		}
		b := proto.Boundary{Boundary: proto.Bytes(swept.Boundary), LowestPass: proto.Bytes(swept.LowestPass)}
		for _, band := range swept.FailBands {
			b.FailBands = append(b.FailBands, proto.Band{From: proto.Bytes(band.From), To: proto.Bytes(band.To)})
		}
		if err := tr.holds(b); err != nil {
			t.Errorf("seed %d: %v", seed, err)
		}
		bands += len(b.FailBands)
		if b.Boundary += cell.Step; tr.holds(b) == nil {
			t.Errorf("seed %d: a boundary one step too high goes through", seed)
		}
	}
	if bands == 0 {
		t.Error("no invented program has a fail band")
	}
	t.Logf("%d fail bands", bands)
}

// TestKernel: a process gets its answers in order, ends with its context, and does
// nothing any more once its machine is gone.
func TestKernel(t *testing.T) {
	k := newKernel(t.Context())
	defer k.end()
	var said []string
	say := func(name string, err error) { said = append(said, name+" "+k.now.String()+" "+errText(err)) }
	wait := func(d time.Duration) error { return k.await(func(done func()) { k.after(d, done) }) }
	ctx, cancel := context.WithCancelCause(t.Context())
	first := k.start(ctx, func() {
		say("first", wait(2*time.Second))
		say("first", wait(time.Hour))
	}, func() { say("first ended", nil) })
	second := k.start(t.Context(), func() {
		say("second", wait(time.Second))
		say("second", wait(9*time.Second))
		say("second", wait(time.Second))
	}, func() { t.Error("a killed process came to its end") })
	k.after(4*time.Second, func() { cancel(errDeposed); first.interrupt() })
	k.after(5*time.Second, second.kill)
	for k.step() {
		continue
	}
	want := []string{"second 1s ", "first 2s ", "first 4s leadership lost", "first ended 4s ",
		"second 5s " + registry.ErrClosed.Error(), "second 5s " + registry.ErrClosed.Error()}
	if !slices.Equal(said, want) {
		t.Errorf("got %q\nwant %q", said, want)
	}
}

func errText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// TestStream: the queue's model keeps the contract of package queue.
func TestStream(t *testing.T) {
	s, err := newSim(t.Context(), Config{Seed: 1}, &town{}, size{nodes: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer s.end()
	q := s.queue
	task := proto.Task{ID: "s-a-1", Fence: 3, Origin: proto.OriginSimulated}
	q.publish([]proto.Task{task})
	q.publish([]proto.Task{task})
	if len(q.tasks) != 1 {
		t.Fatalf("%d tasks after the same was published twice", len(q.tasks))
	}
	old := q.pull(task.Pool())
	if old == nil || q.pull(task.Pool()) != nil {
		t.Fatal("a task goes to one of those who ask")
	}
	s.now += lease + 1
	again := q.pull(task.Pool())
	if again == nil {
		t.Fatal("a task whose lease ran out is not delivered again")
	}
	task.Fence = 9
	q.publish([]proto.Task{task})
	if len(q.tasks) != 1 || q.tasks[0].task.Fence != 9 {
		t.Fatalf("a task of another fence does not take the old one's place: %+v", q.tasks)
	}
	if q.ack(old); len(q.tasks) != 1 {
		t.Error("an ack of what was replaced removes what took its place")
	}
	if q.ack(q.tasks[0]); len(q.waiting()) != 0 {
		t.Error("an acked task still waits")
	}
	result := proto.Result{Task: task.ID, Fence: 9, Agent: "a"}
	q.report(result)
	q.report(result)
	letter := q.take()
	if len(q.reports) != 1 || letter == nil || q.take() != nil {
		t.Fatalf("%d reports after one was sent twice", len(q.reports))
	}
	s.now += reportLease
	if q.take() != letter {
		t.Error("a report that is not acked does not come again")
	}
}

// TestShrink: a planted bug's history gets smaller and still shows it.
func TestShrink(t *testing.T) {
	cfg := Config{Seed: 1, Faults: Faults(), mutation: doubleCount}
	h, err := Run(t.Context(), cfg)
	for ; err == nil && h.Violation == nil; h, err = Run(t.Context(), cfg) {
		cfg.Seed++
	}
	if err != nil {
		t.Fatal(err)
	}
	small, err := Shrink(t.Context(), cfg, h.Violation.Kind)
	if err != nil {
		t.Fatal(err)
	}
	again, err := Run(t.Context(), small)
	if err != nil || again.Violation == nil || again.Violation.Kind != h.Violation.Kind {
		t.Fatalf("the smaller one shows %v, %v", again.Violation, err)
	}
	if len(small.Faults) > len(Faults())/2 {
		t.Errorf("%d faults are left: %s", len(small.Faults), small.Command())
	}
	t.Logf("%s\n%s", small.Command(), again.Violation)
}

func TestParseFaults(t *testing.T) {
	for _, list := range [][]Fault{Faults(), {}, {FaultCrash, FaultLeader}} {
		got, err := ParseFaults(formatFaults(list))
		if err != nil || !slices.Equal(got, list) {
			t.Errorf("%v comes back as %v, %v", list, got, err)
		}
	}
	if _, err := ParseFaults("crash,fire"); err == nil || errors.Is(err, registry.ErrClosed) {
		t.Errorf("an unknown fault: %v", err)
	}
}

// TestDrainModel: an agent that drains lets its run go on for a while, then hands the
// task back and says nothing; it comes back and takes work again.
func TestDrainModel(t *testing.T) {
	cell := proto.Cell{Workload: proto.Workload{Name: "sim:town"}, GPU: gpuName, Driver: "1", SeqLen: 64, Batch: 1, Env: map[string]string{}, QuotaKind: proto.QuotaAllocator, Step: proto.DefaultStep}
	key := keyOf(cell.ID())
	town := &town{truths: map[registry.Key]*truth{key: newTruth(newDice(1).of("town"), drawWorkload(newDice(1).of("town")), cell, deviateNone)}, keys: []registry.Key{key}}
	s, err := newSim(t.Context(), Config{Seed: 1}, town, size{nodes: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer s.end()
	task := proto.Task{ID: "s-a-1", Protocol: proto.Version, Fence: 3, Attempt: 1, Kind: proto.TaskRecord, Origin: proto.OriginSimulated, CellID: key.Cell, Cell: cell, TimeoutSeconds: 60}
	s.check.books.issued[run{task.ID, task.Fence}] = task
	s.queue.publish([]proto.Task{task})
	a := newAgent(s, 0, proto.Stack{GPU: gpuName, Driver: "1"})
	s.agents = append(s.agents, a)
	a.begin()
	if a.info().State != proto.AgentBusy || a.info().Task != task.ID {
		t.Fatalf("announces %+v", a.info())
	}
	s.queue.tell(a.stack.Pool(proto.OriginSimulated), proto.Control{Drain: []proto.AgentID{a.id}, DrainSeconds: 1})
	if a.info().State != proto.AgentDraining {
		t.Fatalf("announces %+v", a.info())
	}
	for !a.down && s.step() {
		continue
	}
	if s.now != time.Second || len(s.queue.present()) != 0 || len(s.queue.tasks) != 1 || s.queue.tasks[0].rests > s.now || len(s.queue.reports) != 0 {
		t.Errorf("at %s: %d announced, %d tasks, %d reports", s.now, len(s.queue.present()), len(s.queue.tasks), len(s.queue.reports))
	}
	for len(s.queue.reports) == 0 && s.step() {
		continue
	}
	if len(s.queue.reports) != 1 || s.queue.reports[0].result.Outcome.Verdict() != proto.VerdictPass || s.check.first != nil {
		t.Errorf("%d reports, %v", len(s.queue.reports), s.check.first)
	}
}

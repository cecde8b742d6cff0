package coordinator

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/oomfleet/oomfleet/proto"
	"github.com/oomfleet/oomfleet/queue"
	"github.com/oomfleet/oomfleet/storage/registry"
)

// lengths hold six cells that keep to their recordings, two that adapt and two
// that need more than their recording shows. Four are recorded for their
// program, and the two that adapt and one of those that need more once their
// probes disagree with it.
const lengths = "[64, 66, 68, 72, 74, 76, 80, 90, 56, 98]"

const recorded = 7

func TestMatrixSettles(t *testing.T) {
	f := newFleet(t)
	c, stop := f.start()
	f.agents(3, f.honest)
	id := f.submit(c, lengths)
	f.check(f.settled(id))
	r := f.fitted(id)
	for _, set := range r.Coefficients {
		if set.Origin != proto.OriginMeasured || set.Points != recorded || set.Group.Torch != "2.11.0" || len(set.Model) == 0 {
			t.Errorf("coefficients of %+v from %d points", set.Group, set.Points)
		}
	}
	if len(r.Coefficients) != 3 {
		t.Errorf("%d targets fitted, want allocated, reserved and process", len(r.Coefficients))
	}
	if r.Counts.Certified != 6 || r.Counts.Adaptive != 2 || r.Counts.Bisected != 2 {
		t.Errorf("counts %+v", r.Counts)
	}
	stop()
	f.counted(map[string]float64{
		`oomfleet_tasks_issued_total{kind="record"}`:          recorded,
		`oomfleet_replays_total{result="predicted"}`:          10 + recorded - 4,
		`oomfleet_builds_total{result="made"}`:                1,
		`oomfleet_fits_total{result="committed"}`:             1,
		`oomfleet_results_late_total`:                         0,
		`oomfleet_leader`:                                     1,
		`oomfleet_cells{origin="measured",state="certified"}`: 6,
		`oomfleet_tasks_open{origin="measured"}`:              0,
	})
}

// counted compares metrics by their series.
func (f *fleet) counted(want map[string]float64) {
	f.t.Helper()
	problems, err := testutil.GatherAndLint(f.metrics)
	if err != nil || len(problems) > 0 {
		f.t.Errorf("metrics: %v, %v", problems, err)
	}
	got := f.gather()
	for name, value := range want {
		if v, ok := got[name]; !ok || v != value {
			f.t.Errorf("%s is %v (%v), want %v", name, v, ok, value)
		}
	}
}

func (f *fleet) gather() map[string]float64 {
	f.t.Helper()
	families, err := f.metrics.Gather()
	if err != nil {
		f.t.Fatal(err)
	}
	got := make(map[string]float64)
	for _, family := range families {
		for _, m := range family.GetMetric() {
			name := family.GetName()
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, fmt.Sprintf("%s=%q", l.GetName(), l.GetValue()))
			}
			if len(labels) > 0 {
				name += "{" + strings.Join(labels, ",") + "}"
			}
			got[name] = m.GetCounter().GetValue() + m.GetGauge().GetValue()
		}
	}
	return got
}

// TestDoubledResults: every task is run by two agents, and the second report
// comes after the first was taken. It changes nothing and is counted.
func TestDoubledResults(t *testing.T) {
	f := newFleet(t)
	c, stop := f.start()
	var runs atomic.Int64
	f.agents(2, func(ctx context.Context, d queue.Delivery, agent proto.AgentID) error {
		task, err := d.Task()
		if err != nil {
			return err
		}
		for _, twin := range []proto.AgentID{agent, agent + "-twin"} {
			runs.Add(1)
			if err := f.queue.Report(ctx, runOf(task, twin)); err != nil {
				return err
			}
		}
		return d.Ack(ctx)
	})
	id := f.submit(c, lengths)
	f.check(f.settled(id))
	v := f.wait("all late results", func(v registry.View) bool {
		late, taken := v.Late, 0
		for _, rec := range v.Records {
			late, taken = late+rec.Late, taken+len(rec.Runs)
		}
		return late == taken && int64(late+taken) == runs.Load()
	})
	for _, rec := range v.Records {
		if rec.Late != len(rec.Runs) {
			t.Errorf("L%d: %d late of %d runs", rec.Cell.SeqLen, rec.Late, len(rec.Runs))
		}
	}
	stop()
	if got := f.gather()["oomfleet_results_late_total"]; got != float64(runs.Load()/2) {
		t.Errorf("%v late results counted, want %d", got, runs.Load()/2)
	}
}

// TestRestart: the coordinator is stopped and started again after every few
// results. No run is asked for twice.
func TestRestart(t *testing.T) {
	f := newFleet(t)
	c, stop := f.start()
	var made atomic.Int64
	f.agents(2, func(ctx context.Context, d queue.Delivery, agent proto.AgentID) error {
		made.Add(1)
		return f.honest(ctx, d, agent)
	})
	id := f.submit(c, lengths)
	for taken := 3; ; taken += 3 {
		v := f.wait("some results", func(v registry.View) bool {
			n := 0
			for _, rec := range v.Records {
				n += len(rec.Runs)
			}
			r, _ := v.Report(id)
			return n >= taken || r.State == registry.SweepSettled
		})
		stop()
		_, stop = f.start()
		if r, _ := v.Report(id); r.State == registry.SweepSettled {
			break
		}
	}
	r := f.settled(id)
	f.check(r)
	taken := int64(0)
	for _, rec := range f.registry.View().Records {
		taken += int64(len(rec.Runs))
	}
	// A report that was committed and not acked in time comes again and counts
	// as late; the run behind it was made once.
	if made.Load() != taken {
		t.Errorf("%d runs were made for %d results", made.Load(), taken)
	}
	f.fitted(id)
}

// spied is a queue that tells what was published.
type spied struct {
	queue.Queue
	published chan<- []proto.Task
}

func (s *spied) Publish(ctx context.Context, tasks []proto.Task) (int, error) {
	n, err := s.Queue.Publish(ctx, tasks)
	s.published <- tasks[:n]
	return n, err
}

// TestQueueLost: the queue loses all that it holds. The audit brings it back.
func TestQueueLost(t *testing.T) {
	f := newFleet(t)
	published := make(chan []proto.Task, 100)
	real := f.queue
	f.queue = &spied{real, published}
	c, stop := f.start()
	id := f.submit(c, lengths)
	var ids []proto.TaskID
	for len(ids) < 4 {
		for _, task := range <-published {
			ids = append(ids, task.ID)
		}
	}
	stop() // nobody publishes while the queue is emptied
	if err := f.queue.Remove(f.ctx, stack.Pool(proto.OriginMeasured), ids); err != nil {
		t.Fatal(err)
	}
	f.queue = real
	_, stop = f.start()
	f.agents(2, f.honest)
	f.check(f.settled(id))
	stop()
	if got := f.gather()["oomfleet_audit_republished_total"]; got != 4 {
		t.Errorf("%v tasks published again, want 4", got)
	}
}

// TestLeadership: duties end with the leadership and come back with it.
func TestLeadership(t *testing.T) {
	f := newFleet(t)
	c, _ := f.start()
	var took atomic.Int64
	f.agents(2, func(ctx context.Context, d queue.Delivery, agent proto.AgentID) error {
		if took.Add(1)%4 == 0 {
			f.registry.lead(false)
			f.registry.lead(true)
		}
		return f.honest(ctx, d, agent)
	})
	id := f.submit(c, lengths)
	f.check(f.settled(id))

	f.registry.lead(false)
	if _, err := c.Submit(f.ctx, SubmitRequest{Source: source("[100]"), Origin: proto.OriginMeasured}); !errors.Is(err, registry.ErrNotLeader) {
		t.Errorf("submit on a follower: %v", err)
	}
	if _, err := c.Cancel(f.ctx, id); !errors.Is(err, registry.ErrNotLeader) {
		t.Errorf("cancel on a follower: %v", err)
	}
	if got := f.gather()["oomfleet_leader"]; got != 0 {
		t.Errorf("leader gauge is %v on a follower", got)
	}
}

// TestClosed: a registry that is closed for good ends Run with its error.
func TestClosed(t *testing.T) {
	f := newFleet(t)
	f.registry.fail = func(int, registry.Command) error { return registry.ErrClosed }
	c, err := New(f.cfg, Deps{Registry: f.registry, Queue: f.queue, Traces: f.traces})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- c.Run(f.ctx) }()
	if err := f.queue.Report(f.ctx, proto.Result{Task: "m-x-1", Fence: 1, Agent: "a", Outcome: proto.OutcomePass}); err != nil {
		t.Fatal(err)
	}
	if err := <-done; !errors.Is(err, registry.ErrClosed) {
		t.Errorf("run ended with %v", err)
	}
}

// TestStartStop: Run starts and joins everything, each time, whether its duties
// had begun or not.
func TestStartStop(t *testing.T) {
	f := newFleet(t)
	audited := make(chan struct{}, 1)
	f.queue = &looked{f.queue, audited}
	c, stop := f.start()
	f.submit(c, lengths)
	for i := range 300 {
		if i%3 == 0 {
			<-audited
		}
		stop()
		_, stop = f.start()
	}
}

// looked is a queue that tells when it was audited.
type looked struct {
	queue.Queue
	audited chan<- struct{}
}

func (l *looked) Waiting(ctx context.Context) (map[proto.TaskID]bool, error) {
	select {
	case l.audited <- struct{}{}:
	default:
	}
	return l.Queue.Waiting(ctx)
}

var (
	chaosFrom  = flag.Uint64("chaos-from", 0, "first seed of TestChaos")
	chaosSeeds = flag.Uint64("chaos-seeds", 30, "how many seeds TestChaos runs")
)

// TestChaos: proposals that fail or are left uncertain, a trace store with gaps,
// agents that double or delay their reports, die before the ack or lose the
// task, leaders that change. The boundaries are the same as without.
func TestChaos(t *testing.T) {
	for seed := range *chaosFrom + *chaosSeeds {
		if seed < *chaosFrom {
			continue
		}
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			f := newFleet(t)
			dice := &dice{r: rand.New(rand.NewPCG(seed, 0))}
			f.registry.fail = func(_ int, cmd registry.Command) error {
				if cmd.AddSweep != nil {
					return nil
				}
				switch dice.roll(12) {
				case 0:
					return registry.ErrUncertain
				case 1:
					return errors.New("no quorum")
				}
				return nil
			}
			f.traces.fail = func(int) error {
				if dice.roll(4) == 0 {
					return errors.New("connection reset")
				}
				return nil
			}
			c, _ := f.start()
			f.agents(3, func(ctx context.Context, d queue.Delivery, agent proto.AgentID) error {
				switch dice.roll(10) {
				case 0: // gone without a report, task and all
					return d.Ack(ctx)
				case 1: // reported, and given back instead of acked
					task, err := d.Task()
					if err != nil {
						return err
					}
					return errors.Join(f.queue.Report(ctx, runOf(task, agent)), d.Retry(ctx, 0))
				case 2:
					task, err := d.Task()
					if err != nil {
						return err
					}
					r := runOf(task, agent)
					r.Outcome, r.Why = proto.OutcomeCrowded, "a neighbour moved"
					return errors.Join(f.queue.Report(ctx, r), d.Ack(ctx))
				case 3:
					f.registry.lead(false)
					f.registry.lead(true)
				}
				return f.honest(ctx, d, agent)
			})
			id := f.submit(c, lengths)
			f.checkBoundaries(f.settled(id))
			f.fitted(id)
		})
	}
}

// checkBoundaries is check without the price.
func (f *fleet) checkBoundaries(r proto.Report) {
	f.t.Helper()
	for _, row := range r.Cells {
		if c := (proto.Cell{SeqLen: row.SeqLen}); row.State != wantState(c) || row.Boundary.Boundary != truthOf(c) {
			f.t.Errorf("L%d settled as %s at %s (%s), want %s at %s", row.SeqLen, row.State, row.Boundary.Boundary, row.Reason, wantState(c), truthOf(c))
		}
	}
}

// dice is a seeded source that many goroutines roll.
type dice struct {
	mu sync.Mutex // guards r
	r  *rand.Rand
}

func (d *dice) roll(n int) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.r.IntN(n)
}

func TestNew(t *testing.T) {
	f := newFleet(t)
	good := Deps{Registry: f.registry, Queue: f.queue, Traces: f.traces, Metrics: f.metrics}
	if _, err := New(Config{AuditEvery: -1, ReplayWorkers: -1}, good); err == nil || strings.Count(err.Error(), "negative") != 2 {
		t.Errorf("a bad configuration gives %v, want both problems", err)
	}
	if _, err := New(Config{}, Deps{}); err == nil {
		t.Error("a coordinator without dependencies")
	}
	if _, err := New(Config{}, good); err != nil {
		t.Fatal(err)
	}
	if _, err := New(Config{}, good); err == nil {
		t.Error("the same metrics registered twice")
	}
}

// TestFittedAgainAfterARestore: a leader that has fitted a group fits it again, from
// the same recordings, when a backup of before has taken the registry's place.
func TestFittedAgainAfterARestore(t *testing.T) {
	f := newFleet(t)
	c, _ := f.start()
	f.agents(2, f.honest)
	id := f.submit(c, "[64, 66, 68, 72]")
	f.fitted(id)
	before := f.registry.View()
	before.Coefficients, before.History = nil, nil
	if err := f.registry.restore(before); err != nil {
		t.Fatal(err)
	}
	f.fitted(id)
}

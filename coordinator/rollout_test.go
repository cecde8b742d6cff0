package coordinator

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/oomfleet/oomfleet/matrix"
	"github.com/oomfleet/oomfleet/proto"
	"github.com/oomfleet/oomfleet/queue"
	"github.com/oomfleet/oomfleet/storage/registry"
)

// The drivers of these tests.
const newDriver, thirdDriver = "590.10", "591.1"

// standing is a matrix with a standing order.
func standing(lengths, rollout string) string {
	return fmt.Sprintf(`apiVersion: oomfleet/v1
name: nightly
workload: {name: "mine:run"}
target: {gpu: "%s"}
axes: {seq_len: %s}
rollout: %s
`, gpu, lengths, rollout)
}

// town is a fleet with agents of several drivers.
type town struct {
	*fleet
	c *Coordinator
}

func newTown(t *testing.T) *town {
	w := &town{fleet: newFleet(t)}
	w.c, _ = w.start()
	return w
}

// settleIn announces an agent and lets it work; extra is what its context holds
// more than the first driver's.
func (w *town) settleIn(driver string, extra proto.Bytes) (stop func()) {
	w.t.Helper()
	return w.settleWith(proto.Stack{GPU: gpu, Driver: driver, CUDA: "13.0", Torch: "2.11.0"}, extra)
}

// settleWith is settleIn for a whole stack.
func (w *town) settleWith(stack proto.Stack, extra proto.Bytes) (stop func()) {
	w.t.Helper()
	driver := stack.Driver
	w.announce(proto.AgentInfo{ID: proto.AgentID("on-" + strings.ReplaceAll(driver+strings.TrimPrefix(stack.Torch, "2.11.0"), ".", "-")), Origin: proto.OriginMeasured, Stack: stack})
	return w.background(func(ctx context.Context) error {
		for ctx.Err() == nil {
			d, err := w.queue.Next(ctx, stack.Pool(proto.OriginMeasured))
			if err != nil {
				continue
			}
			task, err := d.Task()
			if err != nil {
				return err
			}
			r := runOf(task, "agent")
			r.Stack = stack
			if m := &r.Evidence.Meters; m.Context != nil {
				context, process := *m.Context+extra, *m.ProcessPeak+extra
				m.Context, m.ProcessPeak = &context, &process
			}
			if err := w.queue.Report(ctx, r); err != nil && ctx.Err() == nil {
				return err
			}
			if err := d.Ack(ctx); err != nil && ctx.Err() == nil {
				return err
			}
		}
		return nil
	})
}

func (w *town) announce(a proto.AgentInfo) {
	w.t.Helper()
	if err := w.queue.Announce(w.ctx, a, time.Hour); err != nil {
		w.t.Fatal(err)
	}
}

func (w *town) order(source string) proto.MatrixID {
	w.t.Helper()
	reply, err := w.c.Submit(w.ctx, SubmitRequest{Source: source, Origin: proto.OriginMeasured})
	if err != nil {
		w.t.Fatal(err)
	}
	return reply.Matrix.ID
}

// started waits for the sweep that a driver's agent has triggered.
func (w *town) started(driver string) proto.MatrixID {
	w.t.Helper()
	var id proto.MatrixID
	w.wait("the sweep of driver "+driver, func(v registry.View) bool {
		for _, s := range v.Sweeps {
			if t := trigger(s); t != nil && t.Stack != nil && t.Stack.Driver == driver {
				id = s.ID
			}
		}
		return id != ""
	})
	return id
}

// judged waits for the verdict of a sweep that says one thing.
func (w *town) judged(id proto.MatrixID, word proto.VerdictWord) proto.SweepVerdict {
	w.t.Helper()
	v := w.wait(fmt.Sprintf("the verdict %q on %s", word, id), func(v registry.View) bool {
		s := v.Sweeps[id]
		return s != nil && s.Rollout != nil && s.Rollout.Verdict != nil && s.Rollout.Verdict.Verdict == word
	})
	return *v.Sweeps[id].Rollout.Verdict
}

// audits waits until the leader has looked at the queue and the agents again.
func (w *town) audits(q *counting) {
	w.t.Helper()
	for seen := q.asked.Load(); q.asked.Load() < seen+3; {
		select {
		case <-w.ctx.Done():
			w.t.Fatal("the leader does not look any more")
		case <-q.looked:
		}
	}
}

// counting is a queue that tells how often it was audited; each audit is
// followed by a look at the agents.
type counting struct {
	queue.Queue
	asked  atomic.Int64
	looked chan struct{}
}

func (q *counting) Waiting(ctx context.Context) (map[proto.TaskID]bool, error) {
	q.asked.Add(1)
	select {
	case q.looked <- struct{}{}:
	default:
	}
	return q.Queue.Waiting(ctx)
}

// count puts a counting queue into a fleet that has not begun.
func count(f *fleet) *counting {
	q := &counting{Queue: f.queue, looked: make(chan struct{}, 1)}
	f.queue = q
	return q
}

func TestNewStackIsSweptAndJudged(t *testing.T) {
	for name, c := range map[string]struct {
		extra   proto.Bytes
		word    proto.VerdictWord
		summary string
	}{
		"more context": {40 * proto.MiB, proto.VerdictChanged, "changed: context +40 MiB"},
		"less context": {-40 * proto.MiB, proto.VerdictChanged, "changed: context -40 MiB"},
		"another name": {0, proto.VerdictSame, "same"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newTown(t)
			w.settleIn(driver, 0)
			first := w.order(standing("[64, 66, 68, 72]", "{on: new-stack}"))
			w.settled(first)
			w.settleIn(newDriver, c.extra)
			id := w.started(newDriver)
			verdict := w.judged(id, c.word)
			if verdict.Base != first || verdict.Summary != c.summary || verdict.From.Driver != driver || verdict.To.Driver != newDriver ||
				verdict.To.Torch != "2.11.0" || verdict.Same+verdict.Changed != 4 {
				t.Errorf("%+v", verdict)
			}
			s := w.registry.View().Sweeps[id]
			if tr := s.Rollout.Trigger; tr.Kind != proto.TriggerNewStack || tr.Of != first || tr.Agent != "on-590-10" || s.Standing() {
				t.Errorf("%+v", s.Rollout)
			}
			// By hand it is the same sweep.
			byHand, err := w.c.Submit(w.ctx, SubmitRequest{Source: standing("[64, 66, 68, 72]", "{on: new-stack}"), Set: []string{"axes.driver=" + newDriver}, Origin: proto.OriginMeasured})
			if err != nil || byHand.Matrix.ID != id || byHand.New != 0 || byHand.Settled != 4 {
				t.Errorf("by hand: %+v, %v", byHand, err)
			}
			w.counted(map[string]float64{
				`oomfleet_rollouts_total{result="queued"}`:                                                          1,
				`oomfleet_sweeps_compared{origin="measured",verdict="` + verdictLabel(c.word) + `"}`:                1,
				`oomfleet_sweeps_compared{origin="measured",verdict="` + verdictLabel(proto.VerdictNeedMore) + `"}`: 0,
			})
		})
	}
}

// TestNewTorchIsRecordedAndJudged: torch is no part of a cell, so the cells that
// were recorded are recorded once more under it, and keep their boundaries.
func TestNewTorchIsRecordedAndJudged(t *testing.T) {
	w := newTown(t)
	leave := w.settleIn(driver, 0)
	first := w.order(standing("[64, 66, 68, 72]", "{on: new-stack}"))
	before := w.settled(first)
	leave()
	w.settleWith(proto.Stack{GPU: gpu, Driver: driver, CUDA: "13.1", Torch: "2.12.0"}, 40*proto.MiB)
	id := w.started(driver)
	verdict := w.judged(id, proto.VerdictChanged)
	if verdict.Summary != "changed: context +40 MiB" || verdict.From.Torch != "2.11.0" || verdict.To.Torch != "2.12.0" || verdict.Changed != 4 {
		t.Errorf("%+v", verdict)
	}
	after := w.settled(id)
	for i, c := range after.Cells {
		if c.State != proto.CellCertified || c.Boundary.Boundary != before.Cells[i].Boundary.Boundary || len(c.Recordings) != 2 {
			t.Errorf("%s at %v with %d recordings", c.State, c.Boundary.Boundary, len(c.Recordings))
		}
	}
	if n := len(w.registry.View().Sweeps); n != 2 {
		t.Errorf("%d sweeps", n)
	}
}

// TestUndecidedCellsAreRepeated: one cell with one recording on each side tells
// nothing about the noise, so the order's repeats are made, and then it does.
func TestUndecidedCellsAreRepeated(t *testing.T) {
	w := newTown(t)
	w.settleIn(driver, 0)
	w.settled(w.order(standing("64", "{on: new-stack, repeat: 4}")))
	w.settleIn(newDriver, 0)
	id := w.started(newDriver)
	verdict := w.judged(id, proto.VerdictSame)
	again := w.settled(id + "-repeat")
	if len(again.Cells) != 2 || again.Rollout.Trigger.Of != id || again.Rollout.Trigger.Repeats < 1 || verdict.Same != 1 {
		t.Fatalf("%+v, %+v", again, verdict)
	}
	for _, c := range again.Cells {
		if c.State != proto.CellCertified || len(c.Recordings) != 1+again.Rollout.Trigger.Repeats {
			t.Errorf("%s of driver %s has %d recordings after %d repeats", c.State, c.Driver, len(c.Recordings), again.Rollout.Trigger.Repeats)
		}
	}
}

// losing is a registry that loses its leader once, at the first proposal of repeats.
type losing struct {
	*replicaOfOne
	lost atomic.Bool
}

func (l *losing) Propose(ctx context.Context, cmd registry.Command) (registry.Reply, error) {
	if add := cmd.AddSweep; add != nil && strings.HasSuffix(string(add.ID), "-repeat") && !l.lost.Swap(true) {
		return registry.Reply{}, &registry.NotLeaderError{}
	}
	return l.replicaOfOne.Propose(ctx, cmd)
}

// TestRepeatsOutliveTheLeader: a leader that is lost between a verdict and its
// repeats leaves them to the next one.
func TestRepeatsOutliveTheLeader(t *testing.T) {
	w := &town{fleet: newFleet(t)}
	var err error
	if w.c, err = New(w.cfg, Deps{Registry: &losing{replicaOfOne: w.registry}, Queue: w.queue, Traces: w.traces}); err != nil {
		t.Fatal(err)
	}
	w.background(w.c.Run)
	w.settleIn(driver, 0)
	w.settled(w.order(standing("64", "{on: new-stack, repeat: 4}")))
	w.settleIn(newDriver, 0)
	w.judged(w.started(newDriver), proto.VerdictSame)
}

// crowdless is a queue that cannot list its agents once it is told so.
type crowdless struct {
	queue.Queue
	broken atomic.Bool
}

func (q *crowdless) Agents(ctx context.Context) ([]proto.AgentInfo, error) {
	if q.broken.Load() {
		return nil, errors.New("bucket oomfleet_agents has history 5")
	}
	return q.Queue.Agents(ctx)
}

// TestStandingOrdersHoldUpNothing: where agents cannot be listed, standing orders
// wait, and what else is to be done is done.
func TestStandingOrdersHoldUpNothing(t *testing.T) {
	w := &town{fleet: newFleet(t)}
	q := &crowdless{Queue: w.queue}
	w.queue = q
	w.c, _ = w.start()
	w.settleIn(driver, 0)
	w.settled(w.order(standing("64", "{on: new-stack}")))
	q.broken.Store(true)
	w.settled(w.submit(w.c, "[66]"))
	w.settleIn(newDriver, 0)
	q.broken.Store(false)
	w.started(newDriver)
}

func TestRepeatByHand(t *testing.T) {
	w := newTown(t)
	w.settleIn(driver, 0)
	id := w.order(standing("64", "{on: new-stack}"))
	report := w.settled(id)
	reply, err := w.c.Repeat(w.ctx, RepeatRequest{Of: id, Cells: []proto.CellID{report.Cells[0].ID}, Repeats: 2})
	if err != nil {
		t.Fatal(err)
	}
	if got := w.settled(reply.Matrix.ID); len(got.Cells[0].Recordings) != 3 {
		t.Errorf("%d recordings", len(got.Cells[0].Recordings))
	}
	var refused *RefusedError
	for name, r := range map[string]RepeatRequest{
		"no cell": {Of: id, Repeats: 1}, "unknown cell": {Of: id, Cells: []proto.CellID{"00"}, Repeats: 1},
		"no repeats": {Of: id, Cells: []proto.CellID{report.Cells[0].ID}}, "too many": {Of: id, Cells: []proto.CellID{report.Cells[0].ID}, Repeats: 21},
	} {
		if _, err := w.c.Repeat(w.ctx, r); !errors.As(err, &refused) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := w.c.Repeat(w.ctx, RepeatRequest{Of: "x", Repeats: 1}); !errors.Is(err, ErrUnknownSweep) {
		t.Errorf("unknown sweep: %v", err)
	}
}

// TestNewLeaderStartsNothingTwice: leaders come and go, the new stack's sweep
// stays the one.
func TestNewLeaderStartsNothingTwice(t *testing.T) {
	f := newFleet(t)
	q := count(f)
	c, stop := f.start()
	w := &town{fleet: f, c: c}
	w.settleIn(driver, 0)
	w.settled(w.order(standing("[64, 66]", "{on: new-stack}")))
	w.settleIn(newDriver, 0)
	w.settled(w.started(newDriver))
	for range 3 {
		stop()
		w.c, stop = f.start()
		w.audits(q)
	}
	if n := len(f.registry.View().Sweeps); n != 2 {
		t.Errorf("there are %d sweeps", n)
	}
}

func TestCancelEndsIt(t *testing.T) {
	f := newFleet(t)
	q := count(f)
	c, _ := f.start()
	w := &town{fleet: f, c: c}
	w.settleIn(driver, 0)
	order := standing("[64, 66]", "{on: new-stack}")
	first := w.order(order)
	w.settled(first)
	// Announced only, so that its sweep waits.
	w.announce(proto.AgentInfo{ID: "idle", Origin: proto.OriginMeasured, Stack: proto.Stack{GPU: gpu, Driver: newDriver}})
	id := w.started(newDriver)
	if _, err := w.c.Cancel(w.ctx, id); err != nil {
		t.Fatal(err)
	}
	w.audits(q)
	if n := len(f.registry.View().Sweeps); n != 2 {
		t.Fatalf("a cancelled sweep came again: %d sweeps", n)
	}
	if _, err := w.c.Cancel(w.ctx, first); err != nil {
		t.Fatal(err)
	}
	w.announce(proto.AgentInfo{ID: "idle-too", Origin: proto.OriginMeasured, Stack: proto.Stack{GPU: gpu, Driver: thirdDriver}})
	w.audits(q)
	if n := len(f.registry.View().Sweeps); n != 2 {
		t.Fatalf("an order that has ended started a sweep: %d sweeps", n)
	}
	// Submitted again it stands again, as a sweep of its own.
	anew := w.order(order)
	if anew == first || !f.registry.View().Sweeps[anew].Standing() {
		t.Errorf("the order that has ended was revived as %s", anew)
	}
}

func TestBoundOfADay(t *testing.T) {
	f := newFleet(t)
	q := count(f)
	c, _ := f.start()
	w := &town{fleet: f, c: c}
	w.settleIn(driver, 0)
	w.settled(w.order(standing("64", "{on: new-stack, max_per_day: 1}")))
	f.registry.from(time.Now()) // the bound goes by the time of the entries
	w.settleIn(newDriver, 0)
	w.started(newDriver)
	w.settleIn(thirdDriver, 0)
	w.audits(q)
	v := f.registry.View()
	if len(v.Sweeps) != 2 {
		t.Fatalf("%d sweeps", len(v.Sweeps))
	}
	w.counted(map[string]float64{`oomfleet_rollouts_total{result="held_back"}`: 1, `oomfleet_rollouts_total{result="queued"}`: 1})
	order := standingOrders(v)[0]
	if n := startedToday(v, order, time.Now()); n != 1 {
		t.Errorf("%d started today", n)
	}
	if n := startedToday(v, order, time.Now().Add(25*time.Hour)); n != 0 {
		t.Errorf("%d started today, tomorrow", n)
	}
}

// TestDue is who gets a sweep, without a fleet.
func TestDue(t *testing.T) {
	agent := func(id, driver string, change func(*proto.AgentInfo)) proto.AgentInfo {
		a := proto.AgentInfo{ID: proto.AgentID(id), Origin: proto.OriginMeasured, Stack: proto.Stack{GPU: gpu, Driver: driver}}
		if change != nil {
			change(&a)
		}
		return a
	}
	m := registry.New()
	order := &registry.Sweep{ID: "o", Name: "nightly", Origin: proto.OriginMeasured, Source: standing("[64, 66]", "{on: new-stack}")}
	x := &expansions{} // one for all: what it remembers changes nothing
	ids := func(agents ...proto.AgentInfo) map[string][]proto.CellID {
		out := map[string][]proto.CellID{}
		all := newcomers(order.Origin, agents)
		for _, n := range all {
			add, _, err := x.due(m.View(), order, n, all)
			if err != nil {
				t.Fatal(err)
			}
			if add != nil {
				for _, c := range add.Cells {
					out[string(add.ID)] = append(out[string(add.ID)], c.ID())
				}
			}
		}
		return out
	}
	alone := ids(agent("a", newDriver, nil))
	if len(alone) != 1 {
		t.Fatalf("%v", alone)
	}
	e, err := matrix.Expand([]byte(order.Source), matrix.Options{Set: []string{"axes.driver=" + newDriver}})
	if err != nil {
		t.Fatal(err)
	}
	for id, cells := range alone {
		if id != string(matrixID(order.Origin, e)) || !slices.Equal(cells, []proto.CellID{e.Cells[0].ID(), e.Cells[1].ID()}) {
			t.Errorf("%s with %v is not what a person would have submitted", id, cells)
		}
		both := ids(agent("b", driver, nil), agent("a", newDriver, nil), agent("z", newDriver, nil))
		if len(both) != 2 || !slices.Equal(both[id], cells) {
			t.Errorf("with another agent there it is %v", both)
		}
	}
	if n := newcomers(order.Origin, []proto.AgentInfo{agent("a", newDriver, func(a *proto.AgentInfo) { a.Stack.GPU = "NVIDIA L4" })}); len(n) != 1 {
		t.Fatalf("%v", n)
	} else if add, _, err := x.due(m.View(), order, n[0], n); add != nil || err != nil {
		t.Errorf("another GPU than the target: %+v, %v", add, err)
	}
	for name, a := range map[string]proto.AgentInfo{
		"no driver":      agent("a", "", nil),
		"another origin": agent("a", newDriver, func(a *proto.AgentInfo) { a.Origin = proto.OriginSimulated }),
		"in quarantine":  agent("a", newDriver, func(a *proto.AgentInfo) { a.State = proto.AgentQuarantined }),
	} {
		if got := ids(a); len(got) != 0 {
			t.Errorf("%s: %v", name, got)
		}
	}
	waiting := newcomers(order.Origin, []proto.AgentInfo{agent("a", newDriver, nil)})
	once, _ := x.of(order, waiting[0], waiting)
	if again, err := x.of(order, waiting[0], waiting); err != nil || again != once {
		t.Errorf("a stack that waits is expanded again: %v", err)
	}
	order.Source = strings.Replace(order.Source, "seq_len", "seqlen", 1)
	n := newcomers(order.Origin, []proto.AgentInfo{agent("a", newDriver, nil)})
	if _, _, err := x.due(m.View(), order, n[0], n); err == nil {
		t.Error("a file that this build cannot read gave a sweep")
	}
}

// TestByVersion: a driver is newer by its numbers.
func TestByVersion(t *testing.T) {
	drivers := []string{"580.159.04", "580.9", "590.10", "580.159.04-synthetic", "580.159"}
	slices.SortFunc(drivers, func(a, b string) int { return byVersion(hardware{gpu, a}, hardware{gpu, b}) })
	if got := strings.Join(drivers, " "); got != "580.9 580.159 580.159.04 580.159.04-synthetic 590.10" {
		t.Error(got)
	}
}

// TestOneOfTwoStacksIsTheBetter: whichever is looked at first, also of drivers that
// are one version written in two ways.
func TestOneOfTwoStacksIsTheBetter(t *testing.T) {
	s := new(registry.Sweep)
	for _, pair := range [][2]hardware{{{"a", "580.9"}, {"a", "580.09"}}, {{"a", "580.9"}, {"b", "580.9"}}, {{"a", "580.9"}, {"a", "580.10"}}} {
		x, y := candidate{sweep: s, on: pair[0]}, candidate{sweep: s, on: pair[1]}
		if x.compare(y) == 0 || x.compare(y) != -y.compare(x) {
			t.Errorf("%v: %d and %d", pair, x.compare(y), y.compare(x))
		}
	}
}

// TestBaseOf: a driver is held against the next older one, in whatever order the
// two were swept.
func TestBaseOf(t *testing.T) {
	type swept struct{ id, gpu, driver string }
	for name, c := range map[string]struct {
		before []swept
		want   string
		driver string
		newer  bool
	}{
		"nothing":                     {},
		"the one before":              {before: []swept{{"a", gpu, "580.9"}}, want: "a", driver: "580.9"},
		"the next older of several":   {before: []swept{{"a", gpu, "580.9"}, {"b", gpu, "570.1"}, {"c", gpu, "590.1"}}, want: "a", driver: "580.9"},
		"of one driver the newest":    {before: []swept{{"a", gpu, "580.9"}, {"b", gpu, "580.9"}}, want: "b", driver: "580.9"},
		"an old driver, swept late":   {before: []swept{{"a", gpu, "580.11"}, {"b", gpu, "590.1"}}, newer: true},
		"newer here, older elsewhere": {before: []swept{{"a", gpu, "590.1"}, {"b", "NVIDIA A100", "570.1"}}, newer: true},
		"another card alone":          {before: []swept{{"b", "NVIDIA A100", "590.1"}}, want: "b", driver: "590.1"},
		"the same card first":         {before: []swept{{"a", gpu, "570.1"}, {"b", "NVIDIA A100", "580.9"}}, want: "a", driver: "570.1"},
		"the same stack is no other":  {before: []swept{{"a", gpu, "580.10"}}},
		"two drivers in one sweep":    {before: []swept{{"a", gpu, "570.1 580.9 590.1"}}, want: "a", driver: "580.9"},
	} {
		t.Run(name, func(t *testing.T) {
			m := registry.New()
			index := uint64(0)
			apply := func(cmd registry.Command) {
				t.Helper()
				index++
				cmd.Version = registry.CommandVersion
				if r := m.Apply(index, time.Unix(int64(index), 0), cmd); r.Refused != "" {
					t.Fatal(r.Refused)
				}
			}
			for _, s := range append(c.before, swept{"z", gpu, "580.10"}) {
				var cells []proto.Cell
				for driver := range strings.FieldsSeq(s.driver) {
					cells = append(cells, proto.Cell{Workload: proto.Workload{Name: "mine:run"}, GPU: s.gpu, Driver: driver, SeqLen: 64, Batch: 1,
						Env: map[string]string{}, QuotaKind: proto.QuotaAllocator, Step: proto.DefaultStep})
				}
				apply(registry.Command{AddSweep: &registry.AddSweep{ID: proto.MatrixID(s.id), Name: "n", Origin: proto.OriginMeasured, Source: "x", Cells: cells}})
				for _, cell := range cells {
					key := registry.Key{Origin: proto.OriginMeasured, Cell: cell.ID()}
					if m.View().Records[key].Settled == nil {
						apply(registry.Command{Settle: &registry.Settle{Key: key, Settlement: registry.Settlement{State: proto.CellCertified}}})
					}
				}
			}
			v := m.View()
			base, driver, newer := BaseOf(v, v.Sweeps["z"])
			got := ""
			if base != nil {
				got = string(base.ID)
			}
			if got != c.want || driver != c.driver || newer != c.newer {
				t.Errorf("compared with %q under %q (newer %v), want %q under %q (%v)", got, driver, newer, c.want, c.driver, c.newer)
			}
		})
	}
}

// TestBasesAreRemembered: what a sweep has in common with others is found out once
// a term, not once for each pair of sweeps; behind a restored backup anew.
func TestBasesAreRemembered(t *testing.T) {
	w := newTown(t)
	w.settleIn(driver, 0)
	first := w.submit(w.c, "[64]")
	w.settled(first)
	d := w.duty()
	v := w.registry.View()
	for range 2 {
		if err := d.compareSweep(w.ctx, v, v.Sweeps[first]); err != nil {
			t.Fatal(err)
		}
	}
	b := &d.rollout.bases
	mark := hardware{gpu: "seen before"}
	if b.known[first] == nil {
		t.Fatal("a comparison remembers nothing")
	}
	b.known[first][mark] = nil
	if _, again := b.cells(v, v.Sweeps[first])[mark]; !again {
		t.Error("the sweep's cells were hashed again")
	}
	v.Restored = 1
	if _, again := b.cells(v, v.Sweeps[first])[mark]; again {
		t.Error("what was known of another registry is still believed")
	}
}

//go:build !race

// Nothing here runs beside anything else: the race detector would add ten minutes
// and find nothing.

package coordinator

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/oomfleet/oomfleet/agent/runner"
	"github.com/oomfleet/oomfleet/agent/sim"
	"github.com/oomfleet/oomfleet/allocator"
	"github.com/oomfleet/oomfleet/coordinator/plan"
	"github.com/oomfleet/oomfleet/matrix"
	"github.com/oomfleet/oomfleet/proto"
	"github.com/oomfleet/oomfleet/storage/registry"
	"github.com/oomfleet/oomfleet/storage/trace"
)

var (
	sixtyFrom  = flag.Uint64("sixty-from", 8, "first seed of TestSixtySeeds; 8 plants an odd cell among the recorded ones")
	sixtySeeds = flag.Uint64("sixty-seeds", 1, "how many seeds TestSixtySeeds plays: the first takes a minute of processor time, each other some seconds")
	sixtyRuns  = flag.Bool("sixty-runs", false, "print the runs of every cell that deviates")
)

// sixtyShare is the share of cells that deviate.
const sixtyShare = 0.2

// tried is a run that was made before.
type tried struct {
	sim.Trial
	digest proto.Digest
}

// memory keeps what does not depend on the seed: runs, replays and programs of
// cells that do what they did under another seed. It is the trace store as well.
type memory struct {
	runs        map[string]tried
	events      map[proto.Digest][]allocator.Event
	programs    map[proto.Digest][]byte
	predictions map[string]answer
	builds      map[string]registry.SetProgram
	truths      map[string]sim.Truth
}

func newMemory() *memory {
	return &memory{runs: map[string]tried{}, events: map[proto.Digest][]allocator.Event{}, programs: map[proto.Digest][]byte{},
		predictions: map[string]answer{}, builds: map[string]registry.SetProgram{}, truths: map[string]sim.Truth{}}
}

func (m *memory) GetTrace(_ context.Context, digest proto.Digest) ([]allocator.Event, trace.Meta, error) {
	events, ok := m.events[digest]
	if !ok {
		return nil, trace.Meta{}, trace.ErrNotFound
	}
	return events, trace.Meta{}, nil
}

func (m *memory) PutProgram(_ context.Context, text []byte) (proto.Digest, error) {
	digest := trace.DigestOf(text)
	m.programs[digest] = text
	return digest, nil
}

func (m *memory) GetProgram(_ context.Context, digest proto.Digest) ([]byte, error) {
	text, ok := m.programs[digest]
	if !ok {
		return nil, trace.ErrNotFound
	}
	return text, nil
}

// sixtyFleet is one sweep of the sixty cells: the real plan, replays and
// programs on a registry of one node, and simulated runs, one after another.
type sixtyFleet struct {
	t       *testing.T
	memory  *memory
	card    sim.Config
	replica *replicaOfOne
	planner plan.Planner
	duty    *duty
}

func (f *sixtyFleet) apply(cmd registry.Command) registry.Reply {
	f.t.Helper()
	cmd.Version = registry.CommandVersion
	reply, err := f.replica.Propose(f.t.Context(), cmd)
	if err != nil {
		f.t.Fatal(err)
	}
	if reply.Refused != "" {
		f.t.Fatalf("the registry refused: %s", reply.Refused)
	}
	return reply
}

// sweep runs the matrix to its end and returns its records by name.
func (m *memory) sweep(t *testing.T, seed uint64, strategy proto.Strategy) map[string]*registry.Record {
	t.Helper()
	f := &sixtyFleet{t: t, memory: m, replica: newReplicaOfOne(), card: sim.Config{Deviations: sim.Deviations{Seed: seed, Share: sixtyShare}}}
	f.duty = &duty{Coordinator: &Coordinator{traces: m, programs: &programs{traces: m}, registry: f.replica, log: slog.New(slog.DiscardHandler)}}
	source, err := os.ReadFile("../deploy/examples/sixty.yaml")
	if err != nil {
		t.Fatal(err)
	}
	e, err := matrix.Expand(source, matrix.Options{Set: []string{"axes.driver=" + sim.Driver, "search.strategy=" + string(strategy)},
		Installed: []proto.Stack{{GPU: sim.GPU, Driver: sim.Driver, CUDA: sim.CUDA, Torch: sim.Torch}}})
	if err != nil {
		t.Fatal(err)
	}
	f.apply(registry.Command{AddSweep: &registry.AddSweep{ID: "sixty", Name: "sixty", Origin: proto.OriginSimulated, Search: e.Search, Cells: e.Cells}})
	for !f.settled() {
		f.round()
	}
	out := map[string]*registry.Record{}
	for _, rec := range f.replica.View().Records {
		out[sixtyName(rec.Cell)] = rec
	}
	return out
}

func (f *sixtyFleet) settled() bool {
	for _, rec := range f.replica.View().Records {
		if rec.Settled == nil {
			return false
		}
	}
	return true
}

// round does all that the plan wants: replays and programs first, then the runs.
func (f *sixtyFleet) round() {
	f.t.Helper()
	a := f.planner.Next(f.replica.View())
	if a.Empty() {
		f.t.Fatal("nothing to do, and cells have not settled")
	}
	var issued []proto.Task
	if len(a.Issue) > 0 {
		issued = f.apply(registry.Command{Issue: &registry.Issue{Seen: f.replica.index, Requests: a.Issue}}).Issued
	}
	for _, s := range a.Settle {
		f.apply(registry.Command{Settle: &s})
	}
	for _, r := range a.Predict {
		f.replay(r)
	}
	for _, b := range a.Build {
		f.build(b)
	}
	for _, task := range issued {
		f.run(task)
	}
}

func textOf(t *testing.T, v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func (f *sixtyFleet) replay(r plan.Replay) {
	f.t.Helper()
	key := textOf(f.t, r)
	a, known := f.memory.predictions[key]
	if !known {
		var err error
		if a, err = f.duty.predict(f.t.Context(), r); err != nil {
			f.t.Fatal(err)
		}
		f.memory.predictions[key] = a
	}
	if a.doubt != nil {
		f.apply(registry.Command{SetProgram: a.doubt})
	}
	p := a.Prediction
	p.Trace, p.Program = r.Trace.Digest, r.Program
	f.apply(registry.Command{SetPrediction: &registry.SetPrediction{Key: r.Key, Prediction: p}})
}

func (f *sixtyFleet) build(b plan.Build) {
	f.t.Helper()
	key := textOf(f.t, b)
	set, known := f.memory.builds[key]
	if !known {
		set = registry.SetProgram{Family: b.Family}
		for _, in := range b.Inputs {
			set.Inputs = append(set.Inputs, in.Trace.Digest)
		}
		var err error
		if set, err = f.duty.program(f.t.Context(), b, set); err != nil {
			f.t.Fatal(err)
		}
		f.memory.builds[key] = set
	}
	f.apply(registry.Command{SetProgram: &set})
}

func (f *sixtyFleet) run(task proto.Task) {
	f.t.Helper()
	c := task.Cell
	d := f.card.Deviations.Of(c)
	req := runner.Request{Op: runner.OpRun, ID: fmt.Sprintf("%s.%d.1", task.ID, task.Attempt),
		Workload: runner.Workload{Name: c.Workload.Name, Params: c.Workload.Params}, SeqLen: c.SeqLen, Batch: c.Batch,
		ChunkSize: c.ChunkSize, Env: c.Env, QuotaKind: string(c.QuotaKind), QuotaBytes: int64(task.Quota), Record: task.Watched()}
	key := fmt.Sprint(task.CellID, d, task.Quota, req.Record)
	if d.Kind == sim.DeviateOrder {
		key += fmt.Sprint(f.card.Deviations.Seed, req.ID)
	}
	run, known := f.memory.runs[key]
	if !known {
		trial, err := sim.Try(f.card, req)
		if err != nil {
			f.t.Fatal(err)
		}
		run = tried{Trial: trial, digest: trace.DigestOf([]byte(key))}
	}
	r := proto.Result{Task: task.ID, Protocol: task.Protocol, Fence: task.Fence, CellID: task.CellID, Origin: task.Origin, Kind: task.Kind,
		Quota: task.Quota, Agent: "a1", Card: proto.Card{UUID: "SIM-1", Total: sim.Total}, Outcome: proto.OutcomePass,
		Stack:    proto.Stack{GPU: c.GPU, Driver: c.Driver, CUDA: sim.CUDA, Torch: sim.Torch},
		Evidence: proto.Evidence{Seconds: run.Seconds, Meters: metersOf(run.Meters)}}
	if !run.Passed {
		r.Outcome = proto.OutcomeOOMQuota
	}
	if task.Keeps(r.Outcome, r.Evidence.Meters) {
		r.Evidence.Trace = &proto.TraceRef{Digest: run.digest, Size: 1, Events: int64(len(run.Events))}
		if run.Events != nil {
			f.memory.events[run.digest] = run.Events
		}
	}
	run.Events = nil
	f.memory.runs[key] = run
	f.apply(registry.Command{TakeResult: &registry.TakeResult{Result: r}})
}

func metersOf(m runner.Meters) proto.Meters {
	b := func(v *int64) *proto.Bytes {
		if v == nil {
			return nil
		}
		n := proto.Bytes(*v)
		return &n
	}
	return proto.Meters{PeakAllocated: b(m.PeakAllocated), PeakReserved: b(m.PeakReserved), ProcessPeak: b(m.ProcessPeak), Context: b(m.Context),
		DeviceTotal: b(m.DeviceTotal), NumAllocRetries: m.NumAllocRetries, NumOOMs: m.NumOOMs}
}

func sixtyName(c proto.Cell) string {
	name := fmt.Sprintf("L%d", c.SeqLen)
	if c.ChunkSize > 0 {
		name += fmt.Sprintf(" c%d", c.ChunkSize)
	}
	for _, v := range c.Env {
		name += " " + v[:3]
	}
	return name
}

func spent(rec *registry.Record) (sum float64) {
	for _, r := range rec.Runs {
		sum += r.Seconds
	}
	return sum
}

// wrong says what is wrong with a settled cell; empty for nothing.
func (m *memory) wrong(t *testing.T, card sim.Config, rec *registry.Record) string {
	d := card.Deviations.Of(rec.Cell)
	key := fmt.Sprint(rec.Key.Cell, d)
	if d.Kind == sim.DeviateOrder {
		key += fmt.Sprint(card.Deviations.Seed)
	}
	truth, known := m.truths[key]
	if !known {
		var err error
		if truth, err = sim.TruthOf(card, rec.Cell); err != nil {
			t.Fatal(err)
		}
		m.truths[key] = truth
	}
	b := rec.Settled.Boundary
	if rec.Settled.State == proto.CellFailed {
		return "failed"
	}
	if d.Kind == sim.DeviateOrder {
		if lowest, highest := truth.Range(); b.Boundary < lowest || b.Boundary > highest {
			return fmt.Sprintf("wrong: %s is not from %s to %s", b.Boundary, lowest, highest)
		}
		return ""
	}
	at, _ := truth.Passes(b.Boundary)
	below, _ := truth.Passes(b.Boundary - proto.DefaultStep)
	switch {
	case !at || below:
		return fmt.Sprintf("wrong: %s, is %s", b.Boundary, truth.Boundary())
	case b.Boundary != truth.Boundary():
		return fmt.Sprintf("missed: %s, is %s", b.Boundary, truth.Boundary())
	case (d.Kind == "" || b.BandsKnown) && !slices.Equal(b.FailBands, truth.FailBands()):
		return fmt.Sprintf("bands: %v, is %v", b.FailBands, truth.FailBands())
	case d.Kind == sim.DeviateAdaptive && rec.Settled.State != proto.CellAdaptive:
		return "not told as adaptive"
	}
	return ""
}

// sixtyMost is what predict may take of the seconds of bisect, whatever deviates;
// sixtyMedian holds for half of ten seeds or more.
const (
	sixtyMost   = 0.33
	sixtyMedian = 0.26
)

// TestSixtySeeds plants many deviations in the sixty cells and holds each planting
// to no wrong or missed boundary and a share of the seconds of bisection. What
// internal/devfleet's TestSixtyCells does with one seed and whole fleets, it does
// with many and in this process; both come to the same seconds.
func TestSixtySeeds(t *testing.T) {
	t.Parallel()
	m := newMemory()
	var ratios, floors []float64
	for seed := *sixtyFrom; seed < *sixtyFrom+*sixtySeeds; seed++ {
		card := sim.Config{Deviations: sim.Deviations{Seed: seed, Share: sixtyShare}}
		began := time.Now()
		bisect := m.sweep(t, seed, proto.StrategyBisect)
		predict := m.sweep(t, seed, proto.StrategyPredict)
		type sums struct {
			n    int
			b, p float64
		}
		by := map[string]*sums{}
		var all sums
		floor := 0.0
		for _, name := range slices.Sorted(maps.Keys(predict)) {
			rec := predict[name]
			kind := string(card.Deviations.Of(rec.Cell).Kind)
			if by[kind] == nil {
				by[kind] = &sums{}
			}
			for _, s := range []*sums{by[kind], &all} {
				s.n++
				s.b += spent(bisect[name])
				s.p += spent(rec)
			}
			floor += least(rec)
			if why := m.wrong(t, card, rec); why != "" {
				t.Errorf("seed %d, %s (%s): %s", seed, name, kind, why)
			}
			if *sixtyRuns && (kind != "" || len(rec.Runs) > 3) {
				t.Logf("%-12s %-8s %s", name, kind, runsOf(rec, spent(bisect[name])))
			}
		}
		var parts []string
		for _, kind := range slices.Sorted(maps.Keys(by)) {
			s := by[kind]
			parts = append(parts, fmt.Sprintf("%s %d: %.0f/%.0f", kind, s.n, s.p, s.b))
		}
		t.Logf("seed %2d: %.4f = %.0f/%.0f, floor %.4f; %s (%s)", seed, all.p/all.b, all.p, all.b, floor/all.b, strings.Join(parts, ", "), time.Since(began).Round(time.Millisecond))
		if all.p > sixtyMost*all.b {
			t.Errorf("seed %d: predict took %.0f simulated seconds, bisect %.0f: more than %.2f of them", seed, all.p, all.b, sixtyMost)
		}
		ratios = append(ratios, all.p/all.b)
		floors = append(floors, floor/all.b)
	}
	for name, of := range map[string][]float64{"predict": ratios, "floor": floors} {
		slices.Sort(of)
		t.Logf("%s of bisect: min %.3f median %.3f max %.3f", name, of[0], of[len(of)/2], of[len(of)-1])
	}
	if median := ratios[len(ratios)/2]; len(ratios) >= 10 && median > sixtyMedian {
		t.Errorf("the median is %.3f, more than %.2f", median, sixtyMedian)
	}
}

// least is what no certification does without: one pass at the boundary, the fail
// nearest below it, and a recording of the cells that a program is made from.
func least(rec *registry.Record) float64 {
	var record, pass, fail float64
	b, below := rec.Settled.Boundary.Boundary, proto.Bytes(0)
	for _, r := range rec.Runs {
		switch passed := r.Outcome == proto.OutcomePass; {
		case r.Kind == proto.TaskRecord && rec.Cell.SeqLen <= 416 && len(rec.Cell.Env) == 0:
			record = r.Seconds
		case r.Kind == proto.TaskProbe && passed && r.Quota == b:
			pass = r.Seconds
		case r.Kind == proto.TaskProbe && !passed && r.Quota < b && r.Quota >= below:
			fail, below = r.Seconds, r.Quota
		}
	}
	return record + pass + fail
}

func runsOf(rec *registry.Record, bisect float64) string {
	var s strings.Builder
	fmt.Fprintf(&s, "%.1f of %.1f:", spent(rec), bisect)
	for _, r := range rec.Runs {
		how := "fail"
		if r.Kind == proto.TaskRecord {
			how = "rec"
		} else if r.Outcome == proto.OutcomePass {
			how = "pass"
		}
		if r.Trace != nil && r.Kind == proto.TaskProbe {
			how += "!"
		}
		fmt.Fprintf(&s, " %s@%d %.1f", how, r.Quota/proto.MiB, r.Seconds)
	}
	fmt.Fprintf(&s, " => %s %s; %s", rec.Settled.State, rec.Settled.Boundary.Boundary, rec.Settled.Reason)
	return s.String()
}

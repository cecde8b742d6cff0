package plan

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/oomfleet/oomfleet/proto"
	"github.com/oomfleet/oomfleet/storage/registry"
)

// world drives a Planner over a real registry machine to settlement, against a
// hidden truth.
type world struct {
	machine *registry.Machine
	planner Planner
	index   uint64
	key     registry.Key
	// outcome is the truth: what a run of this kind at this quota does, the
	// n-th time that it is asked (from 0).
	outcome func(a aim, n int) proto.Outcome
	// prediction is what replay says of the recording.
	prediction proto.Prediction
	// taught is what replay says of a probe's trace; the prediction without one.
	taught proto.Prediction
	meters proto.Meters
	card   proto.Card
	asked  map[aim]int
	// torch is the version that runs are made with.
	torch string
	// noTrace: the agent could not store the recording's trace.
	noTrace bool
	// traces: agents keep the trace of a probe that does otherwise than expected.
	traces bool
	// peak is what probes have allocated at most; 0 = they do not say.
	peak proto.Bytes
	// caught: passing probes went on after a refusal.
	caught bool
}

func newWorld(cell proto.Cell, search proto.Search) *world {
	w := &world{
		machine: registry.New(), key: registry.Key{Origin: proto.OriginMeasured, Cell: cell.ID()},
		asked: make(map[aim]int), card: proto.Card{UUID: "GPU-1", Total: 140 * proto.GiB},
	}
	w.submit("first", search, cell)
	return w
}

func (w *world) submit(id proto.MatrixID, search proto.Search, cells ...proto.Cell) {
	w.apply(registry.Command{AddSweep: &registry.AddSweep{
		ID: id, Name: string(id), Origin: w.key.Origin, Search: search, Cells: cells,
	}})
}

// apply commits a command; one that is refused is a bug of the plan.
func (w *world) apply(cmd registry.Command) registry.Reply {
	cmd.Version = registry.CommandVersion
	w.index++
	reply := w.machine.Apply(w.index, time.Unix(int64(w.index), 0), cmd)
	if reply.Refused != "" {
		panic(fmt.Sprintf("the registry refused %+v: %s", cmd, reply.Refused))
	}
	return reply
}

func (w *world) rec() *registry.Record { return w.machine.View().Records[w.key] }

// next asks the planner, which has seen every view before, and Next, which has
// seen none; they must agree.
func (w *world) next() (Actions, error) {
	v := w.machine.View()
	a, fresh := w.planner.Next(v), Next(v)
	if got, want := fmt.Sprintf("%+v", a), fmt.Sprintf("%+v", fresh); got != want {
		return a, fmt.Errorf("the planner wants %s, a fresh one %s", got, want)
	}
	return a, nil
}

// answer gives the i-th open task's result.
func (w *world) answer(i int, o proto.Outcome, why string) { w.finish(w.rec().Open[i].Task, o, why) }

// finish gives a task's result.
func (w *world) finish(task proto.Task, o proto.Outcome, why string) {
	r := proto.Result{
		Task: task.ID, Protocol: task.Protocol, Fence: task.Fence, CellID: task.CellID, Origin: task.Origin, Kind: task.Kind,
		Quota: task.Quota, Agent: "a1", Card: w.card, Outcome: o, Why: why,
		Stack: proto.Stack{GPU: task.Cell.GPU, Driver: task.Cell.Driver, CUDA: "13.0", Torch: cmp.Or(w.torch, "2.11.0")},
	}
	if task.Kind == proto.TaskRecord {
		r.Evidence.Meters = w.meters
		if !w.noTrace {
			r.Evidence.Trace = &proto.TraceRef{Digest: traceOf(task.Cell), Size: 1, Events: 1}
		}
	}
	if task.Kind == proto.TaskProbe && w.peak > 0 {
		r.Evidence.Meters.PeakAllocated = &w.peak
	}
	if task.Kind == proto.TaskProbe && w.traces && task.Keeps(o, r.Evidence.Meters) {
		r.Evidence.Trace = &proto.TraceRef{Digest: probeTraceOf(task), Size: 1, Events: 1}
	}
	if n := int64(1); task.Kind == proto.TaskProbe && w.caught && o.Verdict() == proto.VerdictPass {
		r.Evidence.Meters.NumOOMs = &n
	}
	w.apply(registry.Command{TakeResult: &registry.TakeResult{Result: r}})
}

// probeTraceOf names a probe's trace.
func probeTraceOf(t proto.Task) proto.Digest {
	return proto.Digest(fmt.Sprintf("trace of %s at %s, run %s", nameOf(t.Cell), t.Quota, t.ID[strings.LastIndexByte(string(t.ID), '-')+1:]))
}

// lessonOf is what a lesson's prediction says of where it comes from.
func lessonOf(r Replay, kind proto.LessonKind) *proto.Lesson {
	l := r.Lesson
	return &proto.Lesson{Number: l.Number, Trace: l.Trace, Program: l.Program, Said: l.Said, Quota: l.Quota, Passed: l.Passed, Kind: kind}
}

// advance does one round: everything that the plan wants, then one answer,
// picked among the open tasks. It reports whether anything happened.
func (w *world) advance(pick func(n int) int) (bool, error) {
	a, err := w.next()
	if err != nil {
		return false, err
	}
	if len(a.Issue) > 0 {
		reply := w.apply(registry.Command{Issue: &registry.Issue{Seen: w.index, Requests: a.Issue}})
		if len(reply.Issued) != len(a.Issue) {
			return false, fmt.Errorf("%d of %d requests issued: %+v", len(reply.Issued), len(a.Issue), a.Issue)
		}
	}
	for _, p := range a.Predict {
		said := w.prediction
		said.Trace, said.Program = p.Trace.Digest, p.Program
		if p.Lesson.Number > 0 {
			if w.taught.Boundary.Boundary > 0 {
				said = w.taught
				said.Trace = p.Trace.Digest
			}
			said.Lesson = lessonOf(p, proto.LessonSame)
		}
		w.apply(registry.Command{SetPrediction: &registry.SetPrediction{Key: p.Key, Prediction: said}})
	}
	for _, s := range a.Settle {
		w.apply(registry.Command{Settle: &s})
	}
	if open := w.rec().Open; len(open) > 0 {
		i := pick(len(open))
		at := aim{open[i].Task.Kind, open[i].Task.Quota}
		o := w.outcome(at, w.asked[at])
		w.asked[at]++
		w.answer(i, o, "")
		return true, nil
	}
	return len(a.Settle)+len(a.Predict) > 0, nil
}

func (w *world) settle(pick func(n int) int) error {
	for range 2000 {
		if w.rec().Settled != nil {
			return nil
		}
		moved, err := w.advance(pick)
		if err != nil {
			return err
		}
		if !moved {
			return fmt.Errorf("stuck after %d runs: nothing is out and nothing is wanted", len(w.rec().Runs))
		}
		if n := len(w.rec().Open); n > maxOpenProbes {
			return fmt.Errorf("%d probes out at once", n)
		}
	}
	return fmt.Errorf("not settled after 2000 rounds, %d runs", len(w.rec().Runs))
}

// probes counts the runs under a quota.
func (w *world) probes() (n int) {
	for _, r := range w.rec().Runs {
		if r.Kind == proto.TaskProbe {
			n++
		}
	}
	return n
}

// traceOf names a cell's recording.
func traceOf(c proto.Cell) proto.Digest { return proto.Digest("trace of " + nameOf(c)) }

// settings are allocator settings by the names that histories use.
var settings = map[string]string{
	"exp": "expandable_segments:True", "gc": "garbage_collection_threshold:0.8", "async": "backend:cudaMallocAsync",
}

// nameOf is a cell as histories name it: L512, L512B2, L512+exp.
func nameOf(c proto.Cell) string {
	name := fmt.Sprintf("L%d", c.SeqLen)
	if c.Batch > 1 {
		name += fmt.Sprintf("B%d", c.Batch)
	}
	for short, text := range settings {
		if c.Env["PYTORCH_CUDA_ALLOC_CONF"] == text {
			name += "+" + short
		}
	}
	if c.QuotaKind != proto.QuotaAllocator {
		name += "/" + string(c.QuotaKind)
	}
	return name
}

func testCell(kind proto.QuotaKind) proto.Cell {
	return proto.Cell{
		Workload: proto.Workload{Name: "esmfold"}, GPU: "NVIDIA H200", Driver: "580.159.04",
		SeqLen: 512, Batch: 1, ChunkSize: 64, QuotaKind: kind, Step: proto.DefaultStep,
	}
}

func ptr(b proto.Bytes) *proto.Bytes { return &b }

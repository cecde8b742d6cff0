package quotatest

import (
	"encoding/json"
	"slices"
	"time"

	"github.com/oomfleet/oomfleet/allocator"
	"github.com/oomfleet/oomfleet/fit"
	"github.com/oomfleet/oomfleet/proto"
	"github.com/oomfleet/oomfleet/storage/registry"
	"github.com/oomfleet/oomfleet/storage/trace"
)

// Apply commits a command, and fails the test if it is refused.
func (w *World) Apply(cmd registry.Command) registry.Reply {
	w.Helper()
	w.index++
	w.Last = epoch.Add(time.Duration(w.index) * time.Second)
	cmd.Version = registry.CommandVersion
	text, err := registry.EncodeCommand(cmd) // through the codec, as a log would
	if err != nil {
		w.Fatal(err)
	}
	if cmd, err = registry.DecodeCommand(text); err != nil {
		w.Fatal(err)
	}
	reply := w.Machine.Apply(w.index, w.Last, cmd)
	if reply.Refused != "" {
		w.Fatalf("apply: %s", reply.Refused)
	}
	return reply
}

func key(c proto.Cell) registry.Key {
	return registry.Key{Origin: proto.OriginSimulated, Cell: c.ID()}
}

func (w *World) sweep(id proto.MatrixID, cells ...proto.Cell) {
	w.Helper()
	w.Apply(registry.Command{AddSweep: &registry.AddSweep{ID: id, Name: string(id), Origin: proto.OriginSimulated, Cells: cells, Source: "matrix",
		Search: proto.Search{Strategy: proto.StrategyPredict, Certify: proto.CertifyEdges}}})
}

// run issues one task and commits its result.
func (w *World) run(c proto.Cell, kind proto.TaskKind, quota proto.Bytes, fill func(*proto.Result)) {
	w.Helper()
	issued := w.Apply(registry.Command{Issue: &registry.Issue{Seen: w.View().AppliedIndex,
		Requests: []registry.IssueRequest{{Key: key(c), Kind: kind, Quota: quota, TimeoutSeconds: 60}}}}).Issued
	if len(issued) != 1 {
		w.Fatalf("issued %d tasks of %s", len(issued), c)
	}
	t := issued[0]
	r := proto.Result{Task: t.ID, Protocol: t.Protocol, Fence: t.Fence, CellID: t.CellID, Origin: t.Origin, Kind: kind, Quota: quota, Agent: "sim-1",
		Stack: proto.Stack{GPU: c.GPU, Driver: c.Driver, CUDA: "13.0", Torch: "2.11.0+cu130"}, Outcome: proto.OutcomePass}
	fill(&r)
	w.Apply(registry.Command{TakeResult: &registry.TakeResult{Result: r}})
}

// record commits the recording of a cell.
func (w *World) record(c proto.Cell) {
	w.Helper()
	ref, meta := w.store(c.SeqLen, c.Batch, c.ChunkSize)
	w.run(c, proto.TaskRecord, 0, func(r *proto.Result) {
		more := w.offset(c)
		context, process := meta.Context+more, meta.ProcessPeak+more
		r.Card = proto.Card{UUID: "GPU-sim", Total: meta.DeviceTotal}
		r.Evidence = proto.Evidence{Seconds: 2, Trace: &ref, Meters: proto.Meters{PeakAllocated: &meta.PeakAllocated, PeakReserved: &meta.PeakReserved,
			ProcessPeak: &process, Weights: &meta.Weights, Context: &context, DeviceTotal: &meta.DeviceTotal, DeviceFreeBefore: &meta.DeviceTotal}}
	})
}

func (w *World) offset(c proto.Cell) proto.Bytes {
	if c.Driver == Synthetic {
		return Offset
	}
	return 0
}

// sweepOf is the map of a cell's recording over all quotas.
func (w *World) sweepOf(c proto.Cell) allocator.SweepResult {
	w.Helper()
	result, err := w.Recorded(c.SeqLen, c.Batch, c.ChunkSize).Sweep(allocator.SweepOptions{})
	if err != nil || result.SelfCheckMismatches > 0 {
		w.Fatalf("sweep %s: %d mismatches, %v", c, result.SelfCheckMismatches, err)
	}
	return result
}

// predict commits what replay says of a cell's own recording.
func (w *World) predict(c proto.Cell) {
	w.Helper()
	result := w.sweepOf(c)
	p := proto.Prediction{Trace: w.View().Records[key(c)].Recording().Trace.Digest, PeakAllocated: proto.Bytes(result.Uncapped.PeakAllocated),
		PeakReserved: proto.Bytes(result.Uncapped.PeakReserved), Boundary: boundaryOf(result)}
	w.Apply(registry.Command{SetPrediction: &registry.SetPrediction{Key: key(c), Prediction: p}})
}

func boundaryOf(r allocator.SweepResult) proto.Boundary {
	b := proto.Boundary{Boundary: proto.Bytes(r.Boundary), LowestPass: proto.Bytes(r.LowestPass), NoRetry: proto.Bytes(r.NoRetry),
		FailBands: []proto.Band{}, BandsKnown: true, LayoutSensitive: r.LayoutSensitive}
	for _, band := range r.FailBands {
		b.FailBands = append(b.FailBands, proto.Band{From: proto.Bytes(band.From), To: proto.Bytes(band.To)})
	}
	return b
}

// certify probes a cell at its predicted boundary and one step below, and
// settles it; the outcomes are the recording's under those quotas.
func (w *World) certify(c proto.Cell) {
	w.Helper()
	b := w.View().Records[key(c)].Prediction.Boundary
	program := w.Recorded(c.SeqLen, c.Batch, c.ChunkSize)
	for _, quota := range []proto.Bytes{b.Boundary, b.Boundary - c.Step} {
		oom := program.Replay(allocator.Settings{}, allocator.ReplayOptions{Limit: allocator.Limit{Cap: int64(quota)}}).OOM
		if oom == (quota == b.Boundary) {
			w.Fatalf("%s at %s: out of memory is %v", c, quota, oom)
		}
		w.run(c, proto.TaskProbe, quota, func(r *proto.Result) {
			if oom {
				r.Outcome, r.Why = proto.OutcomeOOMQuota, "refused by the quota"
			}
		})
	}
	w.Settle(c, registry.Settlement{State: proto.CellCertified, Boundary: b})
}

// Settle ends a cell's search.
func (w *World) Settle(c proto.Cell, s registry.Settlement) {
	w.Helper()
	w.Apply(registry.Command{Settle: &registry.Settle{Key: key(c), Settlement: s, Runs: len(w.View().Records[key(c)].Runs)}})
}

// Add adds cells that nothing is known of yet.
func (w *World) Add(id proto.MatrixID, cells ...proto.Cell) { w.Helper(); w.sweep(id, cells...) }

// program commits the program of some recorded cells.
func (w *World) program(cells []proto.Cell) {
	w.Helper()
	set := registry.SetProgram{Family: registry.FamilyOf(proto.OriginSimulated, cells[0]), Tested: string(allocator.Untested)}
	var recordings []allocator.Recording
	for _, c := range cells {
		events, _ := w.Events(c.SeqLen, c.Batch, c.ChunkSize)
		recordings = append(recordings, allocator.Recording{SeqLen: c.SeqLen, Batch: c.Batch, Chunk: c.ChunkSize, Events: events})
		set.Inputs = append(set.Inputs, w.View().Records[key(c)].Recording().Trace.Digest)
	}
	slices.Sort(set.Inputs)
	family, err := allocator.BuildFamily(recordings)
	if err != nil {
		w.Fatal(err)
	}
	text, err := json.Marshal(family)
	if err != nil {
		w.Fatal(err)
	}
	set.Program = trace.DigestOf(text)
	w.programs[set.Program] = text
	for _, d := range family.Domains() {
		set.Domains = append(set.Domains, registry.ProgramDomain{SeqLen: proto.Range{d.SeqLenFrom, d.SeqLenTo}, Batch: proto.Range{d.BatchFrom, d.BatchTo}, Partial: d.Partial})
	}
	w.Apply(registry.Command{SetProgram: &set})
}

// fit commits the coefficients of recorded cells.
func (w *World) fit(cells []proto.Cell) {
	w.Helper()
	var set registry.SetCoefficients
	var points []fit.Point
	var group proto.Group
	for _, c := range cells {
		r := w.View().Records[key(c)]
		m := r.Recording().Meters
		set.Key, group = registry.GroupOf(r), r.Group()
		set.Evidence = append(set.Evidence, r.Recording().Task)
		points = append(points, fit.Point{SeqLen: c.SeqLen, Batch: c.Batch, Allocated: int64(*m.PeakAllocated), Reserved: int64(*m.PeakReserved),
			Process: int64(*m.ProcessPeak), Weights: int64(*m.Weights), Context: int64(*m.Context)})
	}
	models, err := fit.Fit(points, fit.Options{})
	if err != nil {
		w.Fatal(err)
	}
	for _, m := range models {
		text, err := json.Marshal(m)
		if err != nil {
			w.Fatal(err)
		}
		doc := proto.Coefficients{Group: group, QuotaKind: set.Key.QuotaKind, Origin: proto.OriginSimulated, Target: string(m.Target), Points: m.Points,
			ResidualMaxRel: m.ResidualMaxRel, Domain: proto.Domain{SeqLen: m.Domain.SeqLen, Batch: m.Domain.Batch}, Model: text}
		for _, term := range m.Terms {
			doc.Terms = append(doc.Terms, proto.Term(term))
		}
		set.Models = append(set.Models, doc)
	}
	slices.Sort(set.Evidence)
	w.Apply(registry.Command{SetCoefficients: &set})
}

package registry

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/oomfleet/oomfleet/proto"
)

var start = time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)

// reporter is what testing.TB and rapid's T have in common.
type reporter interface {
	Helper()
	Fatalf(format string, args ...any)
}

// log is a machine with the entries that made it.
type log struct {
	*Machine
	t       reporter
	entries []Command
}

func newLog(t reporter) *log { return &log{Machine: New(), t: t} }

// apply takes the way of a real entry, through the codec, at index n+1.
func (l *log) apply(c Command) Reply {
	l.t.Helper()
	l.entries = append(l.entries, c)
	return applyAt(l.t, l.Machine, len(l.entries), c)
}

func applyAt(t reporter, m *Machine, index int, c Command) Reply {
	t.Helper()
	c.Version = CommandVersion
	data, err := EncodeCommand(c)
	if err != nil {
		t.Fatalf("encode: %v", err)
	}
	decoded, err := DecodeCommand(data)
	if err != nil {
		t.Fatalf("decode: %v", err)
	}
	return m.Apply(uint64(index), start.Add(time.Duration(index)*time.Second), decoded)
}

func (l *log) replay() *Machine {
	m := New()
	for i, c := range l.entries {
		applyAt(l.t, m, i+1, c)
	}
	return m
}

func cell(seqLen int) proto.Cell {
	return proto.Cell{Workload: proto.Workload{Name: "esmfold"}, GPU: "NVIDIA H200", Driver: "580.159.04", SeqLen: seqLen,
		Batch: 1, Env: map[string]string{}, QuotaKind: proto.QuotaAllocator, Step: proto.DefaultStep}
}

func keyOf(seqLen int) Key { return Key{Origin: proto.OriginMeasured, Cell: cell(seqLen).ID()} }

func sweep(id string, seqLens ...int) Command {
	add := &AddSweep{ID: proto.MatrixID(id), Name: id, Origin: proto.OriginMeasured, Source: "matrix: " + id,
		Search: proto.Search{Strategy: proto.StrategyPredict, Certify: proto.CertifyEdges}}
	for _, n := range seqLens {
		add.Cells = append(add.Cells, cell(n))
	}
	return Command{AddSweep: add}
}

func record(seqLen int) IssueRequest {
	return IssueRequest{Key: keyOf(seqLen), Kind: proto.TaskRecord, TimeoutSeconds: 60}
}

func probe(seqLen int, quota proto.Bytes) IssueRequest {
	return IssueRequest{Key: keyOf(seqLen), Kind: proto.TaskProbe, Quota: quota, TimeoutSeconds: 60}
}

func (l *log) issue(requests ...IssueRequest) []proto.Task {
	l.t.Helper()
	return l.apply(Command{Issue: &Issue{Seen: l.View().AppliedIndex, Requests: requests}}).Issued
}

func result(task proto.Task, outcome proto.Outcome) proto.Result {
	return proto.Result{Task: task.ID, Protocol: task.Protocol, Fence: task.Fence, CellID: task.CellID, Origin: task.Origin,
		Kind: task.Kind, Quota: task.Quota, Agent: "agent-1", Stack: proto.Stack{GPU: task.Cell.GPU, Driver: task.Cell.Driver, CUDA: "13.0", Torch: "2.11.0"},
		Outcome: outcome, Evidence: proto.Evidence{Seconds: 1.5, Trace: &proto.TraceRef{Digest: "d0", Size: 10, Events: 2},
			Meters: proto.Meters{PeakAllocated: bytesOf(100), PeakReserved: bytesOf(120), ProcessPeak: bytesOf(700)}}}
}

func bytesOf(b proto.Bytes) *proto.Bytes { return &b }

func take(r proto.Result) Command { return Command{TakeResult: &TakeResult{Result: r}} }

func settle(seqLen, runs int, state proto.CellState) Command {
	return Command{Settle: &Settle{Key: keyOf(seqLen), Runs: runs, Settlement: Settlement{State: state,
		Boundary: proto.Boundary{Boundary: 10 * proto.GiB, LowestPass: 9 * proto.GiB, BandsKnown: true}}}}
}

func TestOneCellFromSweepToSettlement(t *testing.T) {
	l := newLog(t)
	if r := l.apply(sweep("s", 64, 32)); !r.Accepted || r.New != 2 || r.Index != 1 {
		t.Fatalf("add sweep: %+v", r)
	}
	if cells := l.View().Sweeps["s"].Cells; !slices.Equal(cells, []proto.CellID{cell(32).ID(), cell(64).ID()}) {
		t.Fatalf("cells are not in canonical order: %v", cells)
	}
	tasks := l.issue(record(64))
	want := proto.TaskID("m-" + string(cell(64).ID()) + "-1")
	if len(tasks) != 1 || tasks[0].ID != want || tasks[0].Fence != 2 || tasks[0].Attempt != 1 {
		t.Fatalf("issued %+v, want one task %s", tasks, want)
	}
	if err := tasks[0].Validate(); err != nil {
		t.Fatalf("the issued task is not usable: %v", err)
	}
	if r := l.apply(take(result(tasks[0], proto.OutcomePass))); !r.Accepted {
		t.Fatalf("take result: %+v", r)
	}
	prediction := proto.Prediction{Boundary: proto.Boundary{Boundary: 10 * proto.GiB}, Trace: "d0"}
	if r := l.apply(Command{SetPrediction: &SetPrediction{Key: keyOf(64), Prediction: prediction}}); !r.Accepted {
		t.Fatalf("set prediction: %+v", r)
	}
	probes := l.issue(probe(64, 10*proto.GiB), probe(64, 10*proto.GiB-2*proto.MiB), probe(64, 10*proto.GiB))
	if len(probes) != 2 || probes[1].ID == probes[0].ID {
		t.Fatalf("issued %+v, want two different probes", probes)
	}
	if r := l.apply(settle(64, 1, proto.CellCertified)); r.Accepted || !strings.Contains(r.Refused, "2 open") {
		t.Fatalf("settled over open tasks: %+v", r)
	}
	l.apply(take(result(probes[0], proto.OutcomePass)))
	l.apply(take(result(probes[1], proto.OutcomeOOMQuota)))
	if r := l.apply(settle(64, 2, proto.CellCertified)); r.Accepted || !strings.Contains(r.Refused, "3 runs") {
		t.Fatalf("settled on an old plan: %+v", r)
	}
	if r := l.apply(settle(64, 3, proto.CellCertified)); !r.Accepted {
		t.Fatalf("settle: %+v", r)
	}
	if r := l.apply(settle(64, 3, proto.CellFailed)); r.Accepted {
		t.Fatal("a settled cell was settled again")
	}
	if got := l.View().Records[keyOf(64)].Settled; got.State != proto.CellCertified || got.Index != uint64(len(l.entries)-1) {
		t.Fatalf("settlement %+v", got)
	}
}

func TestIssueLeavesOut(t *testing.T) {
	setup := func(t *testing.T) *log {
		l := newLog(t)
		l.apply(sweep("s", 64))
		return l
	}
	t.Run("unknown cell", func(t *testing.T) {
		if got := setup(t).issue(record(65)); len(got) != 0 {
			t.Fatalf("issued %v", got)
		}
	})
	t.Run("settled cell", func(t *testing.T) {
		l := setup(t)
		l.apply(settle(64, 0, proto.CellFailed))
		if got := l.issue(record(64)); len(got) != 0 {
			t.Fatalf("issued %v", got)
		}
	})
	t.Run("same run is open", func(t *testing.T) {
		l := setup(t)
		l.issue(record(64))
		if got := l.issue(record(64)); len(got) != 0 {
			t.Fatalf("issued %v", got)
		}
		if got := l.issue(probe(64, proto.GiB)); len(got) != 1 {
			t.Fatalf("another run was left out: %v", got)
		}
	})
	t.Run("record changed since the plan", func(t *testing.T) {
		l := setup(t)
		seen := l.View().AppliedIndex
		task := l.issue(record(64))[0]
		l.apply(take(result(task, proto.OutcomeCrash)))
		if r := l.apply(Command{Issue: &Issue{Seen: seen, Requests: []IssueRequest{record(64)}}}); len(r.Issued) != 0 {
			t.Fatalf("issued %v", r.Issued)
		}
		if got := l.issue(record(64)); len(got) != 1 || got[0].Attempt != 2 {
			t.Fatalf("second attempt: %v", got)
		}
	})
	t.Run("a late result does not make a plan stale", func(t *testing.T) {
		l := setup(t)
		task := l.issue(record(64))[0]
		l.apply(take(result(task, proto.OutcomeCrash)))
		seen := l.View().AppliedIndex
		l.apply(take(result(task, proto.OutcomeCrash)))
		if r := l.apply(Command{Issue: &Issue{Seen: seen, Requests: []IssueRequest{record(64)}}}); len(r.Issued) != 1 {
			t.Fatalf("issued %v", r.Issued)
		}
	})
	for name, bad := range map[string]IssueRequest{
		"no timeout":              {Key: keyOf(64), Kind: proto.TaskRecord},
		"a recording with a cap":  {Key: keyOf(64), Kind: proto.TaskRecord, Quota: 1, TimeoutSeconds: 1},
		"a probe without a quota": {Key: keyOf(64), Kind: proto.TaskProbe, TimeoutSeconds: 1},
		"another kind":            {Key: keyOf(64), Kind: "benchmark", TimeoutSeconds: 1},
	} {
		t.Run(name, func(t *testing.T) {
			l := setup(t)
			r := l.apply(Command{Issue: &Issue{Seen: 99, Requests: []IssueRequest{record(64), bad}}})
			if r.Refused == "" || len(r.Issued) != 0 {
				t.Fatalf("%+v", r)
			}
		})
	}
}

func TestTakeResultCountsLate(t *testing.T) {
	for name, change := range map[string]func(*proto.Result){
		"old fence":       func(r *proto.Result) { r.Fence-- },
		"other task":      func(r *proto.Result) { r.Task += "0" },
		"other kind":      func(r *proto.Result) { r.Kind = proto.TaskProbe },
		"other quota":     func(r *proto.Result) { r.Quota = proto.GiB },
		"other protocol":  func(r *proto.Result) { r.Protocol++ },
		"unknown outcome": func(r *proto.Result) { r.Outcome = "wonderful" },
	} {
		t.Run(name, func(t *testing.T) {
			l := newLog(t)
			l.apply(sweep("s", 64))
			r := result(l.issue(record(64))[0], proto.OutcomePass)
			change(&r)
			if reply := l.apply(take(r)); reply.Accepted || reply.Refused == "" {
				t.Fatalf("%+v", reply)
			}
			if got := l.View().Records[keyOf(64)]; got.Late != 1 || len(got.Runs) != 0 || len(got.Open) != 1 {
				t.Fatalf("%+v", got)
			}
		})
	}
	t.Run("other origin", func(t *testing.T) {
		l := newLog(t)
		l.apply(sweep("s", 64))
		r := result(l.issue(record(64))[0], proto.OutcomePass)
		r.Origin = proto.OriginSimulated
		if reply := l.apply(take(r)); reply.Accepted || l.View().Late != 1 {
			t.Fatalf("%+v, late %d", reply, l.View().Late)
		}
	})
	t.Run("delivered twice", func(t *testing.T) {
		l := newLog(t)
		l.apply(sweep("s", 64))
		r := result(l.issue(record(64))[0], proto.OutcomePass)
		l.apply(take(r))
		if reply := l.apply(take(r)); reply.Accepted {
			t.Fatalf("%+v", reply)
		}
		if got := l.View().Records[keyOf(64)]; got.Late != 1 || len(got.Runs) != 1 {
			t.Fatalf("%+v", got)
		}
	})
}

func TestCancelSweep(t *testing.T) {
	l := newLog(t)
	l.apply(sweep("a", 32, 64))
	l.apply(sweep("b", 64))
	tasks := l.issue(record(32), record(64))
	r := l.apply(Command{CancelSweep: &CancelSweep{ID: "a"}})
	if len(r.Closed) != 1 || r.Closed[0].ID != tasks[0].ID {
		t.Fatalf("closed %+v, want the task of the cell that no other sweep wants", r.Closed)
	}
	view := l.View()
	if s := view.Records[keyOf(32)].Settled; s == nil || s.State != proto.CellCancelled {
		t.Fatalf("settled %+v", s)
	}
	if view.Records[keyOf(64)].Settled != nil {
		t.Fatal("a cell that sweep b wants was cancelled")
	}
	if r := l.apply(take(result(tasks[0], proto.OutcomePass))); r.Accepted {
		t.Fatal("a result of a cancelled task was taken")
	}
	if r := l.apply(Command{CancelSweep: &CancelSweep{ID: "zzz"}}); r.Refused == "" {
		t.Fatal("an unknown sweep was cancelled")
	}
	if r := l.apply(sweep("c", 32)); r.Known != 1 || l.View().Records[keyOf(32)].Settled != nil {
		t.Fatalf("a new sweep did not revive the cancelled cell: %+v", r)
	}
	if got := l.issue(record(32)); len(got) != 1 || got[0].ID == tasks[0].ID {
		t.Fatalf("the revived cell's task: %+v", got)
	}
}

func TestAddSweepJoinsKnownCells(t *testing.T) {
	search := func(id string, s proto.Search) Command {
		c := sweep(id, 64)
		c.AddSweep.Search = s
		return c
	}
	predictNone := proto.Search{Strategy: proto.StrategyPredict, Certify: proto.CertifyNone, Min: 4, Max: 8}
	for _, test := range []struct {
		name   string
		state  proto.CellState
		second proto.Search
		want   proto.Search
		reopen bool
	}{
		{"failed is tried again", proto.CellFailed, predictNone, predictNone, true},
		{"same search stays settled", proto.CellPredicted, predictNone, predictNone, false},
		{"a narrower one too", proto.CellPredicted, proto.Search{Strategy: proto.StrategyBisect, Certify: proto.CertifyNone, Min: 5, Max: 7}, predictNone, false},
		{"stricter certification reopens", proto.CellPredicted, proto.Search{Strategy: proto.StrategyPredict, Certify: proto.CertifyEdges, Min: 4, Max: 8},
			proto.Search{Strategy: proto.StrategyPredict, Certify: proto.CertifyEdges, Min: 4, Max: 8}, true},
		{"a wider range reopens", proto.CellPredicted, proto.Search{Strategy: proto.StrategyPredict, Certify: proto.CertifyNone, Min: 0, Max: 0},
			proto.Search{Strategy: proto.StrategyPredict, Certify: proto.CertifyNone}, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			l := newLog(t)
			l.apply(search("a", predictNone))
			l.apply(take(result(l.issue(record(64))[0], proto.OutcomePass)))
			l.apply(settle(64, 1, test.state))
			reply := l.apply(search("b", test.second))
			got := l.View().Records[keyOf(64)]
			if got.Search != test.want || len(got.Sweeps) != 2 {
				t.Fatalf("search %+v of sweeps %v", got.Search, got.Sweeps)
			}
			if (got.Settled == nil) != test.reopen || (reply.Known == 1) != test.reopen || (reply.Settled == 1) == test.reopen {
				t.Fatalf("settled %+v, reply %+v", got.Settled, reply)
			}
			if test.reopen && (got.RunsBefore != 1 || len(got.Runs) != 1) {
				t.Fatalf("runs before %d of %d", got.RunsBefore, len(got.Runs))
			}
		})
	}
	t.Run("a plan made before the join may not settle", func(t *testing.T) {
		l := newLog(t)
		l.apply(search("a", predictNone))
		old := settle(64, 0, proto.CellPredicted)
		old.Settle.Seen = l.View().AppliedIndex
		l.apply(search("b", proto.Search{Strategy: proto.StrategyPredict, Certify: proto.CertifyAll}))
		if r := l.apply(old); r.Accepted {
			t.Fatal("settled by a plan that had not seen the wider search")
		}
	})
}

func TestAddSweepRefuses(t *testing.T) {
	for name, change := range map[string]func(*AddSweep){
		"an id that is no URL part": func(a *AddSweep) { a.ID = "A/b" },
		"an imported sweep":         func(a *AddSweep) { a.Origin = proto.OriginImported },
		"no cells":                  func(a *AddSweep) { a.Cells = nil },
		"other cells under a known id": func(a *AddSweep) {
			a.ID, a.Cells = "known", []proto.Cell{cell(99)}
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLog(t)
			l.apply(sweep("known", 64))
			c := sweep("new", 64)
			change(c.AddSweep)
			if r := l.apply(c); r.Refused == "" || len(l.View().Sweeps) != 1 {
				t.Fatalf("%+v", r)
			}
		})
	}
}

func TestApplyPanicsWhenStateCannotBeTrusted(t *testing.T) {
	for name, apply := range map[string]func(*Machine){
		"unknown version": func(m *Machine) { m.Apply(2, start, Command{Version: CommandVersion + 1, CancelSweep: &CancelSweep{}}) },
		"no version":      func(m *Machine) { m.Apply(2, start, Command{CancelSweep: &CancelSweep{}}) },
		"index again":     func(m *Machine) { m.Apply(1, start, Command{Version: CommandVersion}) },
	} {
		t.Run(name, func(t *testing.T) {
			m := New()
			if r := m.Apply(1, start, Command{Version: CommandVersion}); r.Refused == "" {
				t.Fatal("an empty command was not refused")
			}
			defer func() {
				if recover() == nil {
					t.Fatal("no panic")
				}
			}()
			apply(m)
		})
	}
}

func TestLogTimeNeverRunsBackward(t *testing.T) {
	m := New()
	m.Apply(1, start, Command{Version: CommandVersion})
	m.Apply(2, start.Add(-time.Hour), Command{Version: CommandVersion})
	if got := m.View().AppliedTime; !got.Equal(start) {
		t.Fatalf("applied time %v, want %v", got, start)
	}
}

func TestViewDoesNotChange(t *testing.T) {
	l := newLog(t)
	l.apply(sweep("s", 64))
	before := l.View()
	hash := before.Hash()
	task := l.issue(record(64))[0]
	l.apply(take(result(task, proto.OutcomePass)))
	l.apply(sweep("t", 32, 64))
	l.apply(Command{SetMember: &SetMember{Member: Member{ID: "n1", API: "http://n1"}}})
	l.apply(Command{CancelSweep: &CancelSweep{ID: "s"}})
	if before.Hash() != hash || len(before.Records) != 1 || len(before.Records[keyOf(64)].Open) != 0 {
		t.Fatal("a view changed after it was taken")
	}
}

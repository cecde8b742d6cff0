package registry

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/oomfleet/oomfleet/proto"
)

var testFamily = FamilyOf(proto.OriginMeasured, cell(64))

// program is a command that sets a program, named after its inputs.
func program(inputs []proto.Digest, change func(*SetProgram)) Command {
	sorted := slices.Sorted(slices.Values(inputs))
	c := &SetProgram{Family: testFamily, Inputs: inputs, Program: proto.Digest("p-" + fmt.Sprint(slices.Compact(sorted))),
		Domains: []ProgramDomain{{SeqLen: proto.Range{32, 256}, Batch: proto.Range{1, 1}}}, Tested: "left-one-out"}
	if change != nil {
		change(c)
	}
	return Command{SetProgram: c}
}

func TestFamilyOf(t *testing.T) {
	base := cell(64)
	for name, test := range map[string]struct {
		change func(*proto.Cell)
		same   bool
	}{
		"length":                {func(c *proto.Cell) { c.SeqLen = 65 }, true},
		"quota kind and step":   {func(c *proto.Cell) { c.QuotaKind, c.Step = proto.QuotaDevice, 1 }, true},
		"allocator settings":    {func(c *proto.Cell) { c.Env = map[string]string{"PYTORCH_ALLOC_CONF": "a:1"} }, true},
		"old name of them":      {func(c *proto.Cell) { c.Env = map[string]string{"PYTORCH_CUDA_ALLOC_CONF": "a:1"} }, true},
		"no environment at all": {func(c *proto.Cell) { c.Env = nil }, true},
		"other variable":        {func(c *proto.Cell) { c.Env = map[string]string{"CUBLAS_WORKSPACE_CONFIG": ":0:0"} }, false},
		"batch":                 {func(c *proto.Cell) { c.Batch = 2 }, false},
		"chunk size":            {func(c *proto.Cell) { c.ChunkSize = 64 }, false},
		"driver":                {func(c *proto.Cell) { c.Driver = "1" }, false},
		"gpu":                   {func(c *proto.Cell) { c.GPU = "A100" }, false},
		"workload":              {func(c *proto.Cell) { c.Workload.Params = map[string]string{"stem": "fp16"} }, false},
	} {
		t.Run(name, func(t *testing.T) {
			c := base
			test.change(&c)
			if same := FamilyOf(proto.OriginMeasured, c) == testFamily; same != test.same {
				t.Fatalf("same family: %v", same)
			}
		})
	}
	if FamilyOf(proto.OriginSimulated, base) == testFamily {
		t.Error("two origins share a family")
	}
	two, eight := base, base
	two.Batch, eight.Batch = 2, 8
	if FamilyOf(proto.OriginMeasured, two) != FamilyOf(proto.OriginMeasured, eight) {
		t.Error("batches of two and eight are no family")
	}
}

func TestProgramOfTheSameRecordingsIsSetOnce(t *testing.T) {
	l := newLog(t)
	get := func() *Program { return l.View().Programs[testFamily] }
	if r := l.apply(program([]proto.Digest{"b", "a", "b"}, nil)); !r.Accepted {
		t.Fatalf("%+v", r)
	}
	first := *get()
	if !first.MadeFrom([]proto.Digest{"a", "b"}) || first.Revision != 1 || first.Index != 1 || !first.Usable() {
		t.Fatalf("%+v", first)
	}
	other := func(c *SetProgram) { c.Program = "other" }
	if r := l.apply(program([]proto.Digest{"a", "b"}, other)); r.Accepted || r.Refused != "" || get().Digest != first.Digest {
		t.Fatalf("a second word on the same recordings: %+v", r)
	}
	doubt := func(c *SetProgram) { c.Stale, c.Domains = "sizes differ at L96", []ProgramDomain{{}} }
	for i := range 2 {
		if r := l.apply(program([]proto.Digest{"a", "b"}, doubt)); r.Accepted != (i == 0) || r.Refused != "" {
			t.Fatalf("doubt %d: %+v", i, r)
		}
	}
	if p := get(); p.Usable() || p.Covers(cell(64)) || p.Domains[0] != first.Domains[0] || p.Revision != 2 {
		t.Fatalf("%+v", p)
	}
	if r := l.apply(program([]proto.Digest{"a", "b"}, nil)); r.Accepted || get().Usable() {
		t.Fatalf("the same program again made a stale one good: %+v", r)
	}
	if r := l.apply(program([]proto.Digest{"a", "b", "c"}, nil)); !r.Accepted || !get().Usable() || !slices.Equal(get().Earlier, []proto.Digest{first.Digest}) {
		t.Fatalf("a program of more recordings: %+v, %+v", r, get())
	}
	if r := l.apply(program([]proto.Digest{"a", "b"}, doubt)); r.Accepted || r.Refused == "" {
		t.Fatalf("a doubt about an earlier program: %+v", r)
	}
	for i := range ProgramHistoryLimit + 3 {
		l.apply(program([]proto.Digest{"a", proto.Digest(fmt.Sprint(i))}, nil))
	}
	if p := get(); len(p.Earlier) != ProgramHistoryLimit || p.Revision != 3+ProgramHistoryLimit+3 {
		t.Fatalf("%+v", p)
	}
}

func TestProgramRefused(t *testing.T) {
	for name, change := range map[string]func(*SetProgram){
		"not from imported":  func(c *SetProgram) { c.Family.Origin = proto.OriginImported },
		"needs its family":   func(c *SetProgram) { c.Family.Family = "" },
		"one recording":      func(c *SetProgram) { c.Inputs = nil },
		"there or refused":   func(c *SetProgram) { c.Refused = "they differ" },
		"either there":       func(c *SetProgram) { c.Program = "" },
		"no more recordings": func(c *SetProgram) { c.NeedMore = true },
		"cannot be stale":    func(c *SetProgram) { c.Program, c.Refused, c.Stale = "", "they differ", "x" },
		"a domain":           func(c *SetProgram) { c.Domains = nil },
		"newest":             func(c *SetProgram) { c.Stale = "there is none" },
	} {
		t.Run(name, func(t *testing.T) {
			l := newLog(t)
			r := l.apply(program([]proto.Digest{"a"}, change))
			if r.Accepted || !strings.Contains(r.Refused, name) || len(l.View().Programs) != 0 {
				t.Fatalf("%+v", r)
			}
		})
	}
}

func TestProgramDomain(t *testing.T) {
	full := ProgramDomain{SeqLen: proto.Range{64, 512}, Batch: proto.Range{1, 4}}
	for _, test := range []struct {
		length, batch, chunk int
		full, partial        bool
	}{
		{64, 1, 0, true, true}, {63, 1, 0, false, false}, {512, 4, 64, true, true}, {513, 1, 0, false, false},
		{96, 1, 64, false, true}, {96, 2, 64, true, true}, {96, 5, 0, false, false},
	} {
		c := cell(test.length)
		c.Batch, c.ChunkSize = test.batch, test.chunk
		partial := full
		partial.Partial = true
		if full.Holds(c) != test.full || partial.Holds(c) != test.partial {
			t.Errorf("%s: %v, with partial chunks %v", c, full.Holds(c), partial.Holds(c))
		}
	}
}

// TestPredictedFrom: a row says what its prediction was read off.
func TestPredictedFrom(t *testing.T) {
	l := newLog(t)
	l.apply(sweep("s", 64))
	row := func() proto.CellReport {
		r, _ := l.View().Report("s")
		return r.Cells[0]
	}
	set := func(p proto.Prediction) {
		t.Helper()
		p.Boundary.Boundary, p.PeakAllocated, p.PeakReserved = proto.GiB, 10, 20
		if r := l.apply(Command{SetPrediction: &SetPrediction{Key: keyOf(64), Prediction: p}}); !r.Accepted {
			t.Fatalf("%+v", r)
		}
	}
	if got := row(); got.PredictedFrom != "" {
		t.Errorf("%+v", got)
	}
	set(proto.Prediction{Program: "p"})
	if got := row(); got.PredictedFrom != proto.FromProgram || got.Program != "p" || got.State != proto.CellPredicted ||
		got.PeakReserved != 0 || got.PredictedPeakAllocated != 10 || got.PredictedPeakReserved != 20 {
		t.Errorf("%+v", got)
	}
	set(proto.Prediction{Trace: "d0"})
	if got := row(); got.PredictedFrom != proto.FromSettings || got.Program != "" {
		t.Errorf("%+v", got)
	}
	l.apply(take(result(l.issue(record(64))[0], proto.OutcomePass)))
	if got := row(); got.PredictedFrom != proto.FromRecording || got.PeakReserved != 120 {
		t.Errorf("%+v", got)
	}
	r := l.apply(Command{SetPrediction: &SetPrediction{Key: keyOf(64), Prediction: proto.Prediction{Trace: "d0", Program: "p"}}})
	if r.Refused == "" {
		t.Error("a prediction from both a trace and a program was kept")
	}
}

// TestGroupWithoutRecording: a cell that was spared its recording is of the
// group that its probes ran in.
func TestGroupWithoutRecording(t *testing.T) {
	l := newLog(t)
	l.apply(sweep("s", 32, 64))
	l.apply(take(result(l.issue(record(64))[0], proto.OutcomePass)))
	task := l.issue(probe(32, proto.GiB))[0]
	lost := result(task, proto.OutcomeLost)
	lost.Stack = proto.Stack{}
	l.apply(take(lost))
	l.apply(take(result(l.issue(probe(32, proto.GiB))[0], proto.OutcomeOOMQuota)))
	v := l.View()
	if a, b := GroupOf(v.Records[keyOf(32)]), GroupOf(v.Records[keyOf(64)]); a != b {
		t.Errorf("%+v, the recording's is %+v", a, b)
	}
}

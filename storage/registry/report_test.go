package registry

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/oomfleet/oomfleet/proto"
)

func TestReportFollowsACell(t *testing.T) {
	l := newLog(t)
	l.apply(sweep("s", 64))
	row := func() proto.CellReport {
		t.Helper()
		report, ok := l.View().Report("s")
		if !ok || len(report.Cells) != 1 {
			t.Fatalf("%+v", report)
		}
		return report.Cells[0]
	}
	expect := func(want proto.CellState) {
		t.Helper()
		if got := row().State; got != want {
			t.Fatalf("state %s, want %s", got, want)
		}
	}
	expect(proto.CellPending)
	task := l.issue(record(64))[0]
	expect(proto.CellRunning)
	l.apply(take(result(task, proto.OutcomeCrash)))
	expect(proto.CellRunning)
	l.apply(take(result(l.issue(record(64))[0], proto.OutcomePass)))
	expect(proto.CellRecorded)
	l.apply(Command{SetPrediction: &SetPrediction{Key: keyOf(64), Prediction: proto.Prediction{Trace: "d0", Boundary: proto.Boundary{Boundary: 10 * proto.GiB}}}})
	expect(proto.CellPredicted)
	if got := row(); got.Boundary.Boundary != 0 || got.PredictedBytes != 10*proto.GiB {
		t.Fatalf("a prediction is shown as a boundary: %+v", got)
	}
	if c := must(l.View().Report("s")).Counts; c.Running != 1 || c.Predicted != 0 {
		t.Fatalf("a prediction that is not settled is counted as settled: %+v", c)
	}
	l.apply(take(result(l.issue(probe(64, 10*proto.GiB))[0], proto.OutcomePassRetried)))
	l.apply(settle(64, 3, proto.CellCertified))
	expect(proto.CellCertified)
	got := row()
	if got.Boundary.Boundary != 10*proto.GiB || got.LowestPass != 9*proto.GiB || got.Probes != 1 || got.GPUSeconds != 4.5 ||
		got.PeakAllocated != 100 || got.PeakReserved != 120 || got.ProcessPeak != 700 || got.Trace.Digest != "d0" || got.Stack.Torch != "2.11.0" {
		t.Fatalf("%+v", got)
	}
	if report := must(l.View().Report("s")); report.State != SweepSettled || report.AppliedIndex != uint64(len(l.entries)) {
		t.Fatalf("%+v", report)
	}
}

func must(r proto.Report, ok bool) proto.Report {
	if !ok {
		panic("no report")
	}
	return r
}

func TestReportHasNoNulls(t *testing.T) {
	l := newLog(t)
	c := sweep("s", 64)
	c.AddSweep.Cells[0].Env = nil
	l.apply(c)
	for _, settled := range []bool{false, true} {
		if settled {
			l.apply(settle(64, 0, proto.CellFailed))
		}
		text, err := json.Marshal(must(l.View().Report("s")))
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{`"fail_bands":[]`, `"env":{}`, `"coefficients":[]`} {
			if !strings.Contains(string(text), want) {
				t.Errorf("settled %v: no %s in %s", settled, want, text)
			}
		}
		if strings.Contains(string(text), "null") {
			t.Errorf("settled %v: null in %s", settled, text)
		}
	}
}

func TestReportOfACancelledSweepIsFinal(t *testing.T) {
	l := newLog(t)
	l.apply(sweep("a", 32, 64))
	l.apply(sweep("b", 64))
	l.issue(record(64))
	l.apply(Command{CancelSweep: &CancelSweep{ID: "a"}})
	a, b := must(l.View().Report("a")), must(l.View().Report("b"))
	if a.State != SweepCancelled || a.Counts != (proto.Counts{Total: 2, Cancelled: 2}) {
		t.Fatalf("%s %+v", a.State, a.Counts)
	}
	if b.State != SweepRunning || b.Counts != (proto.Counts{Total: 1, Running: 1}) {
		t.Fatalf("%s %+v", b.State, b.Counts)
	}
}

func TestReportCarriesItsGroupsCoefficients(t *testing.T) {
	l := recordedLog(t)
	l.apply(coefficients(l, 1, "m-a"))
	if got := must(l.View().Report("s")).Coefficients; len(got) != 1 || got[0].Target != "allocated" {
		t.Fatalf("%+v", got)
	}
	other := sweep("other", 64)
	other.AddSweep.Cells[0].ChunkSize = 64
	l.apply(other)
	if got := must(l.View().Report("other")).Coefficients; len(got) != 0 {
		t.Fatalf("coefficients of another group: %+v", got)
	}
	if _, ok := l.View().Report("none"); ok {
		t.Fatal("a report of no sweep")
	}
}

func TestGroupOfTakesTheStackOfTheRecording(t *testing.T) {
	l := newLog(t)
	l.apply(sweep("s", 64))
	before := GroupOf(l.View().Records[keyOf(64)])
	l.apply(take(result(l.issue(record(64))[0], proto.OutcomePass)))
	r := l.View().Records[keyOf(64)]
	if after := GroupOf(r); after == before || !strings.Contains(after.Group, `"torch":"2.11.0"`) {
		t.Fatalf("%+v", after)
	}
	if AwaitedGroupOf(r) != before {
		t.Fatalf("family %+v, want %+v", AwaitedGroupOf(r), before)
	}
}

func TestSweepListIsNewestFirst(t *testing.T) {
	l := newLog(t)
	if got := l.View().SweepList(); got == nil || len(got) != 0 {
		t.Fatalf("%#v", got)
	}
	l.apply(sweep("b", 32))
	l.apply(sweep("a", 32, 64))
	l.apply(settle(32, 0, proto.CellFailed))
	got := l.View().SweepList()
	if len(got) != 2 || got[0].Matrix.ID != "a" || got[0].State != SweepRunning || got[1].State != SweepSettled || got[1].Counts.Failed != 1 {
		t.Fatalf("%+v", got)
	}
}

func TestEveryCellStateHasABucket(t *testing.T) {
	for _, state := range []proto.CellState{proto.CellPending, proto.CellRunning, proto.CellRecorded, proto.CellPredicted,
		proto.CellCertified, proto.CellBisected, proto.CellAdaptive, proto.CellFailed, proto.CellCancelled} {
		for _, settled := range []bool{false, true} {
			var c proto.Counts
			count(&c, state, settled)
			if c.Total != 1 || c.Pending+c.Running+c.Settled() != 1 {
				t.Errorf("%s settled %v: %+v", state, settled, c)
			}
		}
	}
}

// BenchmarkApplyAfterView is the price of the copy that a view costs the next
// write, in a registry of 10,000 cells.
func BenchmarkApplyAfterView(b *testing.B) {
	l := newLog(b)
	numbers := make([]int, 10_000)
	for i := range numbers {
		numbers[i] = i + 1
	}
	l.apply(sweep("s", numbers...))
	i := uint64(1)
	for b.Loop() {
		l.View()
		i++
		l.Machine.Apply(i, start, Command{Version: CommandVersion, SetPrediction: &SetPrediction{Key: keyOf(1),
			Prediction: proto.Prediction{Trace: proto.Digest(rune(i))}}})
	}
}

// TestReportSaysWhatIsOpen: by stack, since the oldest task, and nothing once the
// sweep has settled.
func TestReportSaysWhatIsOpen(t *testing.T) {
	l := newLog(t)
	l.apply(sweep("s", 32, 64, 96))
	first := l.issue(record(32))[0]
	since := l.View().AppliedTime
	l.apply(sweep("other", 128))
	l.issue(record(64))
	report := func(id proto.MatrixID) proto.Report { r, _ := l.View().Report(id); return r }
	if open := report("s").Open; len(open) != 1 || open[0].Cells != 2 || !open[0].Since.Equal(since) || open[0].GPU != first.Cell.GPU || open[0].Driver != first.Cell.Driver {
		t.Errorf("%+v", open)
	}
	if open := report("other").Open; len(open) != 0 {
		t.Errorf("of another sweep: %+v", open)
	}
	l = certified(t)
	l.apply(repeatSweep("r", 1, 32))
	l.issue(again(32))
	if open := report("r").Open; len(open) != 1 || open[0].Cells != 1 {
		t.Errorf("a repeat: %+v", open)
	}
	if open := report("s").Open; len(open) != 0 {
		t.Errorf("of a settled sweep: %+v", open)
	}
}

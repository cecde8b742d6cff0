package registry

import (
	"bytes"
	"strings"
	"testing"

	"github.com/oomfleet/oomfleet/proto"
)

// certified is a log with two cells that have a recording and a settlement.
func certified(t *testing.T) *log {
	t.Helper()
	l := newLog(t)
	l.apply(sweep("s", 32, 64))
	for _, n := range []int{32, 64} {
		l.apply(take(result(l.issue(record(n))[0], proto.OutcomePass)))
		l.apply(settle(n, 1, proto.CellCertified))
	}
	return l
}

func repeatSweep(id string, n int, seqLens ...int) Command {
	c := sweep(id, seqLens...)
	c.AddSweep.Search = proto.Search{Strategy: proto.StrategyPredict, Certify: proto.CertifyAll}
	c.AddSweep.Rollout = &proto.Rollout{Trigger: &proto.RolloutTrigger{Kind: proto.TriggerRepeat, Of: "s", Repeats: n}}
	return c
}

func again(seqLen int) IssueRequest {
	r := record(seqLen)
	r.Repeat = true
	return r
}

// TestRepeat: recordings of settled cells are asked for again, and the results
// of the cells stand all the while.
func TestRepeat(t *testing.T) {
	l := certified(t)
	if r := l.apply(repeatSweep("r", 2, 32)); !r.Accepted || r.Settled != 1 {
		t.Fatalf("add: %+v", r)
	}
	missing := func() int { v := l.View(); return v.Sweeps["r"].Missing(v.Records[keyOf(32)]) }
	state := func(id proto.MatrixID) string { r, _ := l.View().Report(id); return r.State }
	if missing() != 2 || state("r") != SweepRunning || state("s") != SweepSettled {
		t.Fatalf("%d missing, states %s and %s", missing(), state("r"), state("s"))
	}
	if tasks := l.issue(record(32)); len(tasks) != 0 {
		t.Fatalf("a settled cell took a request that is no repeat: %+v", tasks)
	}
	for want := 1; want >= 0; want-- {
		tasks := l.issue(again(32), again(32))
		if len(tasks) != 1 || tasks[0].Kind != proto.TaskRecord {
			t.Fatalf("issued %+v", tasks)
		}
		l.apply(take(result(tasks[0], proto.OutcomePass)))
		if missing() != want {
			t.Fatalf("%d missing, want %d", missing(), want)
		}
	}
	report, _ := l.View().Report("r")
	if report.State != SweepSettled || report.Cells[0].State != proto.CellCertified || len(report.Cells[0].Recordings) != 3 {
		t.Fatalf("%+v", report)
	}
	if got := report.Cells[0].Recordings[2]; got.PeakAllocated != 100 || got.PeakReserved != 120 || got.ProcessPeak != 700 || got.Torch != "2.11.0" {
		t.Fatalf("recording %+v", got)
	}
	if search := l.View().Records[keyOf(32)].Search; search.Certify != proto.CertifyEdges {
		t.Fatalf("a repeat widened the search to %+v", search)
	}
	if got, want := l.replay().Hash(), l.Hash(); got != want {
		t.Fatal("replay of the log gives another state")
	}
}

// TestRepeatGivesUp: a cell whose recordings fail is not recorded for ever.
func TestRepeatGivesUp(t *testing.T) {
	l := certified(t)
	l.apply(repeatSweep("r", 1, 64))
	for range repeatTries {
		if report, _ := l.View().Report("r"); report.State != SweepRunning {
			t.Fatalf("state %s", report.State)
		}
		l.apply(take(result(l.issue(again(64))[0], proto.OutcomeCrash)))
	}
	report, _ := l.View().Report("r")
	if report.State != SweepSettled || report.Cells[0].State != proto.CellCertified {
		t.Fatalf("%s, cell %s", report.State, report.Cells[0].State)
	}
}

// TestRepeatCancelled: what only a cancelled repeat waits for is taken back.
func TestRepeatCancelled(t *testing.T) {
	l := certified(t)
	l.apply(repeatSweep("r", 1, 32, 64))
	l.apply(repeatSweep("q", 1, 64))
	l.issue(again(32), again(64))
	reply := l.apply(Command{CancelSweep: &CancelSweep{ID: "r"}})
	if len(reply.Closed) != 1 || reply.Closed[0].Cell.SeqLen != 32 {
		t.Fatalf("closed %+v", reply.Closed)
	}
	if reply := l.apply(Command{CancelSweep: &CancelSweep{ID: "q"}}); len(reply.Closed) != 1 {
		t.Fatalf("closed %+v", reply.Closed)
	}
}

func TestRepeatRefused(t *testing.T) {
	l := newLog(t)
	l.apply(sweep("s", 32))
	if r := l.apply(repeatSweep("r", 1, 32)); r.Accepted || !strings.Contains(r.Refused, "nothing to repeat") {
		t.Fatalf("repeat of a cell in work: %+v", r)
	}
	if r := l.apply(repeatSweep("r", 1, 96)); r.Accepted || !strings.Contains(r.Refused, "nothing to repeat") {
		t.Fatalf("repeat of an unknown cell: %+v", r)
	}
	bad := probe(32, proto.GiB)
	bad.Repeat = true
	if r := l.apply(Command{Issue: &Issue{Seen: 9, Requests: []IssueRequest{bad}}}); !strings.Contains(r.Refused, "only a recording") {
		t.Fatalf("repeat of a probe: %+v", r)
	}
}

func TestVerdict(t *testing.T) {
	l := certified(t)
	verdict := proto.SweepVerdict{Base: "b", Verdict: proto.VerdictChanged, Summary: "changed: context +40 MiB", Changed: 1}
	set := Command{SetVerdict: &SetVerdict{ID: "s", Verdict: verdict}}
	if r := l.apply(set); !r.Accepted {
		t.Fatalf("%+v", r)
	}
	before := body(l.View())
	if r := l.apply(set); r.Accepted || r.Refused != "" || body(l.View()) != before {
		t.Fatalf("the same again: %+v", r)
	}
	if list := l.View().SweepList(); list[0].Rollout == nil || *list[0].Rollout.Verdict != verdict {
		t.Fatalf("%+v", list)
	}
	verdict.Verdict, verdict.Changed = proto.VerdictSame, 0
	if r := l.apply(Command{SetVerdict: &SetVerdict{ID: "s", Verdict: verdict}}); !r.Accepted {
		t.Fatalf("a newer verdict: %+v", r)
	}
	for _, bad := range []*SetVerdict{{ID: "x", Verdict: verdict}, {ID: "s", Verdict: proto.SweepVerdict{Verdict: "perhaps"}}} {
		if r := l.apply(Command{SetVerdict: bad}); r.Accepted || r.Refused == "" {
			t.Fatalf("%+v was taken", bad)
		}
	}
	var b bytes.Buffer
	restored := New()
	if err := l.Snapshot(&b); err != nil {
		t.Fatal(err)
	}
	if err := restored.Restore(&b); err != nil || restored.Hash() != l.Hash() {
		t.Fatalf("restored to another state: %v", err)
	}
}

// TestStandingOrderEnds: cancelling ends a standing order whose cells have
// settled, once, and leaves their results.
func TestStandingOrderEnds(t *testing.T) {
	l := certified(t)
	c := sweep("standing", 32)
	c.AddSweep.Rollout = &proto.Rollout{Policy: &proto.RolloutPolicy{MaxPerDay: 4}}
	l.apply(c)
	if !l.View().Sweeps["standing"].Standing() {
		t.Fatal("it does not stand")
	}
	cancel := Command{CancelSweep: &CancelSweep{ID: "standing"}}
	if r := l.apply(cancel); !r.Accepted {
		t.Fatalf("%+v", r)
	}
	report, _ := l.View().Report("standing")
	if l.View().Sweeps["standing"].Standing() || report.State != SweepSettled || report.Cells[0].State != proto.CellCertified {
		t.Fatalf("%+v", report)
	}
	if r := l.apply(cancel); r.Accepted || r.Refused == "" {
		t.Fatalf("cancelled twice: %+v", r)
	}
}

package plan

import (
	"fmt"
	"math/bits"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/oomfleet/oomfleet/proto"
)

// truth is a hidden map from quota to pass or fail, on the grid.
type truth struct {
	boundary, lowest proto.Bytes
	bands            []proto.Band
}

func (t truth) passes(q proto.Bytes) bool {
	if q < t.lowest {
		return false
	}
	for _, b := range t.bands {
		if q >= b.From && q <= b.To {
			return false
		}
	}
	return true
}

func (t truth) outcome(a aim, _ int) proto.Outcome {
	if a.kind == proto.TaskRecord || t.passes(a.quota) {
		return proto.OutcomePass
	}
	return proto.OutcomeOOMQuota
}

func (t truth) document() proto.Boundary {
	return proto.Boundary{
		Boundary: t.boundary, LowestPass: t.lowest, NoRetry: t.boundary + 64*proto.MiB, FailBands: t.bands, BandsKnown: true,
	}
}

const s2 = proto.DefaultStep

// drawTruth makes a truth with up to three fail bands below its boundary.
func drawTruth(t *rapid.T) truth {
	at := proto.Bytes(rapid.IntRange(200, 60_000).Draw(t, "lowest")) * s2
	tr := truth{lowest: at}
	for range rapid.IntRange(0, 3).Draw(t, "bands") {
		from := at + proto.Bytes(rapid.IntRange(1, 50).Draw(t, "gap"))*s2
		to := from + proto.Bytes(rapid.IntRange(0, 20).Draw(t, "width"))*s2
		tr.bands = append(tr.bands, proto.Band{From: from, To: to})
		at = to + s2
	}
	tr.boundary = at
	return tr
}

// meters puts the truth inside the bracket that a recording suggests.
func (t truth) meters(r *rapid.T) proto.Meters {
	below := proto.Bytes(rapid.IntRange(0, 400).Draw(r, "below")) * s2
	above := proto.Bytes(rapid.IntRange(0, 400).Draw(r, "above")) * s2
	return proto.Meters{
		PeakAllocated: ptr(max(0, t.lowest-below)), PeakReserved: ptr(t.boundary + above),
		ProcessPeak: ptr(t.boundary + above + 700*proto.MiB),
	}
}

func picker(t *rapid.T) func(int) int {
	return func(n int) int { return rapid.IntRange(0, n-1).Draw(t, "pick") }
}

// TestExactPrediction: a right prediction costs one recording and two probes
// for each cell, and settles as certified with the prediction's own document.
func TestExactPrediction(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tr := drawTruth(t)
		w := newWorld(testCell(proto.QuotaAllocator), proto.Search{Strategy: proto.StrategyPredict, Certify: proto.CertifyEdges})
		w.outcome, w.meters, w.prediction = tr.outcome, tr.meters(t), proto.Prediction{Boundary: tr.document()}
		if err := w.settle(picker(t)); err != nil {
			t.Fatal(err)
		}
		got := w.rec().Settled
		if got.State != proto.CellCertified || got.Boundary.Boundary != tr.boundary || got.Boundary.LowestPass != tr.lowest {
			t.Fatalf("settled %+v, truth %+v", got, tr)
		}
		if len(w.rec().Runs) != 3 || w.probes() != 2 {
			t.Fatalf("%d runs, %d probes; want one recording and two probes", len(w.rec().Runs), w.probes())
		}
	})
}

// TestCertifyAll: every edge of every band is seen, and nothing twice.
func TestCertifyAll(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tr := drawTruth(t)
		w := newWorld(testCell(proto.QuotaAllocator), proto.Search{Strategy: proto.StrategyPredict, Certify: proto.CertifyAll})
		w.outcome, w.meters, w.prediction = tr.outcome, tr.meters(t), proto.Prediction{Boundary: tr.document()}
		if err := w.settle(picker(t)); err != nil {
			t.Fatal(err)
		}
		if got := w.rec().Settled; got.State != proto.CellCertified || len(got.Boundary.FailBands) != len(tr.bands) {
			t.Fatalf("settled %+v, truth %+v", got, tr)
		}
		want := []proto.Bytes{tr.boundary, tr.boundary - s2, tr.lowest, tr.lowest - s2}
		for _, b := range tr.bands {
			want = append(want, b.From-s2, b.From, b.To, b.To+s2)
		}
		slices.Sort(want)
		want = slices.Compact(want)
		var got []proto.Bytes
		for _, r := range w.rec().Runs[1:] {
			got = append(got, r.Quota)
		}
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Fatalf("probed %v, want %v", got, want)
		}
	})
}

// edgeHolds is the promise of every search: a pass at the boundary and a fail
// one step below, both in the truth and both among the runs.
func edgeHolds(w *world, tr truth) error {
	b := w.rec().Settled.Boundary.Boundary
	if !tr.passes(b) || tr.passes(b-s2) {
		return fmt.Errorf("settled at %s, truth %+v", b, tr)
	}
	saw := func(q proto.Bytes, v proto.Verdict) bool {
		for _, r := range w.rec().Runs {
			if r.Kind == proto.TaskProbe && r.Quota == q && r.Outcome.Verdict() == v {
				return true
			}
		}
		return false
	}
	if !saw(b, proto.VerdictPass) || !saw(b-s2, proto.VerdictFail) {
		return fmt.Errorf("settled at %s without both edges among the runs", b)
	}
	return nil
}

// log2 is the ceiling.
func log2(n proto.Bytes) int { return bits.Len64(uint64(max(1, n) - 1)) }

// TestBisect: the edge found is one of the truth's, for the price that search
// promises.
func TestBisect(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tr := drawTruth(t)
		w := newWorld(testCell(proto.QuotaAllocator), proto.Search{Strategy: proto.StrategyBisect})
		w.outcome, w.meters = tr.outcome, tr.meters(t)
		if err := w.settle(picker(t)); err != nil {
			t.Fatal(err)
		}
		if err := edgeHolds(w, tr); err != nil {
			t.Fatal(err)
		}
		if w.rec().Settled.State != proto.CellBisected || w.rec().Settled.Boundary.BandsKnown {
			t.Fatalf("settled %+v", w.rec().Settled)
		}
		width := (*w.meters.PeakReserved - *w.meters.PeakAllocated + 22*proto.MiB) / s2
		if n, most := w.probes(), log2(width)+2; n > most {
			t.Fatalf("%d probes in a bracket of %d steps, at most %d", n, width, most)
		}
	})
}

// TestBisectOutsideBracket: the recording's peaks say nothing true of the
// boundary, as with a program that adapts.
func TestBisectOutsideBracket(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		at := proto.Bytes(rapid.IntRange(1, 71_000).Draw(t, "boundary")) * s2
		lo := proto.Bytes(rapid.IntRange(11, 60_000).Draw(t, "allocated")) * s2
		hi := lo + proto.Bytes(rapid.IntRange(0, 2000).Draw(t, "cached"))*s2
		tr := truth{boundary: at, lowest: at}
		w := newWorld(testCell(proto.QuotaAllocator), proto.Search{Strategy: proto.StrategyBisect})
		w.outcome, w.meters = tr.outcome, proto.Meters{PeakAllocated: &lo, PeakReserved: &hi}
		if err := w.settle(picker(t)); err != nil {
			t.Fatal(err)
		}
		br := bracketOf(w.rec().Cell, &w.rec().Runs[0], limitsOf(w.rec(), totalOf(&w.rec().Runs[0])))
		out := max(0, at-br.hi, br.lo-at+s2) / s2
		most := log2((br.hi-br.lo)/s2) + 2
		if out > 0 {
			most += 2*log2(out) + 3
		}
		if n := w.probes(); n > most {
			t.Fatalf("%d probes, boundary %d steps outside [%s, %s], at most %d", n, out, br.lo, br.hi, most)
		}
		if at == s2 { // nothing below the range to see failing
			if got := w.rec().Settled; got.Boundary.Boundary != at || got.Reason == "" {
				t.Fatalf("settled %+v at the end of the range", got)
			}
			return
		}
		if err := edgeHolds(w, tr); err != nil {
			t.Fatal(err)
		}
	})
}

// TestWrongPrediction: replay is wrong by some steps in either direction. The
// miss is found and the truth's edge with it.
func TestWrongPrediction(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tr := drawTruth(t)
		off := rapid.IntRange(-199, 2000).Filter(func(n int) bool { return n != 0 }).Draw(t, "off")
		said := tr.document()
		said.Boundary, said.LowestPass, said.FailBands = tr.boundary+proto.Bytes(off)*s2, tr.boundary+proto.Bytes(off)*s2, nil
		w := newWorld(testCell(proto.QuotaAllocator), proto.Search{Strategy: proto.StrategyPredict, Certify: proto.CertifyEdges})
		w.outcome, w.meters, w.prediction = tr.outcome, tr.meters(t), proto.Prediction{Boundary: said}
		if err := w.settle(picker(t)); err != nil {
			t.Fatal(err)
		}
		if err := edgeHolds(w, tr); err != nil {
			t.Fatal(err)
		}
		got := w.rec().Settled
		if got.Boundary.Boundary == said.Boundary { // another edge of the truth: nothing to complain of
			if got.State != proto.CellCertified {
				t.Fatalf("settled %+v on an edge that holds", got)
			}
			return
		}
		want := proto.CellBisected
		if got.Boundary.Boundary < said.Boundary {
			want = proto.CellAdaptive
		}
		if got.State != want || got.Reason == "" || got.Boundary.BandsKnown {
			t.Fatalf("settled %+v, said %s, want %s", got, said.Boundary, want)
		}
		if n, most := w.probes(), 2*log2(proto.Bytes(max(off, -off))+400)+5; n > most {
			t.Fatalf("%d probes for a miss of %d steps, at most %d", n, off, most)
		}
	})
}

// TestLessonCosts: a cell that adapts and leaves a trace of it costs one probe
// more than one that does as it was recorded; one that is refused, two.
func TestLessonCosts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tr := drawTruth(t)
		off := rapid.IntRange(-150, 2000).Filter(func(n int) bool { return n != 0 }).Draw(t, "off")
		said := proto.Boundary{Boundary: tr.boundary + proto.Bytes(off)*s2}
		said.LowestPass = said.Boundary
		w := newWorld(testCell(proto.QuotaAllocator), proto.Search{Strategy: proto.StrategyPredict, Certify: proto.CertifyEdges})
		w.outcome, w.meters, w.prediction, w.traces = tr.outcome, tr.meters(t), proto.Prediction{Boundary: said}, true
		w.taught = proto.Prediction{Boundary: tr.document()}
		if err := w.settle(picker(t)); err != nil {
			t.Fatal(err)
		}
		if tr.passes(said.Boundary) && !tr.passes(said.Boundary-s2) {
			return // another edge of the truth: nothing to learn
		}
		if err := edgeHolds(w, tr); err != nil {
			t.Fatal(err)
		}
		most := 4
		if tr.passes(said.Boundary - s2) {
			most = 3
		}
		got := w.rec().Settled
		if got.Boundary.Boundary != tr.boundary || !got.Boundary.BandsKnown || got.Reason == "" || w.probes() > most {
			t.Fatalf("settled %+v after %d probes, truth %+v", got, w.probes(), tr)
		}
	})
}

// TestAnyWorld: whatever the outcomes are, a cell settles, in a bounded number
// of runs, and never twice.
func TestAnyWorld(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tr := drawTruth(t)
		search := proto.Search{
			Strategy:      rapid.SampledFrom([]proto.Strategy{proto.StrategyPredict, proto.StrategyBisect}).Draw(t, "strategy"),
			Certify:       rapid.SampledFrom([]proto.Certify{proto.CertifyEdges, proto.CertifyAll, proto.CertifySample, proto.CertifyNone}).Draw(t, "certify"),
			SamplePercent: rapid.IntRange(1, 100).Draw(t, "percent"),
			Min:           proto.Bytes(rapid.IntRange(0, 3000).Draw(t, "min")) * s2,
		}
		search.Max = rapid.SampledFrom([]proto.Bytes{0, search.Min + proto.Bytes(rapid.IntRange(1, 50_000).Draw(t, "max"))*s2}).Draw(t, "limit")
		kind := rapid.SampledFrom(proto.QuotaKinds()).Draw(t, "kind")
		w := newWorld(testCell(kind), search)
		w.meters, w.prediction = tr.meters(t), proto.Prediction{Boundary: tr.document()}
		if rapid.Bool().Draw(t, "refused") {
			w.prediction = proto.Prediction{Refused: "self-check"}
		}
		w.traces = rapid.Bool().Draw(t, "traces")
		noise := rapid.SampledFrom(proto.Outcomes())
		w.outcome = func(a aim, n int) proto.Outcome {
			if rapid.IntRange(0, 3).Draw(t, "noisy") == 0 {
				return noise.Draw(t, "outcome")
			}
			return tr.outcome(a, n)
		}
		if err := w.settle(picker(t)); err != nil {
			t.Fatal(err)
		}
		if a, err := w.next(); err != nil || len(a.Issue)+len(a.Predict)+len(a.Settle) != 0 {
			t.Fatalf("a settled cell still wants %+v, %v", a, err)
		}
		if got := w.rec().Settled; (got.State == proto.CellFailed) != (got.Boundary.Boundary == 0) || got.State == proto.CellFailed && got.Reason == "" {
			t.Fatalf("settled %+v", got)
		}
	})
}

// TestNextIsPure: the same view gives the same actions, and the view is left
// as it was.
func TestNextIsPure(t *testing.T) {
	w := newWorld(testCell(proto.QuotaAllocator), proto.Search{Strategy: proto.StrategyBisect})
	w.outcome = truth{boundary: 9000 * proto.MiB, lowest: 9000 * proto.MiB}.outcome
	w.meters = proto.Meters{PeakAllocated: ptr(8500 * proto.MiB), PeakReserved: ptr(9400 * proto.MiB)}
	for w.rec().Settled == nil {
		v := w.machine.View()
		before := v.Hash()
		first, second := fmt.Sprintf("%+v", Next(v)), fmt.Sprintf("%+v", Next(v))
		if first != second {
			t.Fatalf("first %s\nthen %s", first, second)
		}
		if v.Hash() != before {
			t.Fatal("Next changed the view")
		}
		if _, err := w.advance(func(int) int { return 0 }); err != nil {
			t.Fatal(err)
		}
	}
}

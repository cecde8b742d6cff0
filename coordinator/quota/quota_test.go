package quota_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/oomfleet/oomfleet/allocator"
	"github.com/oomfleet/oomfleet/coordinator/quota"
	"github.com/oomfleet/oomfleet/coordinator/quota/quotatest"
	"github.com/oomfleet/oomfleet/proto"
	"github.com/oomfleet/oomfleet/storage/registry"
)

const traces = "../../agent/sim/traces"

func adviser(w *quotatest.World) quota.Adviser {
	return quota.Adviser{View: w.View(), Library: w.Library(), Now: w.Last.Add(time.Hour), At: quota.Stamp{AppliedIndex: w.View().AppliedIndex}}
}

func question(seqLen, batch int, edit ...func(*quota.Question)) quota.Question {
	q := quota.Question{Subject: quota.Subject{Workload: "esmfold", Driver: quotatest.Driver}, SeqLen: seqLen, Batch: batch,
		Kind: proto.QuotaAllocator, Origin: proto.OriginSimulated}
	for _, e := range edit {
		e(&q)
	}
	return q
}

func chunk64(q *quota.Question)    { q.ChunkSize = 64 }
func process(q *quota.Question)    { q.Kind = proto.QuotaProcess }
func device(q *quota.Question)     { q.Kind = proto.QuotaDevice }
func synthetic(q *quota.Question)  { q.Driver = quotatest.Synthetic }
func expandable(q *quota.Question) { setEnv(q, "expandable_segments:True") }
func split(q *quota.Question)      { setEnv(q, "max_split_size_mb:128") }

func setEnv(q *quota.Question, conf string) {
	q.Env = map[string]string{allocator.EnvConf: conf}
}

// replay is whether a run of the real recording passes under a quota.
func replay(t *testing.T, w *quotatest.World, q quota.Question, bytes proto.Bytes) bool {
	t.Helper()
	settings, err := allocator.SettingsFromEnv(q.Env)
	if err != nil {
		t.Fatal(err)
	}
	limit := allocator.Limit{Cap: int64(bytes)}
	if q.Kind != proto.QuotaAllocator {
		_, meta := w.Events(q.SeqLen, q.Batch, q.ChunkSize)
		outside, _ := meta.OutsideAllocator()
		limit = allocator.Limit{Device: int64(bytes - outside)}
	}
	return !w.Recorded(q.SeqLen, q.Batch, q.ChunkSize).Replay(settings, allocator.ReplayOptions{Limit: limit}).OOM
}

// TestReplayedAtTheRecommendation: on real recordings, what is recommended
// passes, and so does every quota for some way above; one step below the edge
// that it stands on, the run fails where the edge is this cell's own.
func TestReplayedAtTheRecommendation(t *testing.T) {
	w := quotatest.New(t, traces)
	a := adviser(w)
	for _, tt := range []struct {
		name  string
		q     quota.Question
		basis quota.Basis
		exact bool // the edge is the recording's own
	}{
		{"certified", question(384, 1), quota.BasisBoundary, true},
		{"certified, with a fail band below", question(512, 1, chunk64), quota.BasisBoundary, true},
		{"certified, two sequences", question(256, 2), quota.BasisBoundary, true},
		{"predicted", question(320, 1), quota.BasisPrediction, true},
		{"predicted, chunked", question(384, 1, chunk64), quota.BasisPrediction, true},
		{"other settings, from the recording", question(384, 1, expandable), quota.BasisRecording, true},
		{"settings that nobody swept", question(384, 1, split), quota.BasisRecording, true},
		{"process quota, from the recording", question(384, 1, process), quota.BasisRecording, true},
		{"device quota, from the recording", question(320, 1, device), quota.BasisRecording, true},
		{"from the program", question(448, 1), quota.BasisProgram, false},
		{"from the program, further out", question(640, 1), quota.BasisProgram, false},
		{"from the program, odd length", question(301, 1), quota.BasisProgram, false},
		{"from the program, other settings", question(448, 1, expandable), quota.BasisProgram, false},
		{"from the program, process quota", question(640, 1, process), quota.BasisProgram, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r, err := a.Recommend(tt.q)
			if err != nil {
				t.Fatal(err)
			}
			if r.Basis != tt.basis || r.Quota%r.Step != 0 || r.Quota < r.Survive+r.Margin || len(r.Evidence) == 0 || r.MarginWhy == "" ||
				r.Extrapolated || r.Risk != nil || !r.BandsKnown || r.AppliedIndex == 0 || r.QuotaKind != tt.q.Kind {
				t.Errorf("%+v", r)
			}
			for up := proto.Bytes(0); up <= 64*proto.MiB; up += r.Step {
				if !replay(t, w, tt.q, r.Quota+up) {
					t.Fatalf("the run fails at %s, recommended were %s", r.Quota+up, r.Quota)
				}
			}
			if tt.exact && replay(t, w, tt.q, r.Survive-r.Step) {
				t.Errorf("the run passes one step below the boundary %s", r.Survive)
			}
			// A margin that hides a wrong edge would be no margin.
			if low := r.Survive - 32*proto.MiB; replay(t, w, tt.q, low-low%r.Step) && tt.exact && len(r.FailBands) == 0 {
				t.Errorf("the run passes at %s, far below %s", low, r.Survive)
			}
			if r.NoRetry == nil || *r.NoRetry < r.Survive {
				t.Errorf("no-retry from %v, survive from %s", r.NoRetry, r.Survive)
			}
		})
	}
	if r, err := a.Recommend(question(384, 1)); err != nil || r.Quota != 11014*proto.MiB || r.Margin != 0 || r.Evidence[0].Passes != 1 || r.Evidence[0].Fails != 1 {
		t.Errorf("L384: %+v, %v; want the 11,014 MiB that a real GPU held", r, err)
	}
	// The chunked length fails in a band below its boundary: never recommend it.
	if r, err := a.Recommend(question(512, 1, chunk64)); err != nil || r.Quota != 10662*proto.MiB || len(r.FailBands) != 1 {
		t.Errorf("L512 c64: %+v, %v", r, err)
	}
	// A real GPU passed at 11,703 MiB of device quota and failed at 11,690.
	if r, err := a.Recommend(question(384, 1, device)); err != nil || r.Survive < 11690*proto.MiB || r.Survive > 11704*proto.MiB ||
		r.Quota < 11703*proto.MiB || r.Translation == nil || r.Translation.Modules <= 0 {
		t.Errorf("L384 under a device quota: %+v, %v", r, err)
	}
}

// lost is a library that has lost everything.
func lost() quota.Library {
	err := errors.New("the trace store does not answer")
	return quota.Library{Family: func(proto.Digest) (*allocator.Family, error) { return nil, err },
		Recording: func(proto.Digest) (*allocator.Program, error) { return nil, err }}
}

// TestLadder walks down as evidence is taken away.
func TestLadder(t *testing.T) {
	w := quotatest.New(t, traces)
	a := adviser(w)
	a.Library = lost()
	fitted, err := a.Recommend(question(300, 1))
	if err != nil || fitted.Basis != quota.BasisCoefficients || fitted.Risk == nil || *fitted.Risk != quota.DefaultRisk || fitted.Domain == nil ||
		!has(fitted.Notes, "could not be read: the trace store does not answer") || fitted.NoRetry != nil || fitted.Predicted >= fitted.Quota {
		t.Fatalf("%+v, %v", fitted, err)
	}
	if truth := replayPeak(w, 300); fitted.Quota < truth {
		t.Errorf("the bound at risk 0.01 is %s, the recorded peak %s", fitted.Quota, truth)
	}
	safer, err := a.Recommend(question(300, 1, func(q *quota.Question) { q.Risk = 0.001 }))
	if err != nil || safer.Quota < fitted.Quota || *safer.Risk != 0.001 {
		t.Errorf("at risk 0.001 %s, at 0.01 %s: %v", safer.Quota, fitted.Quota, err)
	}
	// Beyond the fit nothing answers, unless it is told to extrapolate.
	_, err = a.Recommend(question(500, 1))
	wantRefusal(t, err, quota.OutsideDomain, "length 500 at batch 1 is outside what was fitted (lengths 128 to 384, batches 1 to 1); settled cells, none at least as large: L384 B1, L256 B2; its program holds for ")
	far, err := a.Recommend(question(500, 1, func(q *quota.Question) { q.Extrapolate = true }))
	if err != nil || !far.Extrapolated || far.Risk != nil || !has(far.Notes, "EXTRAPOLATED") {
		t.Errorf("%+v, %v", far, err)
	}
	// A certified cell outside the fit's domain answers for itself and below.
	beyond := quotatest.Cell(640, 1, 0)
	w.Add("beyond", beyond)
	w.Settle(beyond, registry.Settlement{State: proto.CellBisected, Boundary: proto.Boundary{Boundary: 20 * proto.GiB, FailBands: []proto.Band{}}})
	a.View = w.View()
	r, err := a.Recommend(question(640, 1))
	if err != nil || !has(r.Notes, "length 640 at batch 1 is outside what was fitted (lengths 128 to 384, batches 1 to 1); what answers is the boundary") || r.Basis != quota.BasisBoundary || r.BandsKnown || r.NoRetry != nil || r.Quota != 20*proto.GiB || !has(r.Notes, "one edge is known") {
		t.Errorf("%+v, %v", r, err)
	}
	r, err = a.Recommend(question(500, 1))
	if err != nil || r.Basis != quota.BasisNeighbour || r.Quota != 20*proto.GiB || r.CellID != "" || !has(r.Notes, "an upper bound") {
		t.Errorf("%+v, %v", r, err)
	}
	// The fit bounds a length inside its domain closer than that neighbour.
	if r, err = a.Recommend(question(300, 1)); err != nil || r.Basis != quota.BasisCoefficients {
		t.Errorf("%+v, %v", r, err)
	}
	// Without replay, another kind's boundary is translated.
	r, err = a.Recommend(question(384, 1, process))
	if err != nil || r.Basis != quota.BasisTranslated || r.Translation == nil || r.Translation.From != proto.QuotaAllocator ||
		r.Quota < 11703*proto.MiB || r.Quota > 11730*proto.MiB || r.Margin != 16*proto.MiB {
		t.Errorf("%+v, %v", r, err)
	}
	if !replay(t, w, question(384, 1, process), r.Quota) {
		t.Errorf("the translated quota %s fails", r.Quota)
	}
}

func replayPeak(w *quotatest.World, seqLen int) proto.Bytes {
	return proto.Bytes(w.Recorded(seqLen, 1, 0).Replay(allocator.Settings{}, allocator.ReplayOptions{}).PeakReserved)
}

func has(notes []string, words string) bool {
	return strings.Contains(strings.Join(notes, "\n"), words)
}

func wantRefusal(t *testing.T, err error, code quota.Code, words string) {
	t.Helper()
	var r *quota.Refusal
	if !errors.As(err, &r) || r.Code != code || !strings.Contains(r.Why, words) {
		t.Errorf("got %v, want %s with %q", err, code, words)
	}
}

// TestArticle: what the rules of thumb would have asked for, in whole bytes.
func TestArticle(t *testing.T) {
	w := quotatest.New(t, traces)
	r, err := adviser(w).Recommend(question(384, 1))
	if err != nil || len(r.Article) != 2 {
		t.Fatalf("%+v, %v", r.Article, err)
	}
	_, meta := w.Events(384, 1, 0)
	tenth, weights := r.Article[0], r.Article[1]
	if want := (meta.PeakReserved*11 + 9) / 10; tenth.Asks != want || tenth.Waste != want-r.Quota || tenth.Verdict != quota.Passes {
		t.Errorf("%+v, want %d", tenth, want)
	}
	if want := meta.Weights + 20*proto.GiB; weights.Asks != want || weights.Waste != want-r.Quota || weights.Verdict != quota.Passes {
		t.Errorf("%+v, want %d", weights, want)
	}
	// The chunked length has passing quotas below its band: what is less than
	// the boundary need not fail. A fit's bound is no edge either.
	a := adviser(w)
	a.Library = lost()
	fitted, err := a.Recommend(question(300, 1, func(q *quota.Question) { q.Risk = 0.0001 }))
	if err != nil || fitted.Article[0].Asks < fitted.Survive && fitted.Article[0].Verdict != quota.NotAssured {
		t.Errorf("%+v, %v", fitted, err)
	}
	// Under a process quota the first rule forgets the context: here it is
	// enough all the same, by luck; its figure is the same.
	p, err := adviser(w).Recommend(question(384, 1, process))
	if err != nil || p.Article[0].Asks != tenth.Asks || p.Article[0].Waste >= tenth.Waste {
		t.Errorf("%+v, %v", p.Article, err)
	}
}

// TestBackward: the largest length and batch fit, and the next ones do not.
func TestBackward(t *testing.T) {
	w := quotatest.New(t, traces)
	a := adviser(w)
	for _, quotaBytes := range []proto.Bytes{9 * proto.GiB, 11014 * proto.MiB, 12 * proto.GiB, 24 * proto.GiB} {
		r, err := a.MaxSeqLen(question(0, 1), quotaBytes)
		if err != nil || r.LimitedBy != "quota" || r.At.Quota > quotaBytes || r.At.SeqLen != r.Value || r.Next == nil || r.Next.Quota <= quotaBytes || r.Asked > 40 {
			t.Fatalf("%s: %+v, %v", quotaBytes, r, err)
		}
		if quotaBytes == 11014*proto.MiB && r.Value != 384 {
			t.Errorf("%s is what length 384 was certified at, and holds %d", quotaBytes, r.Value)
		}
		for n := r.Value; n > r.Value-3 && r.At.Basis == quota.BasisProgram; n-- {
			if one, err := a.Recommend(question(n, 1)); err != nil || one.Quota > quotaBytes {
				t.Errorf("%s: length %d is to fit and needs %s: %v", quotaBytes, n, one.Quota, err)
			}
		}
		t.Logf("%s holds length %d (%s, %s), asked %d", quotaBytes, r.Value, r.At.Quota, r.At.Basis, r.Asked)
	}
	_, err := a.MaxSeqLen(question(0, 1), 4*proto.GiB)
	wantRefusal(t, err, quota.NothingFits, "no seq_len fits 4096 MiB: the smallest that is known (length ")
	_, err = a.MaxSeqLen(question(0, 1), 0)
	wantRefusal(t, err, quota.BadQuestion, "the quota is 0 bytes, and must be more than 0")
	_, err = a.MaxSeqLen(question(0, -1), proto.GiB)
	wantRefusal(t, err, quota.BadQuestion, "batch is -1")
	_, err = a.MaxSeqLen(question(0, 9), 30*proto.GiB)
	wantRefusal(t, err, quota.NotCovered, "nothing is known")

	b, err := a.MaxBatch(question(256, 0), 30*proto.GiB)
	if err != nil || b.Value != 2 || b.LimitedBy != "domain" || b.At.Basis != quota.BasisBoundary || !has(b.At.Notes, "nothing is known beyond batch 2") {
		t.Errorf("%+v, %v", b, err)
	}
	b, err = a.MaxBatch(question(256, 0), b.At.Quota-2*proto.MiB)
	if err != nil || b.Value != 1 || b.LimitedBy != "quota" || b.Next == nil || b.Next.Batch != 2 {
		t.Errorf("%+v, %v", b, err)
	}
}

// TestReplicas: each replica pays for a context of its own.
func TestReplicas(t *testing.T) {
	w := quotatest.New(t, traces)
	a := adviser(w)
	for _, kind := range proto.QuotaKinds() {
		q := question(384, 1, func(q *quota.Question) { q.Kind = kind })
		r, err := a.ReplicasOn(q, 80*proto.GiB)
		if err != nil || r.Replicas != 6 || r.WithoutContext != 7 || r.Each < 11703*proto.MiB || r.Left != 80*proto.GiB-6*r.Each || r.Left < 0 {
			t.Errorf("%s: %+v, %v", kind, r, err)
		}
	}
	own, err := a.ReplicasOn(question(384, 1, process), 0)
	if err != nil || own.Card != 150_109_880_320 || own.Replicas != 12 {
		t.Errorf("%+v, %v", own, err)
	}
	_, err = a.ReplicasOn(question(384, 1, process), 8*proto.GiB)
	wantRefusal(t, err, quota.NothingFits, "no run fits: one takes 11")
	_, err = a.ReplicasOn(question(384, 1), -1)
	wantRefusal(t, err, quota.BadQuestion, "must not be negative")
}

// TestCompare: the synthetic driver has 40 MiB more context, which an allocator
// quota does not see and a process quota does.
func TestCompare(t *testing.T) {
	w := quotatest.New(t, traces)
	a := adviser(w)
	c, err := a.Compare(question(384, 1), question(384, 1, synthetic))
	if err != nil || c.Difference != 0 || c.Outside != quotatest.Offset {
		t.Errorf("allocator: %+v, %v", c, err)
	}
	c, err = a.Compare(question(384, 1, process), question(384, 1, process, synthetic))
	if err != nil || c.Difference != quotatest.Offset {
		t.Errorf("process: %+v, %v", c, err)
	}
	moved := map[string]proto.Bytes{}
	for _, term := range c.Terms {
		if term.A != term.B {
			moved[term.Target+" "+term.Name] = term.B - term.A
		}
	}
	if len(moved) != 1 || moved["process context"] != quotatest.Offset {
		t.Errorf("moved %v", moved)
	}
	_, err = a.Compare(question(384, 1), question(384, 1, process))
	wantRefusal(t, err, quota.BadQuestion, "are no two of a kind")
}

// TestWrongQuestions: a code and a sentence for each.
func TestWrongQuestions(t *testing.T) {
	w := quotatest.New(t, traces)
	waiting := quotatest.Cell(384, 1, 0)
	waiting.Driver = "600.1"
	w.Add("waiting", waiting)
	a := adviser(w)
	for _, tt := range []struct {
		edit  func(*quota.Question)
		code  quota.Code
		words string
	}{
		{func(q *quota.Question) { q.Driver = "1.2" }, quota.UnknownDriver, "drivers covered: 580.159.04, 580.159.04-synthetic"},
		{func(q *quota.Question) { q.Driver = "600.1" }, quota.NotCovered, "no boundary and its group no coefficients yet"},
		{func(q *quota.Question) { q.Driver = "" }, quota.Ambiguous, "several stacks"},
		{func(q *quota.Question) { q.Origin, q.Driver = proto.OriginMeasured, "" }, quota.NotCovered, "simulated has drivers 580.159.04, 580.159.04-synthetic: ask with origin simulated"},
		{func(q *quota.Question) { q.Batch = -3 }, quota.BadQuestion, "batch is -3"},
		{func(q *quota.Question) { q.SeqLen = 0 }, quota.BadQuestion, "seq_len is 0"},
		{func(q *quota.Question) { q.ChunkSize = -1 }, quota.BadQuestion, "chunk_size is -1"},
		{func(q *quota.Question) { q.Risk = -0.1 }, quota.BadQuestion, "risk is -0.1"},
		{func(q *quota.Question) { q.Kind = "soft" }, quota.BadQuestion, "quota_kind"},
		{func(q *quota.Question) { q.Origin = "dreamt" }, quota.BadQuestion, "origin"},
		{func(q *quota.Question) { q.Workload = "other" }, quota.NotCovered, "workloads covered: esmfold"},
		{func(q *quota.Question) { q.Params = map[string]string{"model": "x"} }, quota.NotCovered, "workloads covered"},
		{func(q *quota.Question) { q.GPU = "Voodoo" }, quota.NotCovered, "GPUs covered: NVIDIA H200"},
		{func(q *quota.Question) { q.Env = map[string]string{"CUBLAS_WORKSPACE_CONFIG": ":4096:8"} }, quota.NotCovered, "with CUBLAS_WORKSPACE_CONFIG=:4096:8"},
		{func(q *quota.Question) { q.SeqLen = 90_000 }, quota.OutsideDomain, "outside what was fitted"},
	} {
		_, err := a.Recommend(question(384, 1, tt.edit))
		wantRefusal(t, err, tt.code, tt.words)
	}
	// A measured sweep waits for cards; the other origin knows all the same.
	w.Apply(registry.Command{AddSweep: &registry.AddSweep{ID: "measured", Name: "measured", Origin: proto.OriginMeasured, Source: "matrix",
		Cells: []proto.Cell{quotatest.Cell(384, 1, 0)}, Search: proto.Search{Strategy: proto.StrategyPredict, Certify: proto.CertifyEdges}}})
	a = adviser(w)
	measured := question(384, 1, func(q *quota.Question) { q.Origin = proto.OriginMeasured })
	_, err := a.Recommend(measured)
	wantRefusal(t, err, quota.NotCovered, "simulated has drivers 580.159.04: ask with origin simulated")
	_, err = a.MaxSeqLen(measured, 30*proto.GiB)
	wantRefusal(t, err, quota.NotCovered, "simulated has drivers 580.159.04: ask with origin simulated")
	_, err = quota.Adviser{View: registry.New().View()}.Recommend(question(384, 1))
	wantRefusal(t, err, quota.NotCovered, "no simulated sweep has run: submit a matrix first")
}

// TestStopped: no replay is begun once its end was asked for.
func TestStopped(t *testing.T) {
	a := adviser(quotatest.New(t, traces))
	a.Stop = func() bool { return true }
	if r, err := a.Recommend(question(640, 1)); err == nil && r.Basis == quota.BasisProgram {
		t.Errorf("replayed after the end: %+v", r)
	}
}

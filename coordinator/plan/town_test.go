package plan

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/oomfleet/oomfleet/proto"
	"github.com/oomfleet/oomfleet/storage/registry"
)

// town is a world of many cells that share recordings and programs. What the
// cells really do is planted; recordings, programs and replays say what they
// can know of it.
type town struct {
	*world
	t *rapid.T
	// real is the truth of each cell, shown what a replay of its own recording
	// says, and off by how much a borrowed prediction misses that.
	real  map[registry.Key]truth
	shown map[registry.Key]proto.Boundary
	off   map[registry.Key]proto.Bytes
	// changed are cells whose recording holds other sizes than programs say.
	changed map[registry.Key]bool
	// program says what building from these inputs gives.
	program func(Build) registry.SetProgram
	// refuses are cells that a program or a borrowed recording does not predict.
	refuses map[registry.Key]bool
	noise   bool
	builds  int
	lessons int
	// burst is how much at most ends between two plans.
	burst int
}

func newTown(t *rapid.T) *town {
	w := newWorld(testCell(proto.QuotaAllocator), proto.Search{})
	w.machine, w.index, w.planner = registry.New(), 0, Planner{}
	return &town{
		world: w, t: t, real: make(map[registry.Key]truth), shown: make(map[registry.Key]proto.Boundary), off: make(map[registry.Key]proto.Bytes),
		changed: make(map[registry.Key]bool), refuses: make(map[registry.Key]bool), program: reaching,
	}
}

// reaching is a program that holds from three quarters of the shortest length
// to four times the longest, and to four times the largest of several batches.
func reaching(b Build) registry.SetProgram {
	d := registry.ProgramDomain{SeqLen: proto.Range{b.Inputs[0].SeqLen, 0}, Batch: proto.Range{b.Inputs[0].Batch, 0}, Partial: true}
	for _, in := range b.Inputs {
		d.SeqLen = proto.Range{min(d.SeqLen[0], in.SeqLen), max(d.SeqLen[1], 4*in.SeqLen)}
		d.Batch = proto.Range{min(d.Batch[0], in.Batch), max(d.Batch[1], in.Batch)}
	}
	d.SeqLen[0] = d.SeqLen[0] * 3 / 4
	if d.Batch[0] < d.Batch[1] {
		d.Batch[1] *= 4
	}
	digests := digestsOf(b.Inputs)
	return registry.SetProgram{Family: b.Family, Inputs: digests, Program: proto.Digest(fmt.Sprint("program of ", digests)), Domains: []registry.ProgramDomain{d}}
}

// plant adds a cell with a truth that depends on its axes, and no deviation.
func (w *town) plant(c proto.Cell) {
	key := registry.Key{Origin: w.key.Origin, Cell: c.ID()}
	at := proto.Bytes(3000+c.Batch*c.SeqLen*4+len(c.Env["PYTORCH_CUDA_ALLOC_CONF"])) * s2
	if c.QuotaKind != proto.QuotaAllocator {
		at += 350 * s2
	}
	w.real[key] = truth{boundary: at, lowest: at}
	w.shown[key] = w.real[key].document()
}

// step does one round and reports whether anything happened.
func (w *town) step() bool {
	a, err := w.next()
	if err != nil {
		w.t.Fatal(err)
	}
	if len(a.Issue) > 0 {
		if reply := w.apply(registry.Command{Issue: &registry.Issue{Seen: w.index, Requests: a.Issue}}); len(reply.Issued) != len(a.Issue) {
			w.t.Fatalf("%d of %d requests issued: %+v", len(reply.Issued), len(a.Issue), a.Issue)
		}
	}
	for _, s := range a.Settle {
		w.apply(registry.Command{Settle: &s})
	}
	// Some of what is under way ends, in any order.
	var ends []func()
	for _, b := range a.Build {
		ends = append(ends, func() { w.build(b) })
	}
	for _, r := range a.Predict {
		ends = append(ends, func() { w.replay(r) })
	}
	v := w.machine.View()
	keys := slices.SortedFunc(func(yield func(registry.Key) bool) {
		for k := range v.Records {
			if !yield(k) {
				return
			}
		}
	}, registry.Key.Compare)
	for _, key := range keys {
		for _, o := range v.Records[key].Open {
			ends = append(ends, func() { w.finish(o.Task, w.outcomeOf(key, o.Task), "") })
		}
	}
	if len(ends) == 0 {
		return len(a.Settle) > 0
	}
	for range rapid.IntRange(1, max(1, w.burst)).Draw(w.t, "burst") {
		if len(ends) == 0 {
			break
		}
		i := rapid.IntRange(0, len(ends)-1).Draw(w.t, "end")
		ends[i]()
		ends = slices.Delete(ends, i, i+1)
	}
	return true
}

func (w *town) outcomeOf(key registry.Key, task proto.Task) proto.Outcome {
	if w.noise && rapid.IntRange(0, 7).Draw(w.t, "noisy") == 0 {
		return rapid.SampledFrom(silent()).Draw(w.t, "outcome")
	}
	shown := w.shown[key]
	process := shown.Boundary + 600*proto.MiB
	w.meters = proto.Meters{PeakAllocated: ptr(shown.Boundary - 100*s2), PeakReserved: ptr(shown.Boundary + 100*s2), ProcessPeak: &process}
	return w.real[key].outcome(aim{task.Kind, task.Quota}, 0)
}

// silent are the outcomes that say nothing false of a quota.
func silent() []proto.Outcome {
	return slices.DeleteFunc(proto.Outcomes(), func(o proto.Outcome) bool {
		switch o.Verdict() {
		case proto.VerdictPass, proto.VerdictFail, proto.VerdictConfirm:
			return true
		}
		return false
	})
}

func (w *town) build(b Build) {
	w.builds++
	set := w.program(b)
	w.apply(registry.Command{SetProgram: &set})
}

// replay says what is shown, off where it is borrowed.
func (w *town) replay(r Replay) {
	p := proto.Prediction{Trace: r.Trace.Digest, Program: r.Program, Boundary: w.shown[r.Key], Varies: r.Varies}
	if r.Lesson.Number > 0 {
		p = w.lesson(r)
	} else if borrowed := r.Trace.Digest != traceOf(r.Cell); borrowed {
		p.Boundary.Boundary += w.off[r.Key]
		p.LowestPass = p.Boundary.Boundary
		if w.refuses[r.Key] {
			p = proto.Prediction{Trace: r.Trace.Digest, Program: r.Program, Refused: "outside the domain"}
		}
	}
	family := registry.FamilyOf(r.Key.Origin, r.Cell)
	if now := w.machine.View().Programs[family]; r.Check != "" && w.changed[r.Key] && now.Digest == r.Check {
		w.apply(registry.Command{SetProgram: &registry.SetProgram{Family: family, Inputs: now.Inputs, Program: r.Check, Domains: now.Domains, Stale: "sizes differ"}})
	}
	w.apply(registry.Command{SetPrediction: &registry.SetPrediction{Key: r.Key, Prediction: p}})
}

// lesson is what a probe's trace teaches: the truth, something near it, or
// nothing.
func (w *town) lesson(r Replay) proto.Prediction {
	w.lessons++
	p := proto.Prediction{Trace: r.Trace.Digest, Lesson: lessonOf(r, proto.LessonExtra), Boundary: w.real[r.Key].document(), Varies: r.Varies}
	switch rapid.IntRange(0, 5).Draw(w.t, "lesson") {
	case 0:
		p.Boundary.Boundary += proto.Bytes(rapid.IntRange(-20, 20).Draw(w.t, "lesson off")) * s2
		p.LowestPass = p.Boundary.Boundary
	case 1:
		p.Boundary, p.Refused = proto.Boundary{}, "it goes another way"
	case 2:
		p.Lesson.Kind, p.Varies = proto.LessonOrder, r.Lesson.Own
		if !r.Lesson.Own && !r.Lesson.Passed {
			p.Boundary, p.Refused = proto.Boundary{}, "record the cell"
		}
	}
	return p
}

// run goes on until every cell has settled.
func (w *town) run() {
	for range 200 * len(w.real) {
		settled := 0
		for _, rec := range w.machine.View().Records {
			if rec.Settled != nil {
				settled++
			}
		}
		if settled == len(w.real) {
			return
		}
		if !w.step() {
			for _, rec := range w.machine.View().Records {
				if rec.Settled == nil {
					w.t.Fatalf("stuck: %s has %d runs, prediction %+v", nameOf(rec.Cell), len(rec.Runs), rec.Prediction)
				}
			}
		}
	}
	w.t.Fatal("not settled")
}

// rest builds what programs a settled town still wants, one for each family at
// most, and then it wants nothing.
func (w *town) rest() {
	a, err := w.next()
	for _, b := range a.Build {
		w.build(b)
	}
	if len(a.Build) > 0 && err == nil {
		a, err = w.next()
	}
	if err != nil || len(a.Issue)+len(a.Predict)+len(a.Settle)+len(a.Build) != 0 {
		w.t.Fatalf("a settled town still wants %+v, %v", a, err)
	}
}

// recordings counts accepted uncapped runs.
func (w *town) recordings() (n int) {
	for _, rec := range w.machine.View().Records {
		for _, r := range rec.Runs {
			if r.Kind == proto.TaskRecord {
				n++
			}
		}
	}
	return n
}

// check holds every settlement against the truth.
func (w *town) check() {
	for key, rec := range w.machine.View().Records {
		name, got, tr := nameOf(rec.Cell), rec.Settled, w.real[key]
		b := got.Boundary.Boundary
		switch got.State {
		case proto.CellCertified, proto.CellBisected, proto.CellAdaptive:
			if err := edgesSeen(rec, tr); err != nil {
				w.t.Fatalf("%s settled %s: %v", name, got.State, err)
			}
		case proto.CellPredicted:
			if rec.Search.Certify != proto.CertifyNone && rec.Search.Certify != proto.CertifySample {
				w.t.Fatalf("%s settled without a probe", name)
			}
			if b <= 0 {
				w.t.Fatalf("%s settled %+v", name, got)
			}
		case proto.CellFailed:
			if !w.noise || got.Reason == "" {
				w.t.Fatalf("%s failed: %s", name, got.Reason)
			}
		}
		// A borrowed word that did not hold never settles a cell, unless its own
		// probe's trace said how.
		if p := rec.Prediction; got.State == proto.CellBisected && p != nil && p.Lesson == nil && rec.Recording() == nil {
			w.t.Fatalf("%s was bisected without a recording of its own", name)
		}
	}
}

// edgesSeen is edgeHolds for any record.
func edgesSeen(rec *registry.Record, tr truth) error {
	b := rec.Settled.Boundary.Boundary
	if rec.Prediction != nil && rec.Prediction.Varies {
		return rangeSeen(rec)
	}
	if !tr.passes(b) || tr.passes(b-s2) {
		return fmt.Errorf("at %s, truth %+v", b, tr)
	}
	saw := map[bool]bool{}
	for _, r := range rec.Runs {
		if r.Kind == proto.TaskProbe {
			saw[r.Outcome.Verdict() == proto.VerdictPass && r.Quota == b] = true
			saw[false] = saw[false] || r.Outcome.Verdict() == proto.VerdictFail && r.Quota == b-s2
		}
	}
	if !saw[true] || !saw[false] {
		return fmt.Errorf("at %s without both edges among the runs", b)
	}
	return nil
}

// rangeSeen is edgesSeen where runs were said to differ: two passes at the
// boundary, a fail below, and no word on bands.
func rangeSeen(rec *registry.Record) error {
	b, passed, below := rec.Settled.Boundary, 0, false
	for _, r := range rec.Runs {
		if r.Kind == proto.TaskProbe && r.Outcome.Verdict() == proto.VerdictPass && r.Quota == b.Boundary {
			passed++
		}
		below = below || r.Kind == proto.TaskProbe && r.Outcome.Verdict() == proto.VerdictFail && r.Quota < b.Boundary
	}
	if passed < 2 || !below || b.BandsKnown {
		return fmt.Errorf("at %s after %d passes, a fail below: %v, bands known: %v", b.Boundary, passed, below, b.BandsKnown)
	}
	return nil
}

func cellsOf(lengths, batches, chunks []int, envs []string, kinds ...proto.QuotaKind) []proto.Cell {
	var cells []proto.Cell
	for _, kind := range kinds {
		for _, l := range lengths {
			for _, b := range batches {
				for _, chunk := range chunks {
					for _, e := range envs {
						c := testCell(kind)
						c.SeqLen, c.Batch, c.ChunkSize = l, b, chunk
						if e != "" {
							c.Env = map[string]string{"PYTORCH_CUDA_ALLOC_CONF": settings[e]}
						}
						cells = append(cells, c)
					}
				}
			}
		}
	}
	return cells
}

// TestSixtyCells: two chunk sizes, ten lengths and three settings cost four
// recordings for each chunk size and two probes a cell, when nothing deviates.
func TestSixtyCells(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newTown(t)
		w.burst = 30
		cells := cellsOf([]int{128, 192, 256, 320, 384, 448, 512, 640, 768, 896}, []int{1}, []int{0, 64}, []string{"", "exp", "gc"}, proto.QuotaAllocator)
		for _, c := range cells {
			w.plant(c)
		}
		w.submit("sixty", proto.Search{Strategy: proto.StrategyPredict, Certify: proto.CertifyEdges}, cells...)
		w.run()
		w.check()
		probes := 0
		for _, rec := range w.machine.View().Records {
			if rec.Settled.State != proto.CellCertified {
				t.Fatalf("%s settled %+v", nameOf(rec.Cell), rec.Settled)
			}
			for _, r := range rec.Runs {
				if r.Kind == proto.TaskProbe {
					probes++
				}
				if r.Kind == proto.TaskRecord && len(rec.Cell.Env) > 0 {
					t.Errorf("%s was recorded in place of default settings", nameOf(rec.Cell))
				}
			}
		}
		if n := w.recordings(); n != 8 || probes != 120 || w.builds != 2 {
			t.Fatalf("%d recordings, %d probes, %d builds; want 8, 120 and 2", n, probes, w.builds)
		}
	})
}

// TestProgramsForQuestions: four recorded lengths make a program though no cell
// waits for one, three do not, and recordings that were not enough are read
// again with the next one only.
func TestProgramsForQuestions(t *testing.T) {
	tooFew := func(b Build) registry.SetProgram {
		return registry.SetProgram{Family: b.Family, Inputs: digestsOf(b.Inputs), Refused: "too few", NeedMore: true}
	}
	lengths := []int{128, 192, 256, 320, 384}
	for _, tt := range []struct {
		name    string
		program func(Build) registry.SetProgram
		// builds and recordings are counted when three, four and five lengths have settled.
		builds, recordings [3]int
	}{
		{"enough", reaching, [3]int{0, 1, 1}, [3]int{3, 4, 4}},
		{"more needed", tooFew, [3]int{0, 1, 2}, [3]int{3, 4, 5}},
	} {
		t.Run(tt.name, rapid.MakeCheck(func(t *rapid.T) {
			w := newTown(t)
			w.program = tt.program
			for i, n := range []int{3, 4, 5} {
				cells := cellsOf(lengths[:n], []int{1}, []int{0}, []string{""}, proto.QuotaAllocator)
				for _, c := range cells {
					w.plant(c)
				}
				w.submit(proto.MatrixID(fmt.Sprint("s", n)), proto.Search{Strategy: proto.StrategyPredict, Certify: proto.CertifyEdges}, cells...)
				w.run()
				w.rest()
				if w.builds != tt.builds[i] || w.recordings() != tt.recordings[i] {
					t.Fatalf("%d lengths: %d builds, %d recordings; want %d, %d", n, w.builds, w.recordings(), tt.builds[i], tt.recordings[i])
				}
			}
		}))
	}
}

// TestAnyTown: whatever programs say and runs do, every cell settles, on edges
// that were seen, and nobody records twice for nothing.
func TestAnyTown(t *testing.T) {
	lessons := 0
	rapid.Check(t, func(t *rapid.T) {
		w := newTown(t)
		w.burst = 5
		pick := func(name string, of []int) []int {
			return rapid.SliceOfNDistinct(rapid.SampledFrom(of), 1, len(of), rapid.ID[int]).Draw(t, name)
		}
		sweeps := rapid.IntRange(1, 2).Draw(t, "sweeps")
		planted := make(map[registry.Key]bool)
		for i := range sweeps {
			lengths := pick("lengths", []int{64, 96, 128, 192, 256, 320, 512, 2048})
			batches := pick("batches", []int{1, 2, 3})
			envs := rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"", "exp", "gc", "async"}), 1, 3, rapid.ID[string]).Draw(t, "envs")
			kinds := rapid.SampledFrom([][]proto.QuotaKind{{proto.QuotaAllocator}, {proto.QuotaDevice}, {proto.QuotaAllocator, proto.QuotaDevice}}).Draw(t, "kinds")
			cells := cellsOf(lengths, batches, []int{64}, envs, kinds...)
			for _, c := range cells {
				key := registry.Key{Origin: w.key.Origin, Cell: c.ID()}
				if !planted[key] {
					planted[key] = true
					w.plant(c)
					w.deviate(key)
				}
			}
			search := proto.Search{
				Strategy: rapid.SampledFrom([]proto.Strategy{proto.StrategyPredict, proto.StrategyPredict, proto.StrategyBisect}).Draw(t, "strategy"),
				Certify:  rapid.SampledFrom([]proto.Certify{proto.CertifyEdges, proto.CertifyAll, proto.CertifySample, proto.CertifyNone}).Draw(t, "certify"),
			}
			if search.Certify == proto.CertifySample {
				search.SamplePercent = 50
			}
			w.program = w.drawProgram()
			w.traces = rapid.Bool().Draw(t, "traces")
			w.noise = w.noise || rapid.IntRange(0, 3).Draw(t, "noise") == 0
			w.submit(proto.MatrixID(fmt.Sprint("s", i)), search, cells...)
			for range rapid.IntRange(0, 30).Draw(t, "steps before the next") {
				w.step()
			}
		}
		w.run()
		w.check()
		if n := w.recordings(); !w.noise && n > len(w.real) {
			t.Fatalf("%d recordings of %d cells", n, len(w.real))
		}
		w.rest()
		lessons += w.lessons
	})
	if lessons == 0 {
		t.Error("no town had a lesson")
	}
}

// deviate plants what the predictor cannot know, in one cell of three.
func (w *town) deviate(key registry.Key) {
	shown := w.shown[key]
	switch rapid.IntRange(0, 14).Draw(w.t, "deviation") {
	case 0: // adapts: passes far below what any recording shows
		at := shown.Boundary - 40*s2
		w.real[key] = truth{boundary: at, lowest: at}
	case 1: // needs more than its recording shows
		at := shown.Boundary + 7*s2
		w.real[key] = truth{boundary: at, lowest: at}
	case 2: // what is borrowed is wrong, its own recording right
		w.off[key] = proto.Bytes(rapid.SampledFrom([]int{-3, -1, 1, 2, 90_000}).Draw(w.t, "off")) * s2
	case 3: // as before, and its recording tells why
		w.off[key], w.changed[key] = 5*s2, true
	case 4:
		w.refuses[key] = true
	}
}

// drawProgram is what building gives: a program, one that needs more
// recordings first, or none.
func (w *town) drawProgram() func(Build) registry.SetProgram {
	need := rapid.SampledFrom([]int{0, 0, 0, 5, 7, 99}).Draw(w.t, "recordings needed")
	refuse := rapid.IntRange(0, 4).Draw(w.t, "refuse") == 0
	return func(b Build) registry.SetProgram {
		set := reaching(b)
		if refuse || len(b.Inputs) < need {
			set.Program, set.Domains, set.Refused, set.NeedMore = "", nil, "they differ", !refuse
		}
		return set
	}
}

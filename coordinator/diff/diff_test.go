package diff

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/oomfleet/oomfleet/fit"
	"github.com/oomfleet/oomfleet/proto"
)

const mib = proto.MiB

// sweep is a settled report of cells that take weights and a little for each
// residue, under a driver whose context is given.
func sweep(id, driver string, context proto.Bytes, lengths ...int) proto.Report {
	r := proto.Report{Matrix: proto.MatrixRef{Name: "m", ID: proto.MatrixID(id)}, State: "settled", Origin: proto.OriginMeasured}
	for _, l := range lengths {
		allocated := 8*proto.GiB + proto.Bytes(l*l)*4096
		reserved := (allocated + 100*mib).RoundUp(2 * mib)
		rec := proto.Recording{PeakAllocated: allocated, PeakReserved: reserved, ProcessPeak: reserved + context + 70*mib, Context: context,
			Weights: 8 * proto.GiB, LoadedReserved: 8*proto.GiB + 20*mib, CUDA: "13.0", Torch: "2.11.0"}
		c := proto.CellReport{ID: proto.CellID(fmt.Sprintf("%s-%s-%d", id, driver, l)), GPU: "NVIDIA H200", Driver: driver, Workload: proto.Workload{Name: "esmfold"},
			SeqLen: l, Batch: 1, Env: map[string]string{}, QuotaKind: proto.QuotaAllocator, Step: 2 * mib, Origin: proto.OriginMeasured, State: proto.CellCertified,
			PeakAllocated: allocated, PeakReserved: reserved, ProcessPeak: rec.ProcessPeak, Recordings: []proto.Recording{rec}}
		c.Boundary = proto.Boundary{Boundary: reserved - 50*mib, LowestPass: reserved - 50*mib, BandsKnown: true}
		r.Cells = append(r.Cells, c)
	}
	r.Counts.Total, r.Counts.Certified = len(r.Cells), len(r.Cells)
	return r
}

func lengths() []int { return []int{128, 192, 256, 320} }

func sideOf(r proto.Report) Side { return Side{Name: string(r.Matrix.ID), Report: r} }

func compared(t *testing.T, before, after proto.Report, o Options) Document {
	t.Helper()
	d, err := Sweeps(sideOf(before), sideOf(after), o)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestContextThatGrew(t *testing.T) {
	d := compared(t, sweep("a", "580", 600*mib, lengths()...), sweep("b", "590", 640*mib, lengths()...), Options{})
	if d.Verdict != proto.VerdictChanged || d.Summary != "changed: context +40 MiB" || d.Counts != (Counts{Changed: 4}) {
		t.Errorf("%s, %+v", d.Summary, d.Counts)
	}
	if len(d.Jobs.QuotaTooSmall) != 0 || !strings.Contains(strings.Join(d.Jobs.Sentences, " "), "+40 MiB more") {
		t.Errorf("%q", d.Jobs.Sentences)
	}
	short := d.Short()
	if short.Base != "a" || short.From.Driver != "580" || short.To.Driver != "590" || short.Changed != 4 || short.Margin != 16*mib || short.Confidence != 0.95 {
		t.Errorf("%+v", short)
	}
}

// TestOrderOfCells: neither side's order matters.
func TestOrderOfCells(t *testing.T) {
	a, b := sweep("a", "580", 600*mib, lengths()...), sweep("b", "590", 640*mib, lengths()...)
	text := func() string {
		text, err := json.Marshal(compared(t, a, b, Options{}))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	want := text()
	slices.Reverse(b.Cells)
	a.Cells[0], a.Cells[2] = a.Cells[2], a.Cells[0]
	if got := text(); got != want {
		t.Errorf("another order gives\n%s\nand not\n%s", got, want)
	}
}

// TestGroupsShareTheError: with two groups each is judged more strictly.
func TestGroupsShareTheError(t *testing.T) {
	both := func(id, driver string, context proto.Bytes) proto.Report {
		r, chunked := sweep(id, driver, context, lengths()...), sweep(id+"c", driver, context, lengths()...)
		for _, c := range chunked.Cells {
			c.ChunkSize = 64
			r.Cells = append(r.Cells, c)
		}
		return r
	}
	d := compared(t, both("a", "580", 600*mib), both("b", "590", 640*mib), Options{})
	if len(d.Groups) != 2 || d.Summary != "changed: context +40 MiB" || !strings.Contains(d.Basis.Correction, "Bonferroni, over 2 groups") {
		t.Errorf("%d groups, %s, %s", len(d.Groups), d.Summary, d.Basis.Correction)
	}
	one := compared(t, sweep("a", "580", 600*mib, lengths()...), sweep("b", "590", 640*mib, lengths()...), Options{})
	if width := func(d Document) int64 {
		i := slices.IndexFunc(d.Groups[0].Terms, isContext)
		return d.Groups[0].Terms[i].Hi - d.Groups[0].Terms[i].Lo
	}; width(d) <= width(one) {
		t.Errorf("intervals of %d and %d bytes", width(d), width(one))
	}
}

func isContext(t fit.TermChange) bool { return t.Term == "context" }

// TestUnrecordedCells are judged by their boundary alone.
func TestUnrecordedCells(t *testing.T) {
	for name, c := range map[string]struct {
		kind   proto.QuotaKind
		moved  proto.Bytes
		margin proto.Bytes
		change func(c *proto.CellReport)
		want   proto.VerdictWord
		says   string
	}{
		"the same":               {kind: proto.QuotaAllocator, want: proto.VerdictSame},
		"within the margin":      {kind: proto.QuotaAllocator, moved: 16 * mib, want: proto.VerdictSame},
		"beyond it":              {kind: proto.QuotaAllocator, moved: 18 * mib, want: proto.VerdictChanged},
		"below it":               {kind: proto.QuotaAllocator, moved: -18 * mib, want: proto.VerdictChanged},
		"not determined":         {kind: proto.QuotaDevice, moved: 18 * mib, want: proto.VerdictNeedMore, says: "not determined"},
		"same, and how closely":  {kind: proto.QuotaProcess, moved: 2 * mib, want: proto.VerdictSame, says: "same to within 34 MiB"},
		"too narrow a margin":    {kind: proto.QuotaDevice, margin: 8 * mib, want: proto.VerdictNeedMore, says: "the margin is 8 MiB"},
		"narrow, and exact":      {kind: proto.QuotaAllocator, margin: 8 * mib, moved: 8 * mib, want: proto.VerdictSame},
		"beyond doubt":           {kind: proto.QuotaDevice, moved: 34 * mib, want: proto.VerdictChanged},
		"one edge of several":    {kind: proto.QuotaAllocator, moved: 40 * mib, change: func(c *proto.CellReport) { c.BandsKnown = false }, want: proto.VerdictNeedMore, says: "by bisection"},
		"one edge, and the same": {kind: proto.QuotaAllocator, change: func(c *proto.CellReport) { c.BandsKnown = false }, want: proto.VerdictSame},
		"failed on one side": {kind: proto.QuotaAllocator, change: func(c *proto.CellReport) {
			c.Boundary, c.State, c.Reason = proto.Boundary{}, proto.CellFailed, "it crashed"
		}, want: proto.VerdictNeedMore, says: "is failed (it crashed)"},
	} {
		t.Run(name, func(t *testing.T) {
			a, b := sweep("a", "580", 600*mib, 128), sweep("b", "590", 600*mib, 128)
			for _, r := range []*proto.Report{&a, &b} {
				cell := &r.Cells[0]
				cell.QuotaKind, cell.Recordings, cell.PeakAllocated, cell.PeakReserved, cell.ProcessPeak = c.kind, nil, 0, 0, 0
			}
			b.Cells[0].Boundary.Boundary += c.moved
			if c.change != nil {
				c.change(&b.Cells[0])
			}
			d := compared(t, a, b, Options{Margin: c.margin})
			if d.Verdict != c.want || d.Cells[0].Verdict != c.want || !strings.Contains(d.Cells[0].Reason, c.says) || len(d.Repeat) != 0 {
				t.Errorf("%s: %+v", d.Summary, d.Cells[0])
			}
		})
	}
}

// TestJobs: what a boundary that grew means for those who had the old quota.
func TestJobs(t *testing.T) {
	a, b := sweep("a", "580", 600*mib, lengths()...), sweep("b", "590", 600*mib, lengths()...)
	for i := range b.Cells[:2] {
		grown := &b.Cells[i].Boundary
		grown.Boundary += 40 * mib
		if i == 1 { // the old boundary lies between the lowest pass and a band
			grown.FailBands = []proto.Band{{From: grown.Boundary - 10*mib, To: grown.Boundary - 2*mib}}
		} else {
			grown.LowestPass = grown.Boundary
		}
	}
	d := compared(t, a, b, Options{Card: a.Cells[0].Boundary.Boundary + 670*mib})
	if !slices.Equal(d.Jobs.QuotaTooSmall, []string{"L128 B1"}) || !slices.Equal(d.Jobs.CardTooSmall, []string{"L128 B1"}) || d.Counts.Changed+d.Counts.NeedMore != 2 {
		t.Errorf("%+v, %+v", d.Jobs, d.Counts)
	}
	for card, says := range map[proto.Bytes]string{mib: "A card of 1 MiB held none of 4 cells before.", 1 << 50: "still holds every cell that it held before (4 of 4)."} {
		if said := compared(t, a, b, Options{Card: card}).Jobs.Sentences; !strings.Contains(said[len(said)-1], says) {
			t.Errorf("%v: %q", card, said)
		}
	}
	for i, want := range []bool{false, true, true, true} {
		if job := d.Cells[i].Job; job == nil || job.FitsOldQuota != want || job.NeedBefore != a.Cells[i].Boundary.Boundary+670*mib {
			t.Errorf("%s: %+v", d.Cells[i].Name(), job)
		}
	}
}

// TestRepeat: one cell recorded once on each side needs more, and says how much.
func TestRepeat(t *testing.T) {
	a, b := sweep("a", "580", 600*mib, 128), sweep("b", "590", 600*mib, 128)
	d := compared(t, a, b, Options{})
	cells, most := d.RepeatCells()
	if d.Verdict != proto.VerdictNeedMore || d.Summary != "need more: 1 cell to repeat" || len(cells) != 2 || most < 1 || d.Repeat[0].HalfNow != 0 {
		t.Errorf("%s, %v, %+v", d.Summary, cells, d.Repeat)
	}
	r := Repeat{Runs: 1, HalfNow: 24 * mib}
	if got := r.Half(3); got != 12*mib {
		t.Errorf("four runs for one give %v", got)
	}
}

// TestRepeatOfAFailedCell: a cell that was given up has recordings and no result, so
// it is not asked for again; the others are.
func TestRepeatOfAFailedCell(t *testing.T) {
	before, after := sweep("a", "580", 600*mib, 128, 192), sweep("b", "590", 612*mib, 128, 192)
	noisy := &after.Cells[0]
	for i := range 2 {
		r := noisy.Recordings[0]
		r.ProcessPeak += proto.Bytes(i) * 40 * mib
		noisy.Recordings = append(noisy.Recordings, r)
	}
	if d := compared(t, before, after, Options{}); len(d.Repeat) != 2 {
		t.Fatalf("%s: %+v", d.Summary, d.Repeat)
	}
	after.Cells[0].State, after.Cells[0].Boundary = proto.CellFailed, proto.Boundary{}
	after.Counts = proto.Counts{Total: 2, Certified: 1, Failed: 1}
	d := compared(t, before, after, Options{})
	if cells, _ := d.RepeatCells(); d.Verdict != proto.VerdictNeedMore || !slices.Equal(cells, []proto.CellID{"a-580-192", "b-590-192"}) {
		t.Errorf("%s: %v", d.Summary, cells)
	}
}

// TestTorch: the recordings of one set of cells under two versions of torch.
func TestTorch(t *testing.T) {
	r := sweep("a", "580", 600*mib, lengths()...)
	for i := range r.Cells {
		next := r.Cells[i].Recordings[0]
		next.Torch, next.Context, next.ProcessPeak = "2.12.0", next.Context+40*mib, next.ProcessPeak+40*mib
		r.Cells[i].Recordings = append(r.Cells[i].Recordings, next)
	}
	old, now := sideOf(r), sideOf(r)
	old.Torch, now.Torch = "2.11.0", "2.12.0"
	d, err := Sweeps(old, now, Options{})
	if err != nil || d.Summary != "changed: context +40 MiB" || !d.Basis.RecordingsOnly || d.Before.Torch != "2.11.0" || d.After.Torch != "2.12.0" {
		t.Fatalf("%v, %s", err, d.Summary)
	}
	for _, c := range d.Cells {
		if slices.ContainsFunc(c.Measures, func(m Measure) bool { return m.Name == boundary }) {
			t.Errorf("%s has a boundary", c.Name())
		}
	}
	now.Torch = "3.0"
	if _, err := Sweeps(old, now, Options{}); !errors.Is(err, ErrInput) {
		t.Errorf("a torch that recorded nothing: %v", err)
	}
	now.Torch = ""
	if _, err := Sweeps(old, now, Options{}); !errors.Is(err, ErrInput) {
		t.Errorf("torch of one side alone: %v", err)
	}
}

func TestRefusals(t *testing.T) {
	for name, c := range map[string]struct {
		change func(a, b *Side, o *Options)
		says   string
	}{
		"two origins":     {func(_, b *Side, _ *Options) { each(b, func(c *proto.CellReport) { c.Origin = proto.OriginSimulated }) }, "two origins are never compared"},
		"origins mixed":   {func(_, b *Side, _ *Options) { b.Report.Cells[1].Origin = proto.OriginSimulated }, "which never mix"},
		"two kinds":       {func(_, b *Side, _ *Options) { each(b, func(c *proto.CellReport) { c.QuotaKind = proto.QuotaDevice }) }, "they limit different things"},
		"kinds mixed":     {func(_, b *Side, _ *Options) { b.Report.Cells[1].QuotaKind = proto.QuotaDevice }, "the kinds never mix"},
		"two steps":       {func(_, b *Side, _ *Options) { each(b, func(c *proto.CellReport) { c.Step = 4 * mib }) }, "in steps of"},
		"steps mixed":     {func(_, b *Side, _ *Options) { b.Report.Cells[1].Step = 4 * mib }, "on steps of"},
		"running":         {func(_, b *Side, _ *Options) { b.Report.State = "running" }, "not settled yet"},
		"a cell in work":  {func(_, b *Side, _ *Options) { b.Report.State, b.Report.Cells[1].State = "", proto.CellRecorded }, "L192 B1 is recorded"},
		"no cells":        {func(_, b *Side, _ *Options) { b.Report.Cells = nil }, "has no cells"},
		"none in common":  {func(_, b *Side, _ *Options) { each(b, func(c *proto.CellReport) { c.Batch = 2 }) }, "no cell in common"},
		"twice":           {func(_, b *Side, _ *Options) { b.Report.Cells = append(b.Report.Cells, b.Report.Cells[0]) }, "holds L128 B1 twice"},
		"several drivers": {func(_, b *Side, _ *Options) { b.Report.Cells[1].Driver = "591" }, "name the ones to compare"},
		"several GPUs":    {func(_, b *Side, _ *Options) { b.Report.Cells[1].GPU = "NVIDIA L4" }, "several GPU models"},
		"unknown driver":  {func(_, b *Side, _ *Options) { b.Driver = "1.2" }, "has no driver 1.2; it has 590"},
		"itself":          {func(a, b *Side, _ *Options) { *b = *a }, "both sides are the same"},
		"margin":          {func(_, _ *Side, o *Options) { o.Margin = -1 }, "cannot be negative"},
		"confidence":      {func(_, _ *Side, o *Options) { o.Confidence = 1 }, "not between"},
		"contradiction":   {func(_, b *Side, _ *Options) { b.Report.Cells[0].Recordings[0].PeakAllocated = 90 * proto.GiB }, "bytes allocated and only"},
	} {
		t.Run(name, func(t *testing.T) {
			a, b := sideOf(sweep("a", "580", 600*mib, lengths()...)), sideOf(sweep("b", "590", 600*mib, lengths()...))
			var o Options
			c.change(&a, &b, &o)
			if _, err := Sweeps(a, b, o); !errors.Is(err, ErrInput) || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%v, want %q", err, c.says)
			}
		})
	}
}

func each(s *Side, change func(*proto.CellReport)) {
	for i := range s.Report.Cells {
		change(&s.Report.Cells[i])
	}
}

// TestMovedNamesEachTermOnce, with its range where groups differ.
func TestMovedNamesEachTermOnce(t *testing.T) {
	d := Document{}
	for _, diff := range []proto.Bytes{40 * mib, 44 * mib} {
		d.Groups = append(d.Groups, Group{Terms: []fit.TermChange{
			{Term: "context", Change: fit.Change{Verdict: fit.Changed, Diff: int64(diff)}},
			{Term: "slack", Change: fit.Change{Verdict: fit.Same, Diff: 1}},
			{Term: "BL2", SeqLen: 512, Batch: 1, Change: fit.Change{Verdict: fit.Changed, Diff: int64(-50 * mib)}}}})
	}
	if got := d.moved(); got != "context +40 MiB to +44 MiB, BL2 at L512 B1 -50 MiB" {
		t.Error(got)
	}
	many := Document{Groups: []Group{{}}}
	for name := range maps.Keys(map[string]bool{"a": true, "b": true, "c": true, "d": true, "e": true, "f": true}) {
		many.Groups[0].Terms = append(many.Groups[0].Terms, fit.TermChange{Term: name, Change: fit.Change{Verdict: fit.Changed, Diff: int64(mib)}})
	}
	if got := many.moved(); !strings.HasSuffix(got, "and 2 more") {
		t.Error(got)
	}
}

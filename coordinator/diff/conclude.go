package diff

import (
	"fmt"
	"slices"
	"strings"

	"github.com/oomfleet/oomfleet/fit"
	"github.com/oomfleet/oomfleet/proto"
)

// conclude counts the cells and says the verdict on the whole.
func (d *Document) conclude() {
	for _, c := range d.Cells {
		switch c.Verdict {
		case proto.VerdictSame:
			d.Counts.Same++
		case proto.VerdictChanged:
			d.Counts.Changed++
		default:
			d.Counts.NeedMore++
		}
	}
	var verdicts []proto.VerdictWord
	for _, g := range d.Groups {
		verdicts = append(verdicts, g.Verdict)
	}
	d.Verdict = all(verdicts)
	d.Summary = string(d.Verdict)
	switch moved := d.moved(); {
	case d.Verdict == proto.VerdictChanged && moved != "":
		d.Summary += ": " + moved
	case d.Verdict == proto.VerdictNeedMore && len(d.Repeat) > 0:
		d.Summary += fmt.Sprintf(": %s to repeat", plural(len(d.Repeat), "cell"))
	case d.Verdict == proto.VerdictNeedMore:
		d.Summary += ": " + plural(d.Counts.NeedMore, "cell") + " without a verdict"
	}
}

// shownTerms bounds the terms that a summary names.
const shownTerms = 4

// moved names the terms that changed in any group, each once; where no term
// did, the cells' own measures.
func (d *Document) moved() string {
	spans := map[string]*span{}
	var names []string
	note := func(name string, diff int64) {
		if spans[name] == nil {
			spans[name] = &span{diff, diff, 0}
			names = append(names, name)
		}
		spans[name].add(diff)
	}
	for _, g := range d.Groups {
		for _, t := range g.Terms {
			if t.Verdict == fit.Changed {
				note(termName(t), t.Diff)
			}
		}
	}
	if len(names) == 0 {
		for _, c := range d.Cells {
			for _, m := range c.Measures {
				if m.Verdict == fit.Changed {
					note(m.Name, m.Diff)
				}
			}
		}
	}
	var parts []string
	for _, name := range names[:min(shownTerms, len(names))] {
		parts = append(parts, name+" "+spans[name].String())
	}
	if more := len(names) - shownTerms; more > 0 {
		parts = append(parts, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(parts, ", ")
}

// termName is a term; one that grows is named with the cell that it was read at.
func termName(t fit.TermChange) string {
	if t.SeqLen == 0 {
		return t.Term
	}
	return fmt.Sprintf("%s at L%d B%d", t.Term, t.SeqLen, t.Batch)
}

// span is what the groups say of one term.
type span struct {
	lo, hi int64
	n      int
}

func (s *span) add(v int64) {
	s.lo, s.hi, s.n = min(s.lo, v), max(s.hi, v), s.n+1
}

// String is one amount where the groups agree to the MiB, else the range.
func (s *span) String() string {
	lo, hi := Signed(proto.Bytes(s.lo)), Signed(proto.Bytes(s.hi))
	if lo == hi {
		return lo
	}
	return lo + " to " + hi
}

// Signed is a difference for people, to the MiB: "+40 MiB". One of less than
// half a MiB is shown in bytes.
func Signed(b proto.Bytes) string {
	size := max(b, -b)
	sign := "+"
	if b < 0 {
		sign = "-"
	}
	if size == 0 {
		return "0"
	}
	if size < proto.MiB/2 {
		return fmt.Sprintf("%s%d B", sign, int64(size))
	}
	return fmt.Sprintf("%s%d MiB", sign, int64((size+proto.MiB/2)/proto.MiB))
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// Short is the document as a sweep keeps it.
func (d Document) Short() proto.SweepVerdict {
	stack := func(s Stack) proto.Stack {
		return proto.Stack{GPU: s.GPU, Driver: s.Driver, CUDA: s.CUDA, Torch: s.Torch}
	}
	return proto.SweepVerdict{Base: d.Before.Sweep.ID, From: stack(d.Before), To: stack(d.After), Verdict: d.Verdict, Summary: d.Summary,
		Same: d.Counts.Same, Changed: d.Counts.Changed, NeedMore: d.Counts.NeedMore, Margin: d.Basis.Margin, Confidence: d.Basis.Confidence}
}

// RepeatCells are the cells of both sides that need more recordings, sorted,
// and how many the neediest wants.
func (d Document) RepeatCells() (cells []proto.CellID, most int) {
	for _, r := range d.Repeat {
		cells, most = append(cells, r.Before, r.After), max(most, r.More)
	}
	slices.Sort(cells)
	return slices.Compact(cells), most
}

package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/oomfleet/oomfleet/fit"
	"github.com/oomfleet/oomfleet/proto"
)

// billRow is where the memory of one run's process went. The four parts are
// differences of what was measured, and add up to the process peak.
type billRow struct {
	run                                 fit.Point
	weights, activations, cache, beside int64
}

// billOf takes apart the runs of a group of which all three peaks were measured.
// Weights are the fitted term, which is the claimed amount where that fits.
func billOf(group []proto.Coefficients, table runTable) (rows []billRow) {
	weights := int64(0)
	for _, c := range group {
		for _, t := range c.Terms {
			if c.Target == string(fit.Allocated) && t.Name == "weights" {
				weights = int64(t.Value + 0.5)
			}
		}
	}
	for _, r := range table.rows {
		p := r.point
		if r.leftOut != "" || weights == 0 || groupKey(r.group) != groupKey(group[0].Group) || p.Allocated == 0 || p.Reserved == 0 || p.Process == 0 {
			continue
		}
		row := billRow{p, weights, p.Allocated - weights, p.Reserved - p.Allocated, p.Process - p.Reserved}
		if !slices.ContainsFunc(rows, row.looksLike) { // repeats come out the same
			rows = append(rows, row)
		}
	}
	slices.SortStableFunc(rows, func(a, b billRow) int {
		return cmp.Or(cmp.Compare(a.run.Batch, b.run.Batch), cmp.Compare(a.run.SeqLen, b.run.SeqLen))
	})
	return rows
}

// looksLike is whether two rows show the same to the last digit.
func (r billRow) looksLike(o billRow) bool {
	show := func(b billRow) string {
		return fmt.Sprint(b.run.SeqLen, b.run.Batch, twoDigits(b.activations), twoDigits(b.cache), twoDigits(b.beside), twoDigits(b.run.Process))
	}
	return show(r) == show(o)
}

// mostBilled is how many runs of a group are shown; a file may hold thousands.
const mostBilled = 16

// writeBill answers in GiB where a process's memory goes, and how much of it is
// missing from a quota that counts the weights alone.
func writeBill(w io.Writer, group []proto.Coefficients, table runTable) error {
	rows := billOf(group, table)
	if len(rows) == 0 {
		return nil
	}
	shown := rows[:min(len(rows), mostBilled)]
	fmt.Fprintln(w, "  where the memory of a process goes, in GiB:")
	t := newTable(w, "  LENGTH", "BATCH", "WEIGHTS", "+ ACTIVATIONS", "+ CACHE", "+ OUTSIDE PYTORCH", "= PROCESS", "MORE THAN CLAIMED WEIGHTS")
	for _, r := range shown {
		more := ""
		if claim := r.run.Weights; claim > 0 {
			more = fmt.Sprintf("%.2f over %.2f", inGiB(r.run.Process-claim), inGiB(claim))
		}
		t.row(fmt.Sprintf("  %d", r.run.SeqLen), fmt.Sprint(r.run.Batch), twoDigits(r.weights), twoDigits(r.activations), twoDigits(r.cache),
			twoDigits(r.beside), twoDigits(r.run.Process), more)
	}
	if err := t.flush(); err != nil {
		return err
	}
	if n := len(rows) - len(shown); n > 0 {
		fmt.Fprintf(w, "  and %s more; --explain has all\n", counted(n, "run"))
	}
	return writeNote(w, "  ", billText(shown))
}

// billText says the account of the run that misses most in words.
func billText(rows []billRow) string {
	worst := rows[0]
	for _, r := range rows {
		if r.run.Process-r.run.Weights > worst.run.Process-worst.run.Weights {
			worst = r
		}
	}
	p := worst.run
	parts := []string{
		fmt.Sprintf("%.2f GiB of activations and whatever else tensors hold", inGiB(worst.activations)),
		fmt.Sprintf("%.2f GiB that PyTorch's allocator keeps cached", inGiB(worst.cache)),
		fmt.Sprintf("%.2f GiB outside PyTorch (context, modules, libraries)", inGiB(worst.beside)),
	}
	text := fmt.Sprintf("at L%d B%d a process takes %.2f GiB: %.2f GiB of weights, %s", p.SeqLen, p.Batch, inGiB(p.Process), inGiB(worst.weights), strings.Join(parts, ", "))
	if p.Weights > 0 && p.Weights-worst.weights > p.Weights/100 {
		text += fmt.Sprintf("; of the %.2f GiB that are claimed as weights, %.2f GiB are not there", inGiB(p.Weights), inGiB(p.Weights-worst.weights))
	}
	return text
}

func twoDigits(b int64) string { return fmt.Sprintf("%.2f", inGiB(b)) }

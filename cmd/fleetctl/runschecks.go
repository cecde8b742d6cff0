package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/oomfleet/oomfleet/fit"
	"github.com/oomfleet/oomfleet/proto"
)

// maxExamples is how many runs a note names.
const maxExamples = 8

// checkImport holds a group's rows against what else is claimed of such runs: a
// rule of thumb that is passed around, and each other.
func checkImport(rows []runRow) []string {
	var asks, notes []string
	for _, r := range rows {
		p := r.point
		if p.Weights == 0 || p.Reserved == 0 || p.Batch != 1 {
			continue
		}
		asked := p.Weights + int64(p.SeqLen)*int64(8*proto.GiB)/256 + int64(8*proto.GiB)
		if off := float64(asked)/float64(p.Reserved) - 1; off > 0.1 || off < -0.02 {
			asks = append(asks, fmt.Sprintf("%.1f GiB at L%d where %.1f GiB were reserved (%+.0f %%)", inGiB(asked), p.SeqLen, inGiB(p.Reserved), 100*off))
		}
	}
	if len(asks) > 0 {
		notes = append(notes, "the rule of thumb weights + seq_len/256 * 8 GiB + 8 GiB does not fit: it asks for "+strings.Join(asks[:min(len(asks), maxExamples)], ", "))
	}
	return append(append(notes, disagreeing(rows)...), belowReserved(rows)...)
}

// disagreeing finds runs of one length and batch whose process peaks lie further
// apart than rounding explains.
func disagreeing(rows []runRow) []string {
	var order [][2]int
	peaks := map[[2]int][]fit.Point{}
	for _, r := range rows {
		at := [2]int{r.point.SeqLen, r.point.Batch}
		if r.point.Process == 0 {
			continue
		}
		if peaks[at] == nil {
			order = append(order, at)
		}
		peaks[at] = append(peaks[at], r.point)
	}
	var places []string
	for _, at := range order {
		byProcess := func(a, b fit.Point) int { return cmp.Compare(a.Process, b.Process) }
		least, most := slices.MinFunc(peaks[at], byProcess), slices.MaxFunc(peaks[at], byProcess)
		if most.Process-least.Process > least.Rounding+most.Rounding+int64(proto.MiB) {
			places = append(places, fmt.Sprintf("%.1f and %.1f GiB at L%d B%d", inGiB(least.Process), inGiB(most.Process), at[0], at[1]))
		}
	}
	if len(places) == 0 {
		return nil
	}
	return []string{"runs of one length and batch disagree on the process peak: " + strings.Join(places[:min(len(places), maxExamples)], ", ") +
		": one of the meters missed a peak, or the runs were not alike; size by the larger"}
}

// lessThanWeights finds weights that are claimed and do not fit into what a run
// of length zero would take.
func lessThanWeights(points []fit.Point, models []fit.Model) []string {
	var claimed int64
	for _, p := range points {
		claimed = max(claimed, p.Weights)
	}
	for _, m := range models {
		if m.Target != fit.Allocated {
			continue
		}
		var fixed float64
		for _, t := range m.Terms {
			if t.Name != "BL" && t.Name != "BL2" && t.Name != "BL3" {
				fixed += t.Value
			}
		}
		if fixed < 0.99*float64(claimed) {
			return []string{fmt.Sprintf("the table does not fit its weights: at length 0 it leaves %.1f GiB, less than the %.1f GiB of weights that it claims",
				inGiB(int64(fixed)), inGiB(claimed))}
		}
	}
	return nil
}

// belowReserved finds processes that are said to hold less than their own cache.
func belowReserved(rows []runRow) []string {
	type place struct{ seqLen, batch int }
	most := map[place]runRow{} // the row with the largest reserved peak
	for _, r := range rows {
		at := place{r.point.SeqLen, r.point.Batch}
		if r.point.Reserved > most[at].point.Reserved {
			most[at] = r
		}
	}
	var notes []string
	for _, r := range rows {
		p, m := r.point, most[place{r.point.SeqLen, r.point.Batch}]
		if q := m.point; p.Process > 0 && p.Process+p.Rounding+q.Rounding+int64(proto.MiB) < q.Reserved && len(notes) < maxExamples {
			notes = append(notes, fmt.Sprintf("L%d B%d: the process (line %d, %.2f GiB) is below what it reserved (line %d, %.2f GiB): a meter that looks now and then misses peaks",
				p.SeqLen, p.Batch, r.line, inGiB(p.Process), m.line, inGiB(q.Reserved)))
		}
	}
	return notes
}

func inGiB(b int64) float64 { return float64(b) / float64(proto.GiB) }

package fit

import (
	"slices"
	"testing"
)

// Every measured peak is accounted for to the byte, term by term, and what the
// terms do not explain of it is as large as the model's residual says, not more.
func TestPeaksAreAccountedFor(t *testing.T) {
	for _, chunk := range []int{0, 64} {
		points := filter(realRuns(t, chunk), func(p Point) bool { return chunk == 0 || p.Batch == 1 })
		for _, m := range mustFit(t, points) {
			var names []string
			for _, p := range points {
				a, ok := m.Account(p)
				if !ok {
					t.Fatalf("%s at L%d B%d was not accounted for", m.Target, p.SeqLen, p.Batch)
				}
				sum := a.Remainder
				for _, part := range a.Parts {
					sum += part.Bytes
				}
				if sum != p.peak(m.Target) || a.Measured != sum {
					t.Errorf("%s at L%d B%d: the parts add up to %d, measured %d", m.Target, p.SeqLen, p.Batch, sum, p.peak(m.Target))
				}
				if rel := float64(abs(a.Remainder)) / float64(a.Measured); rel > m.ResidualMaxRel+1e-9 {
					t.Errorf("%s at L%d B%d: remainder %d, more than the residual of %g", m.Target, p.SeqLen, p.Batch, a.Remainder, m.ResidualMaxRel)
				}
				names = names[:0]
				for _, part := range a.Parts {
					names = append(names, part.Name)
				}
			}
			if m.Target == Process {
				for _, name := range []string{"weights", "workspaces", "BL", "BL2", "slack", "context", "modules"} {
					if !slices.Contains(names, name) {
						t.Errorf("chunk %d: no %s in %v", chunk, name, names)
					}
				}
			}
		}
	}
	if _, ok := mustFit(t, realRuns(t, 0))[2].Account(Point{SeqLen: 64, Batch: 1}); ok {
		t.Error("a peak that was not measured is accounted for")
	}
}

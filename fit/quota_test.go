package fit

import (
	"errors"
	"testing"
)

// Over simulated fleets with known truth, a new run needs more than the quota of
// a risk no more often than that. One new run a fleet and target: trials are
// independent.
func TestQuotaKeepsItsRisk(t *testing.T) {
	const fleets = 800
	risks := []float64{0.2, 0.05, 0.01}
	over, spare := map[Target][]int{}, map[Target][]float64{}
	for seed := range uint64(fleets) {
		f := newFleet(5000 + seed)
		for _, m := range mustFit(t, f.points)[1:] {
			if over[m.Target] == nil {
				over[m.Target], spare[m.Target] = make([]int, len(risks)), make([]float64, len(risks))
			}
			needed := f.fresh(m)
			for i, risk := range risks {
				q, err := m.QuotaFor(needed.SeqLen, needed.Batch, risk)
				if err != nil {
					t.Fatal(err)
				}
				if needed.peak(m.Target) > q.Bytes {
					over[m.Target][i]++
				}
				spare[m.Target][i] += float64(q.Bytes-needed.peak(m.Target)) / mib / fleets
			}
		}
	}
	for target, counts := range over {
		for i, n := range counts {
			most := binomialMost(fleets, risks[i])
			t.Logf("seeds 5000 to %d: %s over a quota of risk %v in %d of %d (at most %d), %.1f MiB to spare", 4999+fleets, target, risks[i], n, fleets, most, spare[target][i])
			if n > most {
				t.Errorf("%s: risk %v, but %d of %d need more", target, risks[i], n, fleets)
			}
		}
		if spare[target][1] > 64 || spare[target][0] >= spare[target][1] || spare[target][1] >= spare[target][2] {
			t.Errorf("%s: bought with %v MiB to spare", target, spare[target])
		}
	}
}

func TestQuotaQuestions(t *testing.T) {
	models := mustFit(t, realRuns(t, 0))
	m := model(t, models, Reserved)
	stripped := m
	stripped.Components = nil
	for _, c := range []struct {
		name          string
		model         Model
		seqLen, batch int
		risk          float64
		want          error
	}{
		{"inside", m, 384, 1, 0.05, nil},
		{"risk 0", m, 384, 1, 0, ErrBadRisk},
		{"risk 1", m, 384, 1, 1, ErrBadRisk},
		{"length 0", m, 0, 1, 0.05, ErrBadPoint},
		{"batch below 0", m, 384, -1, 0.05, ErrBadPoint},
		{"longer than measured", m, 1024, 1, 0.05, ErrOutside},
		{"terms alone", stripped, 384, 1, 0.05, nil},
		{"terms alone, asked for more", stripped, 384, 1, 0.01, ErrNoRisk},
	} {
		t.Run(c.name, func(t *testing.T) {
			q, err := c.model.QuotaFor(c.seqLen, c.batch, c.risk)
			if !errors.Is(err, c.want) {
				t.Fatalf("%v", err)
			}
			if err == nil && (q.Bytes < 11026*mib || q.Bytes > 11026*mib*105/100 || !q.InDomain) {
				t.Errorf("%+v, measured 11026 MiB", q)
			}
			if c.want == ErrOutside && (q.InDomain || q.Bytes <= q.Expected) {
				t.Errorf("extrapolated %+v", q)
			}
		})
	}
}

// Every real run that was left out passes under the quota of risk 0.01 that the
// others give for it.
func TestRealRunsFitTheirQuota(t *testing.T) {
	points := realRuns(t, 0)
	for _, cell := range gather(sorted(points), direct(Allocated, "").read) {
		held := func(p Point) bool { return p.SeqLen == cell.seqLen && p.Batch == cell.batch }
		out := filter(points, held)[0]
		for _, m := range mustFit(t, filter(points, func(p Point) bool { return !held(p) }))[1:] {
			q, err := m.QuotaFor(out.SeqLen, out.Batch, 0.01)
			if err != nil && !errors.Is(err, ErrOutside) {
				t.Fatal(err)
			}
			if q.Bytes < out.peak(m.Target) {
				t.Errorf("%s at L%d B%d: %d bytes needed, quota %+v", m.Target, out.SeqLen, out.Batch, out.peak(m.Target), q)
			}
		}
	}
}

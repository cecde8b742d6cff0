package allocator

import (
	"path/filepath"
	"testing"
	"time"
)

// TestSweepWithinTenReplays: under default settings the self-check, the map and
// the comparison of layouts together execute no more than ten replays of the
// whole recording do. Executed steps are counted, which nothing else on the
// machine disturbs; BenchmarkSweepOfEveryTrace takes the time.
func TestSweepWithinTenReplays(t *testing.T) {
	const promised, margin = 10, 3
	paths, _ := filepath.Glob(traceDir + "/*.parquet")
	if len(paths) < 21 {
		t.Fatalf("found %d traces", len(paths))
	}
	worst := 0.0
	for _, path := range paths {
		p := compileFile(t, path)
		r, err := p.Sweep(SweepOptions{})
		if err != nil {
			t.Fatal(err)
		}
		ratio := float64(r.Steps) / float64(len(p.ops))
		worst = max(worst, ratio)
		t.Logf("%-24s %5.2f replays, %d paths", filepath.Base(path), ratio, r.Replays)
		if ratio > promised-margin {
			t.Errorf("%s: a sweep executes as much as %.1f replays", filepath.Base(path), ratio)
		}
		if whole := mapWhole(t, p, SweepOptions{Step: roundLarge, MaxReplays: maxReplays}, LayoutDriver); r.Replays != whole.Replays {
			t.Errorf("%s: %d paths, whole states show %d: something was left out", filepath.Base(path), r.Replays, whole.Replays)
		}
	}
	t.Logf("at most %.2f replays", worst)
}

// TestStepsCount: what is counted is what is executed.
func TestStepsCount(t *testing.T) {
	p := plain(compileFile(t, traceDir+"/L384_B1.parquet"))
	r := p.start(Settings{}, ReplayOptions{})
	r.run(len(p.ops) / 3)
	r.run(len(p.ops))
	if r.steps != len(p.ops) {
		t.Errorf("%d steps of %d", r.steps, len(p.ops))
	}
	r = p.start(Settings{}, ReplayOptions{Limit: Limit{Cap: 9 << 30}})
	if r.run(len(p.ops)); r.oomAt < 0 || r.steps != r.at {
		t.Errorf("%d steps up to op %d", r.steps, r.at)
	}
}

// BenchmarkSweepOfEveryTrace takes the best of each side of the ratio that is
// promised: a sweep to one replay that executes every event.
func BenchmarkSweepOfEveryTrace(b *testing.B) {
	paths, _ := filepath.Glob(traceDir + "/*.parquet")
	for _, path := range paths {
		b.Run(filepath.Base(path), func(b *testing.B) {
			p := compileFile(b, path)
			whole, full, sweep := plain(p), time.Hour, time.Hour
			for b.Loop() {
				from := time.Now()
				whole.Replay(Settings{}, ReplayOptions{})
				full = min(full, time.Since(from))
				from = time.Now()
				if _, err := p.Sweep(SweepOptions{}); err != nil {
					b.Fatal(err)
				}
				sweep = min(sweep, time.Since(from))
			}
			b.ReportMetric(float64(sweep)/float64(full), "full-replays")
			b.ReportMetric(float64(sweep.Microseconds())/1e3, "ms/sweep")
		})
	}
}

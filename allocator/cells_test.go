package allocator

import (
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// cellSettings are the allocator settings of the cells that are predicted below.
func cellSettings() []Settings {
	return []Settings{{}, {Expandable: true}, {Divisions: all(4)}, {MaxSplit: 128 << 20}}
}

// lengths are cells of a family, in an order that mixes short and long: half of
// each run of them is representative.
func lengths(t testing.TB, f *Family, longest int) []cell {
	t.Helper()
	var out []cell
	for _, chunk := range []int{0, 64} {
		for l := 1; l <= longest; l++ {
			if _, err := f.Domain(l, 1, chunk); err == nil {
				out = append(out, cell{l, 1, chunk})
			}
		}
	}
	mixed := make([]cell, len(out))
	for i := range out {
		mixed[i] = out[i*1009%len(out)]
	}
	if len(out)%1009 == 0 {
		t.Fatal("the order leaves cells out")
	}
	return mixed
}

func cellFamily(t testing.TB) *Family {
	t.Helper()
	f, err := BuildFamily(record(t, "L128_B1", "L192_B1", "L256_B1", "L320_B1", "L300_B1_c64", "L384_B1_c64", "L512_B1_c64", "L640_B1_c64"))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// TestManyCellsWithinTheirReplays: predicting a cell that nobody recorded costs
// no more than a recorded one: ten replays under default settings, and not many
// more under others. Steps are counted.
func TestManyCellsWithinTheirReplays(t *testing.T) {
	f := cellFamily(t)
	cells := lengths(t, f, 1280)
	if len(cells) < 2000 {
		t.Fatalf("the family reaches %d lengths", len(cells))
	}
	for i, most := range []float64{10, 25, 10} {
		set := cellSettings()[i]
		worst, at := 0.0, cell{}
		for _, c := range cells[:8] {
			p, err := f.At(c.seqLen, c.batch, c.chunk)
			if err != nil {
				t.Fatal(err)
			}
			r, err := p.Sweep(SweepOptions{Settings: set})
			if err != nil {
				t.Fatal(err)
			}
			if ratio := float64(r.Steps) / float64(len(p.ops)); ratio > worst {
				worst, at = ratio, c
			}
		}
		t.Logf("%+v: at most %.1f replays (%v)", set, worst, at)
		if worst > most {
			t.Errorf("%+v: %v takes %.1f replays", set, at, worst)
		}
	}
}

// BenchmarkTenThousandCells builds a program from recordings and predicts cells
// with two workers: every length up to 1,280 that the recordings reach, without
// chunks and with chunks of 64, under each of some settings. One operation is
// one cell: -benchtime 10000x predicts ten thousand. full-replays is the
// processor time of a cell, by the time of one replay that executes every event
// of a recording (L640_B1) in the same run.
func BenchmarkTenThousandCells(b *testing.B) {
	whole := plain(compileFile(b, traceDir+"/L640_B1.parquet"))
	full := time.Hour
	for range 20 {
		from := time.Now()
		whole.Replay(Settings{}, ReplayOptions{})
		full = min(full, time.Since(from))
	}
	f, sets := cellFamily(b), cellSettings()
	cells := lengths(b, f, 1280)
	for name, sets := range map[string][]Settings{
		"default": sets[:1], "expandable": sets[1:2], "divisions": sets[2:3], "max_split": sets[3:], "three-settings": sets[:3], "four-settings": sets,
	} {
		b.Run(name, func(b *testing.B) {
			from, busy := time.Now(), processorTime(b)
			predictCells(b, f, cells, sets)
			busy = processorTime(b) - busy
			b.ReportMetric(float64(busy)/float64(b.N)/1e6, "cpu-ms/cell")
			b.ReportMetric(float64(busy)/float64(b.N)/float64(full), "full-replays/cell")
			b.ReportMetric(time.Since(from).Minutes()/float64(b.N)*10_000, "min/10000-cells")
		})
	}
}

// processorTime is what this process has used so far.
func processorTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// predictCells predicts b.N cells with two workers. The program of a length is
// shared by its settings.
func predictCells(b *testing.B, f *Family, cells []cell, sets []Settings) {
	var next, failed atomic.Int64
	var group sync.WaitGroup
	for range 2 {
		group.Go(func() {
			for i := int(next.Add(1)) - 1; i*len(sets) < b.N; i = int(next.Add(1)) - 1 {
				c := cells[i%len(cells)]
				p, err := f.At(c.seqLen, c.batch, c.chunk)
				for k := 0; k < len(sets) && err == nil && i*len(sets)+k < b.N; k++ {
					_, err = p.Sweep(SweepOptions{Settings: sets[k]})
				}
				if err != nil {
					failed.Add(1)
				}
			}
		})
	}
	group.Wait()
	if failed.Load() > 0 {
		b.Fatalf("%d lengths failed", failed.Load())
	}
}

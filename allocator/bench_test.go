package allocator

import (
	"testing"
	"time"
)

func BenchmarkReplay(b *testing.B) {
	for _, c := range []struct {
		name, trace string
		set         Settings
	}{
		{"default/L384", "L384_B1", Settings{}},
		{"default/L512c64", "L512_B1_c64", Settings{}},
		{"default/L768c64", "L768_B1_c64", Settings{}},
		{"expandable/L384", "L384_B1", Settings{Expandable: true}},
		{"expandable/L512c64", "L512_B1_c64", Settings{Expandable: true}},
		{"max_split/L512c64", "L512_B1_c64", Settings{MaxSplit: 128 << 20}},
		{"divisions/L512c64", "L512_B1_c64", Settings{Divisions: [16]int64{4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4}}},
	} {
		b.Run(c.name, func(b *testing.B) {
			p := compileFile(b, traceDir+"/"+c.trace+".parquet")
			for b.Loop() {
				p.Replay(c.set, ReplayOptions{})
			}
			b.ReportMetric(float64(p.Events())*float64(b.N)/b.Elapsed().Seconds()/1e6, "Mevents/s")
		})
	}
}

// BenchmarkSweep reports how many full replays' time a sweep takes.
func BenchmarkSweep(b *testing.B) {
	for _, c := range []struct {
		name, trace string
		set         Settings
	}{
		{"default/L384", "L384_B1", Settings{}},
		{"default/L512c64", "L512_B1_c64", Settings{}},
		{"default/L768c64", "L768_B1_c64", Settings{}},
		{"default/L640", "L640_B1", Settings{}},
		{"expandable/L512c64", "L512_B1_c64", Settings{Expandable: true}},
		{"max_split/L384", "L384_B1", Settings{MaxSplit: 128 << 20}},
		{"max_split/L512c64", "L512_B1_c64", Settings{MaxSplit: 128 << 20}},
		{"gc/L512c64", "L512_B1_c64", Settings{GCThreshold: 0.9}},
	} {
		b.Run(c.name, func(b *testing.B) {
			p := compileFile(b, traceDir+"/"+c.trace+".parquet")
			const runs = 20
			from := time.Now()
			for range runs {
				p.Replay(c.set, ReplayOptions{})
			}
			full := time.Since(from) / runs
			replays := 0
			for b.Loop() {
				r, err := p.Sweep(SweepOptions{Settings: c.set})
				if err != nil {
					b.Fatal(err)
				}
				replays = r.Replays
			}
			b.ReportMetric(float64(b.Elapsed())/float64(b.N)/float64(full), "full-replays")
			b.ReportMetric(float64(replays), "paths")
		})
	}
}

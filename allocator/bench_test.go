package allocator

import (
	"testing"
	"time"
)

// BenchmarkReplay counts an event for each allocation and free of the program.
// "executed" runs every one of them; "replay" may leave out turns of loops.
func BenchmarkReplay(b *testing.B) {
	for _, c := range []struct {
		name, trace string
		set         Settings
	}{
		{"default/L384", traceDir + "/L384_B1", Settings{}},
		{"default/L512c64", traceDir + "/L512_B1_c64", Settings{}},
		{"default/L768c64", traceDir + "/L768_B1_c64", Settings{}},
		{"default/gpt2", "testdata/other/gpt2_train_L512_B8", Settings{}},
		{"default/llama", "testdata/other/llama_gen_L512_B1", Settings{}},
		{"expandable/L384", traceDir + "/L384_B1", Settings{Expandable: true}},
		{"expandable/L512c64", traceDir + "/L512_B1_c64", Settings{Expandable: true}},
		{"max_split/L512c64", traceDir + "/L512_B1_c64", Settings{MaxSplit: 128 << 20}},
		{"divisions/L512c64", traceDir + "/L512_B1_c64", Settings{Divisions: all(4)}},
	} {
		p := compileFile(b, c.trace+".parquet")
		for name, q := range map[string]*Program{"replay/" + c.name: p, "executed/" + c.name: plain(p)} {
			b.Run(name, func(b *testing.B) {
				best := time.Hour // a replay is short enough to find one that nothing disturbed
				for b.Loop() {
					from := time.Now()
					q.Replay(c.set, ReplayOptions{})
					best = min(best, time.Since(from))
				}
				b.ReportMetric(float64(best)/float64(p.Events()), "best-ns/event")
				b.ReportMetric(float64(p.Events())*float64(b.N)/b.Elapsed().Seconds()/1e6, "Mevents/s")
			})
		}
	}
}

func BenchmarkCompile(b *testing.B) {
	events := readTrace(b, traceDir+"/L512_B1_c64.parquet")
	for b.Loop() {
		if _, err := Compile(events); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkSweep reports how many times as long as a replay that executes every
// event a sweep takes, all layouts and the self-check included, and how many
// times as long as Program.Replay, which leaves out turns of loops.
func BenchmarkSweep(b *testing.B) {
	for _, c := range []struct {
		name, trace string
		set         Settings
	}{
		{"default/L384", "L384_B1", Settings{}},
		{"default/L512c64", "L512_B1_c64", Settings{}},
		{"default/L768c64", "L768_B1_c64", Settings{}},
		{"default/L640", "L640_B1", Settings{}},
		{"default/L448", "L448_B1", Settings{}},
		{"default/L256B3", "L256_B3", Settings{}},
		{"expandable/L512c64", "L512_B1_c64", Settings{Expandable: true}},
		{"max_split/L384", "L384_B1", Settings{MaxSplit: 128 << 20}},
		{"max_split/L512c64", "L512_B1_c64", Settings{MaxSplit: 128 << 20}},
		{"gc/L512c64", "L512_B1_c64", Settings{GCThreshold: 0.9}},
	} {
		b.Run(c.name, func(b *testing.B) {
			p := compileFile(b, traceDir+"/"+c.trace+".parquet")
			const runs = 20
			timed := func(p *Program) time.Duration {
				from := time.Now()
				for range runs {
					p.Replay(c.set, ReplayOptions{})
				}
				return time.Since(from) / runs
			}
			full, short := timed(plain(p)), timed(p)
			replays := 0
			for b.Loop() {
				r, err := p.Sweep(SweepOptions{Settings: c.set})
				if err != nil {
					b.Fatal(err)
				}
				replays = r.Replays
			}
			b.ReportMetric(float64(b.Elapsed())/float64(b.N)/float64(full), "full-replays")
			b.ReportMetric(float64(b.Elapsed())/float64(b.N)/float64(short), "replays")
			b.ReportMetric(float64(replays), "paths")
		})
	}
}

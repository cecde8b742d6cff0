package allocator

import (
	"fmt"
	"runtime"
	"testing"
)

// longer repeats what a program frees again, until it has about n events: the
// weights stay, the run goes on.
func longer(p *Program, n int) *Program {
	freed := make([]bool, len(p.ops))
	open := map[int32]int{}
	for i := range p.ops {
		switch o := &p.ops[i]; o.kind {
		case opAlloc:
			open[o.slot] = i
		case opFree:
			freed[i], freed[open[o.slot]] = true, true
		}
	}
	out := &Program{ops: p.ops[:len(p.ops):len(p.ops)], slots: p.slots, streams: p.streams, oomAt: -1, synthetic: true}
	for len(out.ops) < n {
		for i := range p.ops {
			if freed[i] {
				out.ops = append(out.ops, p.ops[i])
			}
		}
	}
	out.repeated = findStretches(out.ops)
	return out
}

// BenchmarkGrowth replays ever longer runs, once as they are and once with no
// turn left out, and compiles their traces.
func BenchmarkGrowth(b *testing.B) {
	base := compileFile(b, traceDir+"/L384_B1.parquet")
	for _, n := range []int{50_000, 500_000, 5_000_000} {
		p := longer(base, n)
		plain := *p
		plain.repeated = nil
		for name, run := range map[string]*Program{"replay": p, "replay-every-op": &plain} {
			b.Run(fmt.Sprint(name, "/", n), func(b *testing.B) {
				for b.Loop() {
					run.Replay(Settings{}, ReplayOptions{})
				}
				b.ReportMetric(float64(run.Events())*float64(b.N)/b.Elapsed().Seconds()/1e6, "Mevents/s")
			})
		}
		b.Run(fmt.Sprint("compile/", n), func(b *testing.B) {
			events := eventsOf(p)
			var before, after runtime.MemStats
			for b.Loop() {
				runtime.GC()
				runtime.ReadMemStats(&before)
				q, err := Compile(events)
				if err != nil {
					b.Fatal(err)
				}
				runtime.GC()
				runtime.ReadMemStats(&after)
				b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/float64(q.Events()), "program-B/event")
			}
		})
	}
}

// BenchmarkFamily builds programs from recordings, and extends them.
func BenchmarkFamily(b *testing.B) {
	recordings := record(b, "L128_B1", "L192_B1", "L256_B1", "L320_B1", "L384_B1_c64", "L512_B1_c64", "L640_B1_c64")
	var f *Family
	b.Run("build", func(b *testing.B) {
		for b.Loop() {
			var err error
			if f, err = BuildFamily(recordings); err != nil {
				b.Fatal(err)
			}
		}
	})
	for _, chunk := range []int{0, 64} {
		b.Run(fmt.Sprint("at/L1024c", chunk), func(b *testing.B) {
			for b.Loop() {
				if _, err := f.At(1024, 1, chunk); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

package allocator

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/parquet-go/parquet-go"
)

const traceDir = "../agent/sim/traces"

// readTrace reads a recorded trace's columns; the product's codec is package
// storage/trace, which stands above this one.
func readTrace(t testing.TB, path string) []Event {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r := parquet.NewReader(f)
	defer r.Close()
	column := map[string]int{}
	for i, c := range r.Schema().Columns() {
		column[c[0]] = i
	}
	var out []Event
	rows := make([]parquet.Row, 1024)
	for {
		n, err := r.ReadRows(rows)
		for _, row := range rows[:n] {
			action, perr := ParseAction(row[column["action"]].String())
			if perr != nil {
				t.Fatal(perr)
			}
			out = append(out, Event{
				Action: action, Addr: row[column["addr"]].Uint64(),
				Size: row[column["size"]].Int64(), Stream: row[column["stream"]].Int64(),
			})
		}
		if err == io.EOF {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

func compileFile(t testing.TB, path string) *Program {
	t.Helper()
	p, err := Compile(readTrace(t, path))
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	return p
}

// TestSelfCheckOfEveryTrace: every allocation of every recorded trace lands at
// its recorded place.
func TestSelfCheckOfEveryTrace(t *testing.T) {
	paths, _ := filepath.Glob(traceDir + "/*.parquet")
	others, _ := filepath.Glob("testdata/other/*.parquet")
	if len(paths) < 21 || len(others) < 14 {
		t.Fatalf("found %d and %d traces", len(paths), len(others))
	}
	for _, path := range append(paths, others...) {
		t.Run(filepath.Base(path), func(t *testing.T) {
			t.Parallel()
			report := compileFile(t, path).SelfCheck(Settings{})
			if report.Mismatches != 0 || report.Allocs == 0 || report.Segments == 0 {
				t.Errorf("%+v", report)
			}
		})
	}
}

type measured struct {
	Model     string            `json:"model"`
	SeqLen    int               `json:"seq_len"`
	Batch     int               `json:"batch"`
	Chunk     int               `json:"chunk_size"`
	Stem      string            `json:"stem"`
	Trunk     string            `json:"trunk"`
	Env       map[string]string `json:"env"`
	Kind      string            `json:"cap_kind"`
	Cap       int64             `json:"cap_bytes"`
	Outcome   string            `json:"outcome"`
	Allocated int64             `json:"peak_allocated_bytes"`
	Reserved  int64             `json:"peak_reserved_bytes"`
	Process   int64             `json:"process_peak_bytes"`
	Retries   int               `json:"num_alloc_retries"`
}

func (m measured) trace() string {
	name := fmt.Sprintf("%s/L%d_B%d", traceDir, m.SeqLen, m.Batch)
	if m.Chunk > 0 {
		name += fmt.Sprintf("_c%d", m.Chunk)
	}
	return name + ".parquet"
}

func readRuns(t testing.TB) []measured {
	t.Helper()
	f, err := os.Open("../agent/sim/testdata/esmfold_h200_runs.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var out []measured
	for s := bufio.NewScanner(f); s.Scan(); {
		var m measured
		if err := json.Unmarshal(s.Bytes(), &m); err != nil {
			t.Fatal(err)
		}
		out = append(out, m)
	}
	return out
}

// TestReplayAgreesWithRealRuns holds the model against every real run whose
// cell has a trace: outcome, peaks where it passed, retries.
func TestReplayAgreesWithRealRuns(t *testing.T) {
	programs := map[string]*Program{}
	compared, skipped := 0, map[string]int{}
	for i, m := range readRuns(t) {
		reason := leftOut(m)
		if reason != "" {
			skipped[reason]++
			continue
		}
		set, err := SettingsFromEnv(m.Env)
		if err != nil {
			t.Fatalf("row %d: %v", i, err)
		}
		p := programs[m.trace()]
		if p == nil {
			p = compileFile(t, m.trace())
			programs[m.trace()] = p
		}
		var limit Limit
		if m.Kind == "allocator" {
			limit.Cap = m.Cap
		}
		r := p.Replay(set, ReplayOptions{Limit: limit})
		compared++
		if r.OOM != (m.Outcome == "oom") {
			t.Errorf("row %d: %+v: replay says oom %v", i, m, r.OOM)
			continue
		}
		if r.Retries != m.Retries {
			t.Errorf("row %d: %+v: retries %d", i, m, r.Retries)
		}
		if !r.OOM && (r.PeakReserved != m.Reserved || r.PeakAllocated != m.Allocated) {
			t.Errorf("row %d: %+v: reserved %d allocated %d", i, m, r.PeakReserved, r.PeakAllocated)
		}
	}
	t.Logf("compared %d rows, left out: %v", compared, skipped)
	if compared < 60 {
		t.Errorf("only %d rows compared", compared)
	}
}

func leftOut(m measured) string {
	if m.Kind != "none" && m.Kind != "allocator" {
		return "kind " + m.Kind
	}
	if m.Model != "esmfold_v1" || m.Stem != "bfloat16" || m.Trunk != "float32" {
		return "another program"
	}
	if m.Outcome == "error" {
		return "the run never started"
	}
	if m.Kind == "none" && m.Reserved > 100<<30 {
		return "met the physical end of the card"
	}
	for name := range m.Env {
		if name != "PYTORCH_CUDA_ALLOC_CONF" && name != "PYTORCH_ALLOC_CONF" {
			return "a variable that changes the program: " + name
		}
	}
	if strings.Contains(fmt.Sprint(m.Env), "per_process_memory_fraction") && m.Outcome == "ok" {
		return "the fraction is not an environment's but the harness's to set"
	}
	if _, err := os.Stat(m.trace()); err != nil {
		return "no trace of the cell"
	}
	return ""
}

// TestSweepFindsMeasuredBoundaries: the maps that the real GPU confirmed.
func TestSweepFindsMeasuredBoundaries(t *testing.T) {
	const MiB = 1 << 20
	x := Settings{Expandable: true}
	for _, c := range []struct {
		trace            string
		set              Settings
		boundary, lowest int64
		bands            []Band
	}{
		{"L384_B1", Settings{}, 11014, 11014, nil},
		{"L512_B1_c64", Settings{}, 10662, 10464, []Band{{10652 * MiB, 10660 * MiB}}},
		{"L128_B8", Settings{}, 9890, 9890, nil},
		{"L384_B1", x, 10602, 10602, nil},
		{"L512_B1_c64", x, 9970, 9970, nil},
		{"L384_B1", Settings{MaxSplit: 128 * MiB}, 10776, 10776, nil},
		{"L512_B1_c64", Settings{MaxSplit: 128 * MiB}, 10152, 10152, nil},
	} {
		t.Run(c.trace, func(t *testing.T) {
			r, err := compileFile(t, traceDir+"/"+c.trace+".parquet").Sweep(SweepOptions{Settings: c.set})
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%d replays, no-retry %d MiB, layout-sensitive %v, bands %v, lowest %d", r.Replays, r.NoRetry/MiB, r.LayoutSensitive, r.FailBands, r.LowestPass/MiB)
			if r.Boundary != c.boundary*MiB || r.LowestPass > c.boundary*MiB {
				t.Errorf("boundary %d MiB, lowest pass %d MiB", r.Boundary/MiB, r.LowestPass/MiB)
			}
			if c.set == (Settings{}) && (r.LowestPass != c.lowest*MiB || fmt.Sprint(r.FailBands) != fmt.Sprint(c.bands)) {
				t.Errorf("lowest pass %d MiB, bands %v", r.LowestPass/MiB, r.FailBands)
			}
		})
	}
}

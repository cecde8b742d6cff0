package matrix

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/oomfleet/oomfleet/proto"
)

// head begins every source of this file.
const head = "apiVersion: oomfleet/v1\nname: test\nworkload: {name: esmfold}\n"

func TestInstalled(t *testing.T) {
	h200 := proto.Stack{GPU: "NVIDIA H200", Driver: "580.159.04"}
	h200next := proto.Stack{GPU: "NVIDIA H200", Driver: "590.10"}
	a100 := proto.Stack{GPU: "NVIDIA A100", Driver: "570.1"}
	tests := []struct {
		name, body string
		stacks     []proto.Stack
		want       string // cells by GPU and driver, or a part of the error
	}{
		{"one model", "axes: {seq_len: 1}", []proto.Stack{h200, h200next}, "NVIDIA H200 580.159.04, NVIDIA H200 590.10"},
		{"no agent", "axes: {seq_len: 1}", nil, "target.gpu is installed, but no agent is registered"},
		{"two models", "axes: {seq_len: 1}", []proto.Stack{h200, a100}, "name one of NVIDIA A100, NVIDIA H200"},
		{"named of two", "target: {gpu: NVIDIA A100}\naxes: {seq_len: 1}", []proto.Stack{h200, a100}, "NVIDIA A100 570.1"},
		{"named, no agent", "target: {gpu: NVIDIA A100}\naxes: {seq_len: 1}", nil, "no registered agent has the GPU NVIDIA A100"},
		{"both named", "target: {gpu: NVIDIA A100}\naxes: {seq_len: 1, driver: 1.10}", nil, "NVIDIA A100 1.10"},
		{"mixed", "axes: {seq_len: 1, driver: [590.10, installed]}", []proto.Stack{h200, h200next}, "NVIDIA H200 580.159.04, NVIDIA H200 590.10"},
		{"in a rule", "axes: {seq_len: [1, 2], driver: [590.10, 1.0]}\nexclude: [{driver: installed}]", []proto.Stack{h200next}, "NVIDIA H200 1.0, NVIDIA H200 1.0"},
		{"another card's driver", "target: {gpu: NVIDIA H200}\naxes: {seq_len: 1}", []proto.Stack{h200, a100}, "NVIDIA H200 580.159.04"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			expansion, err := Expand([]byte(head+test.body), Options{Installed: test.stacks})
			if err != nil {
				if !strings.Contains(err.Error(), test.want) {
					t.Errorf("error %q, want %q in it", err, test.want)
				}
				return
			}
			var got []string
			for _, cell := range expansion.Cells {
				got = append(got, cell.GPU+" "+cell.Driver)
			}
			if strings.Join(got, ", ") != test.want {
				t.Errorf("got %v, want %v", got, test.want)
			}
		})
	}
}

func TestParseWithoutAgents(t *testing.T) {
	tests := []struct {
		body  string
		needs bool
	}{
		{"axes: {seq_len: 1}", true},
		{"target: {gpu: NVIDIA H200}\naxes: {seq_len: 1}", true},
		{"target: {gpu: NVIDIA H200}\naxes: {seq_len: 1, driver: 580.10}", false},
		{"target: {gpu: installed}\naxes: {seq_len: 1, driver: 580.10}", true},
		{"target: {gpu: NVIDIA H200}\naxes: {seq_len: 1, driver: 580.10}\ninclude: [{driver: installed}]", true},
	}
	for _, test := range tests {
		spec, err := Parse([]byte(head+test.body), Options{})
		if err != nil {
			t.Errorf("%s: %v", test.body, err)
			continue
		}
		if spec.NeedsInstalled() != test.needs {
			t.Errorf("%s: needs agents is %v", test.body, !test.needs)
		}
		if spec.Name != "test" || spec.Workload.Name != ESMFold || spec.MaxCells != DefaultMaxCells || spec.Step != proto.DefaultStep {
			t.Errorf("%s: %+v", test.body, spec)
		}
	}
	if _, err := Parse([]byte(head), Options{}); err == nil {
		t.Error("a file without axes parses")
	}
}

// TestDefaultsAreTheSameCells: spelling a default out changes no cell.
func TestDefaultsAreTheSameCells(t *testing.T) {
	short := head + "axes: {seq_len: [1, 2]}"
	long := `apiVersion: oomfleet/v1
name: test
workload: {name: esmfold, params: {recycles: 1, trunk: float32, stem: bfloat16, weights: random, model: esmfold_v1}}
target: {gpu: installed}
axes: {seq_len: [1, 2], batch: 1, chunk_size: [0], driver: installed, env: {}}
exclude: []
include: []
quota: {kind: allocator, min: 0, step: 2MiB}
search: {strategy: predict, certify: edges}
limits: {max_cells: 10000}
`
	a, errA := Expand([]byte(short), Options{Installed: fleet()})
	b, errB := Expand([]byte(long), Options{Installed: fleet()})
	if errA != nil || errB != nil {
		t.Fatal(errA, errB)
	}
	if describe(a) != describe(b) {
		t.Errorf("short:\n%s\nlong:\n%s", describe(a), describe(b))
	}
}

func TestEstimate(t *testing.T) {
	range40 := proto.Search{Strategy: proto.StrategyBisect, Min: 6 * proto.GiB, Max: 6*proto.GiB + 16*proto.MiB}
	tests := []struct {
		name   string
		search proto.Search
		want   Estimate
	}{
		{"edges", proto.Search{Strategy: proto.StrategyPredict, Certify: proto.CertifyEdges}, Estimate{100, 100, 200}},
		{"all", proto.Search{Strategy: proto.StrategyPredict, Certify: proto.CertifyAll}, Estimate{100, 100, 200}},
		{"none", proto.Search{Strategy: proto.StrategyPredict, Certify: proto.CertifyNone}, Estimate{100, 100, 0}},
		{"sample", proto.Search{Strategy: proto.StrategyPredict, Certify: proto.CertifySample, SamplePercent: 33}, Estimate{100, 100, 66}},
		{"bisect", proto.Search{Strategy: proto.StrategyBisect}, Estimate{100, 100, 1000}},
		{"bisect in 8 steps", range40, Estimate{100, 100, 400}},
	}
	for _, test := range tests {
		if got := EstimateFor(100, test.search, proto.DefaultStep); got != test.want {
			t.Errorf("%s: %+v, want %+v", test.name, got, test.want)
		}
	}
}

func TestProblemsAreJSON(t *testing.T) {
	_, err := Expand([]byte("a: 1\n"), Options{})
	text, errJSON := json.Marshal(err)
	if errJSON != nil {
		t.Fatal(errJSON)
	}
	var back Problems
	if err := json.Unmarshal(text, &back); err != nil {
		t.Fatal(err)
	}
	if back.String() != fmt.Sprint(err.(Problems).String()) || !strings.HasPrefix(string(text), `[{"line":1,"column":1,"message":`) {
		t.Errorf("%s", text)
	}
}

func TestManyProblemsAreCut(t *testing.T) {
	_, err := Expand([]byte(head+"axes: {seq_len: ["+strings.Repeat("x, ", 500)+"1]}"), Options{Installed: fleet()})
	problems := err.(Problems)
	if len(problems) != maxProblems+1 || problems[maxProblems].Message != "and 400 more like these" {
		t.Errorf("%d problems, the last %q", len(problems), problems[len(problems)-1].Message)
	}
}

// TestLongLine: a mistake that is repeated on one very long line costs no more
// than its report.
func TestLongLine(t *testing.T) {
	for _, item := range []string{"1, ", "x, ", "max_split_size_mb:128, "} {
		items := strings.Repeat(item, (MaxSource-1000)/len(item))
		for _, axis := range []string{"seq_len", "env"} {
			_, err := Expand([]byte(head+"axes: {"+axis+": [A=b, "+items+"1]}"), Options{Installed: fleet()})
			problems, _ := err.(Problems)
			if len(problems) == 0 || len(problems.String()) > 300_000 {
				t.Errorf("%s %q: a report of %d problems, %d bytes", axis, item, len(problems), len(problems.String()))
			}
		}
	}
	twice, err := Expand([]byte(head+"axes: {seq_len: ["+strings.Repeat("1, ", MaxSource/4)+"1]}"), Options{Installed: fleet()})
	if err != nil || len(twice.Cells) != 2 || len(twice.Notices) != maxProblems+1 {
		t.Errorf("%v, %+v", err, twice)
	}
}

func TestTooLarge(t *testing.T) {
	_, err := Expand([]byte("#"+strings.Repeat(" ", MaxSource)), Options{})
	if err == nil || !strings.Contains(err.Error(), "at most 262144 are read") {
		t.Errorf("%v", err)
	}
}

func TestExcerpt(t *testing.T) {
	tests := []struct {
		name, line string
		column     int
		want       string
	}{
		{"plain", "a: b", 4, "    7 | a: b\n      |    ^"},
		{"wide letters count once", "é: ü", 4, "    7 | é: ü\n      |    ^"},
		{"past the end", "a:", 9, "    7 | a:\n      |   ^"},
		{"tab and escape", "\ta: \x1b[31m", 5, "    7 |  a: \uFFFD[31m\n      |     ^"},
		{"carriage return", "a: b\r", 4, "    7 | a: b\n      |    ^"},
	}
	for _, test := range tests {
		if got := excerpt(test.line, 7, test.column); got != test.want {
			t.Errorf("%s: got\n%s\nwant\n%s", test.name, got, test.want)
		}
	}
	long := excerpt(strings.Repeat("x", 300)+"HERE"+strings.Repeat("y", 300), 7, 301)
	line, caret, _ := strings.Cut(long, "\n")
	if at := strings.IndexByte(caret, '^'); line[at:at+4] != "HERE" || len(line) > excerptWidth+10 {
		t.Errorf("got\n%s", long)
	}
}

func TestNearest(t *testing.T) {
	known := []string{"seq_len", "batch", "chunk_size", "driver", "env"}
	tests := map[string]string{"seqlen": "seq_len", "bacth": "batch", "drivers": "driver", "chunk": "chunk_size", "ch": "", "evn": "env", "": "", "gpu": "", strings.Repeat("x", 99): ""}
	for text, want := range tests {
		if got, _ := Nearest(text, known); got != want {
			t.Errorf("Nearest(%q) = %q, want %q", text, got, want)
		}
	}
}

// TestOwned reads the whole list, and names that only look alike.
func TestOwned(t *testing.T) {
	for _, o := range owned() {
		if owner(strings.ReplaceAll(o.name, "*", "X")) == "" || o.reason == "" {
			t.Errorf("%s may be set, or has no reason", o.name)
		}
	}
	for _, name := range []string{"PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF", "CUBLAS_WORKSPACE_CONFIG", "CUDA_MODULE_LOADING", "MY_PATH", "PATHS", "HF_HOME"} {
		if reason := owner(name); reason != "" {
			t.Errorf("%s may not be set: %s", name, reason)
		}
	}
}

func BenchmarkExpandHundredThousand(b *testing.B) {
	var lengths []string
	for n := range 500 {
		lengths = append(lengths, fmt.Sprint(n+1))
	}
	source := head + "target: {gpu: x}\nlimits: {max_cells: 100000}\naxes: {driver: [1.1, 1.2], chunk_size: [0, 64], batch: [1, 2, 3, 4, 5], " +
		"env: [{}, A=1, A=2, A=3, A=4, A=5, A=6, A=7, A=8, A=9], seq_len: [" + strings.Join(lengths, ", ") + "]}"
	for b.Loop() {
		expansion, err := Expand([]byte(source), Options{})
		if err != nil || len(expansion.Cells) != HardMaxCells {
			b.Fatal(err)
		}
	}
}

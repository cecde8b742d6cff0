package sim

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/oomfleet/oomfleet/agent/runner"
	"github.com/oomfleet/oomfleet/allocator"
	"github.com/oomfleet/oomfleet/proto"
)

// roleRun makes the test binary play a run's process.
const roleRun = "role-run"

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == roleRun {
		os.Exit(Run(os.Args[2:], os.Stdin))
	}
	goleak.VerifyTestMain(m)
}

func request(seqLen, batch, chunk int) runner.Request {
	return runner.Request{Op: runner.OpRun, ID: "s-cell-1.1.1", Workload: runner.Workload{Name: "esmfold", Params: map[string]string{
		"model": "esmfold_v1", "weights": "random", "stem": "bfloat16", "trunk": "float32", "recycles": "1"}},
		SeqLen: seqLen, Batch: batch, ChunkSize: chunk, QuotaKind: "allocator"}
}

// told is everything that a run said.
type told struct {
	phases []string
	meters runner.Meters // of the last phase that had any
	done   *runner.Done
	failed *runner.Failed
	events []allocator.Event
}

// simulate runs a job inside the test.
func simulate(t *testing.T, cfg Config, req runner.Request) told {
	t.Helper()
	in, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	failure := make(chan error, 1)
	go func() {
		r := run{job: job{Config: cfg, Request: req}, id: runner.RunID{ID: req.ID}, out: out}
		_, err := r.answer()
		out.Close()
		failure <- err
	}()
	var got told
	for events := runner.NewEvents(in); ; {
		event, err := events.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		switch e := event.(type) {
		case *runner.Phase:
			got.phases, got.meters = append(got.phases, e.Phase), e.Meters
		case *runner.Done:
			got.done = e
		case *runner.Failed:
			got.failed = e
		case *runner.Trace:
			for i := range e.Actions {
				got.events = append(got.events, allocator.Event{Action: actionOf(t, e.Actions[i]), Addr: e.Addr[i], Size: e.Size[i], Stream: e.Stream[i]})
			}
		}
	}
	in.Close()
	if err := <-failure; err != nil {
		t.Fatal(err)
	}
	return got
}

func actionOf(t *testing.T, l byte) allocator.Action {
	t.Helper()
	for a := allocator.Alloc; a <= allocator.Snapshot; a++ {
		if letter(a) == l {
			return a
		}
	}
	t.Fatalf("letter %q", l)
	return 0
}

// recordedRun is one line of the measured runs.
type recordedRun struct {
	Model     string            `json:"model"`
	SeqLen    int               `json:"seq_len"`
	Batch     int               `json:"batch"`
	ChunkSize int               `json:"chunk_size"`
	Trunk     string            `json:"trunk"`
	Env       map[string]string `json:"env"`
	CapKind   string            `json:"cap_kind"`
	CapBytes  *int64            `json:"cap_bytes"`
	Outcome   string            `json:"outcome"`
	Allocated *int64            `json:"peak_allocated_bytes"`
	Reserved  *int64            `json:"peak_reserved_bytes"`
	Process   *int64            `json:"process_peak_bytes"`
	Context   *int64            `json:"context_bytes"`
	LoadedA   *int64            `json:"loaded_allocated_bytes"`
	LoadedR   *int64            `json:"loaded_reserved_bytes"`
	Retries   *int64            `json:"num_alloc_retries"`
	Seconds   *float64          `json:"seconds"`
	Message   *string           `json:"message"`
}

func recordedRuns(t *testing.T) []recordedRun {
	t.Helper()
	f, err := os.Open("testdata/esmfold_h200_runs.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var runs []recordedRun
	for lines := bufio.NewScanner(f); lines.Scan(); {
		var r recordedRun
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			t.Fatal(err)
		}
		runs = append(runs, r)
	}
	return runs
}

// The simulator against every measured run of a cell that it claims to know:
// outcome, peaks and retries are those of the real card.
func TestAgreesWithEveryMeasuredRun(t *testing.T) {
	compared := 0
	for i, real := range recordedRuns(t) {
		req := request(real.SeqLen, real.Batch, real.ChunkSize)
		req.Workload.Params["model"], req.Workload.Params["trunk"] = real.Model, real.Trunk
		req.Env = real.Env
		if real.CapKind != "none" {
			req.QuotaKind, req.QuotaBytes = real.CapKind, *real.CapBytes
		}
		t.Run(fmt.Sprintf("%03d_L%d_B%d_c%d_%s_%s", i, real.SeqLen, real.Batch, real.ChunkSize, proto.EnvString(real.Env), real.CapKind), func(t *testing.T) {
			got := simulate(t, Config{}, req)
			if got.failed != nil && got.failed.Exception == "Unsupported" {
				return // counted below
			}
			compared++
			compareRun(t, real, got)
		})
	}
	// The others are of cells, programs or variables without a recording.
	if want := 90; compared != want {
		t.Errorf("%d runs were compared, want %d", compared, want)
	}
}

func compareRun(t *testing.T, real recordedRun, got told) {
	t.Helper()
	if real.Outcome == "error" {
		if got.failed == nil || !got.failed.BadCell {
			t.Errorf("accepted what the real run rejected with %q", *real.Message)
		}
		return
	}
	if oom := got.failed != nil; oom != (real.Outcome == "oom") {
		t.Fatalf("oom is %v, the real run was %s", oom, real.Outcome)
	}
	var m runner.Meters
	if got.done != nil {
		m = got.done.Meters
		if r := *got.done; math.Abs(r.Seconds-*real.Seconds) > 0.5**real.Seconds && r.Seconds < 2 {
			t.Logf("seconds %.2f, real %.2f", r.Seconds, *real.Seconds) // the first runs after a pause
		}
	} else {
		m = got.failed.Meters
	}
	// Under a device or process quota the real context differed by a few MiB from
	// that of the recording, so a quota this near the edge can need one more page,
	// and one flush for it.
	var page, flush int64
	if real.CapKind == "device" || real.CapKind == "process" {
		page, flush = 2<<20, 1
	}
	for _, v := range []struct {
		name      string
		got, want *int64
		slack     int64
	}{
		{"peak allocated", m.PeakAllocated, real.Allocated, 0},
		{"peak reserved", m.PeakReserved, real.Reserved, page},
		{"retries", m.NumAllocRetries, real.Retries, flush},
		{"loaded allocated", got.meters.LoadedAllocated, real.LoadedA, 0},
		{"loaded reserved", got.meters.LoadedReserved, real.LoadedR, 0},
		// A refused run has loaded fewer kernels by then (up to 104 MiB), and
		// the context of some runs was 70 MiB larger from the start.
		{"process peak", m.ProcessPeak, real.Process, 105 << 20},
		{"context", m.Context, real.Context, 70 << 20},
	} {
		if v.got == nil || v.want == nil || *v.got-*v.want > v.slack || *v.want-*v.got > v.slack {
			t.Errorf("%s is %v, the real run had %v", v.name, deref(v.got), deref(v.want))
		}
	}
	if real.Message != nil && got.failed != nil {
		sameRefusal(t, got.failed.Message, *real.Message)
	}
}

// sameRefusal compares the parts of two texts that do not depend on the bytes
// outside the allocator.
func sameRefusal(t *testing.T, got, want string) {
	t.Helper()
	for _, part := range []struct{ from, to string }{
		{"CUDA out of memory.", " of which"}, {"Of the allocated memory", "is allocated by PyTorch"}, {"If reserved", "alloc-conf)"},
	} {
		if g, w := between(got, part.from, part.to), between(want, part.from, part.to); g != w {
			t.Errorf("the text says %q, the real one %q", g, w)
		}
	}
	if strings.Contains(got, "allowed;") != strings.Contains(want, "allowed;") {
		t.Errorf("cap printed: %v in\n%s", strings.Contains(got, "allowed;"), got)
	}
}

func between(text, from, to string) string {
	_, rest, _ := strings.Cut(text, from)
	part, _, _ := strings.Cut(rest, to)
	return part
}

func deref[T any](p *T) any {
	if p == nil {
		return "unknown"
	}
	return *p
}

func TestRecordingIsTheCellsOwn(t *testing.T) {
	for name, env := range map[string]map[string]string{
		"default":    nil,
		"expandable": {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"},
		"max split":  {"PYTORCH_CUDA_ALLOC_CONF": "max_split_size_mb:128"},
	} {
		t.Run(name, func(t *testing.T) {
			req := request(256, 1, 0)
			req.Env, req.Record = env, true
			got := simulate(t, Config{}, req)
			if got.done == nil || len(got.events) < 70_000 {
				t.Fatalf("%d events, %+v", len(got.events), got.failed)
			}
			settings, err := allocator.SettingsFromEnv(env)
			if err != nil {
				t.Fatal(err)
			}
			check, err := allocator.SelfCheck(got.events, settings)
			if err != nil || check.Mismatches != 0 || check.Allocs < 25_000 {
				t.Errorf("self-check %+v, %v", check, err)
			}
			result, err := allocator.Replay(got.events, settings, allocator.Limit{})
			if err != nil || result.PeakReserved != *got.done.Meters.PeakReserved {
				t.Errorf("replay peaks at %d (%v), the run at %d", result.PeakReserved, err, *got.done.Meters.PeakReserved)
			}
			mapped := slices.ContainsFunc(got.events, func(e allocator.Event) bool { return e.Action == allocator.SegmentMap })
			if mapped != settings.Expandable {
				t.Errorf("segment_map events: %v", mapped)
			}
			if !slices.Equal(got.phases, []string{"start", "load", "forward"}) {
				t.Errorf("phases %v", got.phases)
			}
		})
	}
}

func TestSettingsAreShownAsRecorded(t *testing.T) {
	r, found, err := load(256, 1, 0)
	if err != nil || !found {
		t.Fatal(found, err)
	}
	if got := simulate(t, Config{}, request(256, 1, 0)).done.Settings; !maps.Equal(got, r.meta.Settings) {
		t.Errorf("default settings\n%v, recorded\n%v", got, r.meta.Settings)
	}
	req := request(256, 1, 0)
	req.Env = map[string]string{"PYTORCH_ALLOC_CONF": "expandable_segments:True,max_split_size_mb:128,garbage_collection_threshold:0.6,roundup_power2_divisions:4"}
	got := simulate(t, Config{}, req).done.Settings
	for key, want := range map[string]string{"expandable_segments": "true", "max_split_size": "134217728", "garbage_collection_threshold": "0.6",
		"PYTORCH_CUDA_ALLOC_CONF": req.Env["PYTORCH_ALLOC_CONF"]} {
		if got[key] != want {
			t.Errorf("%s is %q, want %q", key, got[key], want)
		}
	}
	if !strings.Contains(got["roundup_power2_divisions"], `"512":4`) {
		t.Errorf("divisions %s", got["roundup_power2_divisions"])
	}
}

func TestWhatWasNotRecordedIsUnsupported(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*runner.Request)
		want   string
		bad    bool
	}{
		"length":         {func(r *runner.Request) { r.SeqLen = 32 }, "no recording of L32 B1 chunk 0: simulated agents answer for lengths 96 to", false},
		"workload":       {func(r *runner.Request) { r.Workload.Name = "my:model" }, "workload my:model was not recorded", false},
		"model":          {func(r *runner.Request) { r.Workload.Params["model"] = "esmfold_8b" }, "model=esmfold_8b was not recorded", false},
		"weights":        {func(r *runner.Request) { r.Workload.Params["weights"] = "/models/esmfold" }, "weights=/models/esmfold", false},
		"variable":       {func(r *runner.Request) { r.Env = map[string]string{"CUBLAS_WORKSPACE_CONFIG": ":16:8"} }, "effect of CUBLAS_WORKSPACE_CONFIG=:16:8 was not recorded", false},
		"variable there": {func(r *runner.Request) { r.SeqLen, r.Env = 384, map[string]string{"NVIDIA_TF32_OVERRIDE": "0"} }, "was not recorded for L384 B1", false},
		"backend": {func(r *runner.Request) {
			r.Env = map[string]string{"PYTORCH_CUDA_ALLOC_CONF": "backend:cudaMallocAsync"}
		}, "cannot be replayed", false},
		"bad key": {func(r *runner.Request) { r.Env = map[string]string{"PYTORCH_CUDA_ALLOC_CONF": "bogus:1"} }, "bogus", true},
		"two names": {func(r *runner.Request) {
			r.Env = map[string]string{"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True", "PYTORCH_ALLOC_CONF": ""}
		}, "different values", true},
		"two caps": {func(r *runner.Request) {
			r.QuotaBytes = 12 << 30
			r.Env = map[string]string{"PYTORCH_CUDA_ALLOC_CONF": "per_process_memory_fraction:0.05"}
		}, "a cap of its own", true},
	} {
		t.Run(name, func(t *testing.T) {
			req := request(256, 1, 0)
			c.change(&req)
			got := simulate(t, Config{}, req)
			if got.failed == nil || !strings.Contains(got.failed.Message, c.want) || got.failed.BadCell != c.bad || (got.failed.Exception == "Unsupported") == c.bad {
				t.Errorf("got %+v, want %q", got.failed, c.want)
			}
		})
	}
}

func TestQuotaBelowTheContext(t *testing.T) {
	req := request(256, 1, 0)
	req.QuotaKind, req.QuotaBytes = "device", 600<<20
	if got := simulate(t, Config{}, req); got.failed == nil || !strings.HasPrefix(got.failed.Message, "CUDA error: out of memory") {
		t.Errorf("got %+v", got.failed)
	}
	req.QuotaBytes = 640 << 20 // the context fits, its modules do not
	if got := simulate(t, Config{}, req); got.failed == nil || !strings.Contains(got.failed.Message, "Tried to allocate 2.00 MiB") || got.failed.Phase != "start" {
		t.Errorf("got %+v", got.failed)
	}
}

func TestSyntheticDriverMovesTheDeviceBoundaryOnly(t *testing.T) {
	cfg := Config{Driver: "999.1-synthetic", ContextOffset: 64 * proto.MiB}
	for kind, boundary := range map[string]int64{"allocator": 11_549_016_064, "device": 11_549_016_064 + 722_272_256} {
		for _, c := range []struct {
			cfg  Config
			move int64
		}{{Config{}, 0}, {cfg, map[string]int64{"device": 64 << 20}[kind]}} {
			req := request(384, 1, 0)
			req.QuotaKind = kind
			for quota, pass := range map[int64]bool{boundary + c.move: true, boundary + c.move - 2<<20: false} {
				req.QuotaBytes = quota
				if got := simulate(t, c.cfg, req); (got.done != nil) != pass {
					t.Errorf("%s quota %d on %q: passed %v, want %v", kind, quota, c.cfg.Driver, got.done != nil, pass)
				}
			}
		}
	}
}

func TestConfig(t *testing.T) {
	full := Config{Driver: "999.1-synthetic", ContextOffset: -64 * proto.MiB, Card: 3, Fault: "slow=/tmp/x", TestWorkloads: true,
		Deviations: Deviations{Seed: 9, Share: 0.25, Kinds: []DeviationKind{DeviateOrder, DeviateExtra}}}
	for _, c := range []Config{{}, full} {
		got, err := ParseFlags(c.Flags())
		if err != nil || fmt.Sprint(got) != fmt.Sprint(c) {
			t.Errorf("%+v became %+v, %v", c, got, err)
		}
	}
	if a, b := (Config{}).UUID(), (Config{Card: 1}).UUID(); a == b || !strings.HasPrefix(a, "SIM-") || a != (Config{Driver: Driver}).UUID() {
		t.Errorf("UUIDs %s and %s", a, b)
	}
	for args, want := range map[string]string{
		"--driver=580.1":            "ends in -synthetic",
		"--context-offset=1MiB":     "needs a driver",
		"--fault=sulk":              "is not one of hang",
		"--fault=slow":              "needs the path",
		"--fault=die=/tmp/x":        "takes no value",
		"--deviate=2":               "between 0 and 1",
		"--deviate-kinds=whimsical": "is not one of adaptive",
		"--context-offset=lots":     "context-offset",
		"surplus":                   "unexpected argument",
		"--driver=x-synthetic --context-offset=99GiB": "between -512 MiB and 16 GiB",
	} {
		if _, err := ParseFlags(strings.Fields(args)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", args, err, want)
		}
	}
}

// TestCheck: a card passes its check on any driver, and not while it is broken.
func TestCheck(t *testing.T) {
	here := t.TempDir()
	for name, c := range map[string]struct {
		cfg  Config
		want string // the refusal, empty for a pass
	}{
		"well":        {Config{}, ""},
		"synthetic":   {Config{Driver: "1-synthetic", ContextOffset: proto.GiB, TestWorkloads: true}, ""},
		"broken":      {Config{Fault: FaultBroken}, "uncorrectable ECC error"},
		"broken now":  {Config{Fault: Fault("broken=" + here)}, "uncorrectable ECC error"},
		"well by now": {Config{Fault: Fault("broken=" + here + "/gone")}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			for _, workload := range []string{runner.WorkloadCheck, "esmfold"} {
				req := request(256, 1, 0)
				req.Workload.Name = workload
				got := simulate(t, c.cfg, req)
				switch {
				case c.want == "" && (got.done == nil || !*got.done.OutputFinite):
					t.Errorf("%s: %+v", workload, got.failed)
				case c.want != "" && (got.failed == nil || !strings.Contains(got.failed.Message, c.want) || got.failed.BadCell):
					t.Errorf("%s: %+v", workload, got.failed)
				}
			}
		})
	}
}

package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/oomfleet/oomfleet/allocator"
)

const (
	runsFile = "../../agent/sim/testdata/esmfold_h200_runs.jsonl"
	traceDir = "../../agent/sim/traces"
)

// realRun is one line of the runs file: a run of the real model on a real GPU.
type realRun struct {
	Model     string            `json:"model"`
	SeqLen    int               `json:"seq_len"`
	Batch     int               `json:"batch"`
	ChunkSize int               `json:"chunk_size"`
	Stem      string            `json:"stem"`
	Trunk     string            `json:"trunk"`
	Env       map[string]string `json:"env"`
	CapKind   string            `json:"cap_kind"`
	CapBytes  int64             `json:"cap_bytes"`
	Outcome   string            `json:"outcome"`
	Allocated int64             `json:"peak_allocated_bytes"`
	Reserved  int64             `json:"peak_reserved_bytes"`
	Retries   int               `json:"num_alloc_retries"`
}

func (r realRun) trace() string {
	name := fmt.Sprintf("L%d_B%d", r.SeqLen, r.Batch)
	if r.ChunkSize > 0 {
		name += fmt.Sprintf("_c%d", r.ChunkSize)
	}
	return filepath.Join(traceDir, name+".parquet")
}

func readRealRuns(t *testing.T) []realRun {
	t.Helper()
	f, err := os.Open(runsFile)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var out []realRun
	for s := bufio.NewScanner(f); s.Scan(); {
		var r realRun
		if err := json.Unmarshal(s.Bytes(), &r); err != nil {
			t.Fatal(err)
		}
		out = append(out, r)
	}
	return out
}

// fleetctl runs one command line in this process.
func fleetctl(t *testing.T, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	var out, errs bytes.Buffer
	code = run(t.Context(), args, streams{in: strings.NewReader(""), out: &out, err: &errs})
	return out.String(), errs.String(), code
}

// leftOut says why a row is not compared by trace replay; empty for the others.
func (r realRun) leftOut() string {
	switch {
	case r.Model != "esmfold_v1" || r.Stem != "bfloat16" || r.Trunk != "float32":
		return "another program than the traces'"
	case r.Outcome == "error":
		return "the run never started: its settings were refused"
	case r.CapKind == "none" && r.Reserved > 130<<30:
		return "no cap: it met the physical end of the card"
	}
	for name := range r.Env {
		if name != "PYTORCH_CUDA_ALLOC_CONF" && name != "PYTORCH_ALLOC_CONF" {
			return name + " changes the program"
		}
	}
	if strings.Contains(r.Env["PYTORCH_CUDA_ALLOC_CONF"], "per_process_memory_fraction") {
		return "per_process_memory_fraction is a cap of its own"
	}
	if _, err := os.Stat(r.trace()); err != nil {
		return "no trace of its cell"
	}
	return ""
}

func (r realRun) args() []string {
	args := []string{"trace", "replay", r.trace(), "--json"}
	if r.CapKind != "none" {
		args = append(args, "--cap", fmt.Sprint(r.CapBytes), "--cap-kind", r.CapKind)
	}
	for name, value := range r.Env {
		args = append(args, "--env", name+"="+value)
	}
	return args
}

// TestReplayAgreesWithEveryRealRun runs the command over the whole file of real
// runs. Allocator-capped and uncapped rows must agree in outcome, in both peaks
// where they passed, and in retries; device and process rows in outcome, or be
// undetermined. Rows that are left out are listed with their reason.
func TestReplayAgreesWithEveryRealRun(t *testing.T) {
	compared := map[string]int{}
	var skipped []string
	for i, r := range readRealRuns(t) {
		if reason := r.leftOut(); reason != "" {
			skipped = append(skipped, fmt.Sprintf("row %d (L%d B%d c%d %s %v): %s", i+1, r.SeqLen, r.Batch, r.ChunkSize, r.CapKind, r.Env, reason))
			continue
		}
		compared[r.CapKind]++
		stdout, stderr, code := fleetctl(t, r.args()...)
		if code != 0 {
			t.Fatalf("row %d: exit %d: %s", i+1, code, stderr)
		}
		var d replayDocument
		if err := json.Unmarshal([]byte(stdout), &d); err != nil {
			t.Fatalf("row %d: %v", i+1, err)
		}
		if d.SelfCheck != 0 {
			t.Errorf("row %d: %d mismatches", i+1, d.SelfCheck)
		}
		if r.CapKind == "device" || r.CapKind == "process" {
			if d.Outcome != r.Outcome && d.Outcome != "undetermined" {
				t.Errorf("row %d %+v: replay says %s", i+1, r, d.Outcome)
			}
			continue
		}
		if d.Outcome != r.Outcome || d.Retries != r.Retries || r.Outcome == "ok" && (d.PeakRes != r.Reserved || d.PeakAlloc != r.Allocated) {
			t.Errorf("row %d %+v: replay says %+v", i+1, r, d)
		}
	}
	slices.Sort(skipped)
	t.Logf("compared %v; left out %d rows:\n%s", compared, len(skipped), strings.Join(skipped, "\n"))
	if compared["allocator"] < 24 || compared["device"] != 6 || compared["process"] != 5 {
		t.Errorf("compared only %v", compared)
	}
}

// TestReplayRefusesWhatItCannotKnow: wrong questions exit with 2 and one
// sentence that names what is wrong.
func TestReplayRefusesWhatItCannotKnow(t *testing.T) {
	l384 := traceDir + "/L384_B1.parquet"
	broken := filepath.Join(t.TempDir(), "broken.parquet")
	if err := os.WriteFile(broken, []byte("PAR1 not a trace PAR1"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		args []string
		says string
	}{
		"another variable":   {[]string{l384, "--env", "NVIDIA_TF32_OVERRIDE=0"}, "NVIDIA_TF32_OVERRIDE"},
		"both names":         {[]string{l384, "--env", "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True", "--env", "PYTORCH_ALLOC_CONF=expandable_segments:False"}, "different values"},
		"same name twice":    {[]string{l384, "--env", "PYTORCH_ALLOC_CONF=expandable_segments:True", "--env", "PYTORCH_ALLOC_CONF=expandable_segments:False"}, "twice"},
		"bad setting":        {[]string{l384, "--env", "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:true"}, "True or False"},
		"other backend":      {[]string{l384, "--env", "PYTORCH_CUDA_ALLOC_CONF=backend:cudaMallocAsync"}, "cudaMallocAsync"},
		"decimal unit":       {[]string{l384, "--cap", "11GB"}, "MiB or GiB"},
		"no cap":             {[]string{l384, "--cap", "0"}, "more than 0"},
		"cap without a unit": {[]string{l384, "--cap", "11012"}, "11012 bytes, less than any run takes: amounts are bytes, or a number with MiB or GiB"},
		"unknown kind":       {[]string{l384, "--cap-kind", "gpu"}, "allocator, process, device"},
		"no such file":       {[]string{"nowhere.parquet"}, "nowhere.parquet"},
		"a digest":           {[]string{strings.Repeat("a", 64)}, "fleetctl trace get"},
		"setting first":      {[]string{"nowhere.parquet", "--env", "PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:12"}, "at least 20"},
		"not a trace":        {[]string{broken}, "broken.parquet"},
		"no file":            {nil, "usage"},
		"unknown flag":       {[]string{l384, "--quota", "1"}, "--quota"},
		"env without equals": {[]string{l384, "--env", "X"}, "KEY=VALUE"},
	} {
		t.Run(name, func(t *testing.T) {
			stdout, stderr, code := fleetctl(t, append([]string{"trace", "replay"}, c.args...)...)
			if code != exitUsage || stdout != "" || !strings.Contains(stderr, c.says) {
				t.Errorf("exit %d, stdout %q, stderr %q; want exit 2 and a sentence with %q", code, stdout, stderr, c.says)
			}
		})
	}
}

// TestBoundaryOfTheContract: the example that the contract gives.
func TestBoundaryOfTheContract(t *testing.T) {
	stdout, stderr, code := fleetctl(t, "trace", "boundary", traceDir+"/L512_B1_c64.parquet", "--json")
	if code != 0 {
		t.Fatal(stderr)
	}
	var d boundaryDocument
	if err := json.Unmarshal([]byte(stdout), &d); err != nil {
		t.Fatal(err)
	}
	const MiB = 1 << 20
	if d.Boundary.Boundary != 10662*MiB || d.LowestPass != 10464*MiB || len(d.FailBands) != 1 ||
		d.FailBands[0].From != 10652*MiB || d.FailBands[0].To != 10660*MiB || !d.BandsKnown {
		t.Errorf("got %s", stdout)
	}
}

// TestBoundaryBeyondTheCard: where the card of the recording is too small, the
// boundary is the smallest quota all the same.
func TestBoundaryBeyondTheCard(t *testing.T) {
	r, err := openReplay("../../agent/sim/traces/L384_B1.parquet", replayFlags{capKind: "allocator", env: []string{"PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:128"}})
	if err != nil {
		t.Fatal(err)
	}
	want, _, err := r.boundary(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	r.total = 8 << 30
	got, _, err := r.boundary(t.Context())
	if err != nil || got.Boundary.Boundary != want.Boundary.Boundary || got.NoRetry != want.NoRetry || int64(got.Boundary.Boundary) <= r.total {
		t.Errorf("on a small card %+v, %v; want %+v", got, err, want)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := r.boundary(ctx); !errors.Is(err, allocator.ErrStopped) {
		t.Errorf("stopped: %v", err)
	}
}

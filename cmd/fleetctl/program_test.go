package main

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/oomfleet/oomfleet/proto"
)

func traceFile(seqLen, chunk int) string {
	name := fmt.Sprintf("L%d_B1", seqLen)
	if chunk > 0 {
		name += fmt.Sprintf("_c%d", chunk)
	}
	return filepath.Join(traceDir, name+".parquet")
}

// document runs a command with --json and decodes its answer.
func document(t *testing.T, into any, args ...string) {
	t.Helper()
	stdout, stderr, code := fleetctl(t, append(args, "--json")...)
	if code != 0 {
		t.Fatalf("%v: exit %d: %s", args, code, stderr)
	}
	if err := json.Unmarshal([]byte(stdout), into); err != nil {
		t.Fatalf("%v: %v in %s", args, err, stdout)
	}
}

// TestProgramsPredictLongerRuns: a few short recordings say what longer runs
// need, held against those runs' own traces: peaks and boundary.
func TestProgramsPredictLongerRuns(t *testing.T) {
	const MiB = 1 << 20
	for _, c := range []struct {
		chunk       int
		from, to    []int
		reservedRel float64
	}{
		{0, []int{128, 192, 256, 320}, []int{384, 448, 640}, 0.002},
		{64, []int{384, 512, 640}, []int{768}, 0.005},
	} {
		file := filepath.Join(t.TempDir(), "esmfold.program")
		args := []string{"program", "build", "-o", file}
		for _, l := range c.from {
			args = append(args, traceFile(l, c.chunk))
		}
		if _, stderr, code := fleetctl(t, args...); code != 0 {
			t.Fatalf("build: exit %d: %s", code, stderr)
		}
		for _, l := range c.to {
			var got predictionDocument
			document(t, &got, "program", "predict", file, "--seq-len", fmt.Sprint(l), "--chunk-size", fmt.Sprint(c.chunk))
			var own boundaryDocument
			document(t, &own, "trace", "boundary", traceFile(l, c.chunk))
			var run replayDocument
			document(t, &run, "trace", "replay", traceFile(l, c.chunk))
			t.Logf("L%d c%d: boundary %v, own trace's %v; reserved %d, own %d; %s", l, c.chunk, got.Boundary.Boundary, own.Boundary.Boundary, got.PeakReserved, run.PeakRes, got.Tested)
			if d := got.Boundary.Boundary - own.Boundary.Boundary; d < -24*MiB || d > 24*MiB {
				t.Errorf("L%d c%d: boundary off by %v", l, c.chunk, d)
			}
			if rel := float64(got.PeakReserved-run.PeakRes) / float64(run.PeakRes); rel < -c.reservedRel || rel > c.reservedRel {
				t.Errorf("L%d c%d: reserved off by %.4f", l, c.chunk, rel)
			}
			if got.PeakAllocated != run.PeakAlloc || !got.InDomain || got.Tested == "" {
				t.Errorf("L%d c%d: allocated %d, own %d; in domain %v, tested %q", l, c.chunk, got.PeakAllocated, run.PeakAlloc, got.InDomain, got.Tested)
			}
		}
	}
}

func TestProgramRefusesWhatItCannotKnow(t *testing.T) {
	file := filepath.Join(t.TempDir(), "p.program")
	build := []string{"program", "build", "-o", file}
	for _, l := range []int{128, 192, 256, 320} {
		build = append(build, traceFile(l, 0))
	}
	if _, stderr, code := fleetctl(t, build...); code != 0 {
		t.Fatal(stderr)
	}
	other := "../../allocator/testdata/other/"
	for name, c := range map[string]struct {
		args []string
		says string
	}{
		"below the domain":    {[]string{"program", "predict", file, "--seq-len", "32"}, "not within"},
		"another chunk size":  {[]string{"program", "predict", file, "--seq-len", "320", "--chunk-size", "64"}, "chunk sizes"},
		"another batch":       {[]string{"program", "predict", file, "--seq-len", "320", "--batch", "2"}, "batch"},
		"negative batch":      {[]string{"program", "predict", file, "--seq-len", "320", "--batch", "-1"}, "at least 1"},
		"no length":           {[]string{"program", "predict", file}, "seq-len"},
		"not a program":       {[]string{"program", "predict", traceFile(128, 0), "--seq-len", "320"}, "not a program"},
		"too few":             {[]string{"program", "build", traceFile(128, 0), "-o", file + "x"}, "too few"},
		"no output":           {[]string{"program", "build", traceFile(128, 0)}, "-o"},
		"another variable":    {[]string{"program", "predict", file, "--seq-len", "320", "--env", "X=1"}, "X is not a variable"},
		"different sequences": {[]string{"program", "build", other + "resnet_train_L224_B16.parquet", other + "resnet_train_L224_B8.parquet", "-o", file + "x"}, "different things"},
		"two workloads":       {[]string{"program", "build", traceFile(128, 0), other + "llama_L256_B1.parquet", "-o", file + "x"}, "llama_L256_B1.parquet\n    ("},
		"endless file":        {[]string{"program", "predict", "/dev/zero", "--seq-len", "320"}, "larger than 16 MiB"},
		"one odd file":        {append(slices.Clone(build), strings.Replace(traceFile(256, 0), "B1", "B2", 1)), "build from them:\n  L128_B1.parquet L192_B1.parquet L256_B1.parquet L320_B1.parquet"},
		"what is missing":     {append(slices.Clone(build), traceFile(512, 64)), "no program, leave them out or record what they lack:\n  L512_B1_c64.parquet\n"},
	} {
		t.Run(name, func(t *testing.T) {
			stdout, stderr, code := fleetctl(t, c.args...)
			if code != exitUsage || stdout != "" || !strings.Contains(stderr, c.says) {
				t.Errorf("exit %d, stdout %q, stderr %q; want a sentence with %q", code, stdout, stderr, c.says)
			}
		})
	}
}

// TestWhatIfRefusesFirst: a wrong setting is refused before the trace is opened.
func TestWhatIfRefusesFirst(t *testing.T) {
	stdout, stderr, code := fleetctl(t, "trace", "what-if", "nowhere.parquet", "--setting", "max_split_size_mb:12")
	if code != exitUsage || stdout != "" || !strings.Contains(stderr, "at least 20") {
		t.Errorf("exit %d, stdout %q, stderr %q", code, stdout, stderr)
	}
}

// TestWhatIfOrdersSettingsAndWarns: best first, and the article's pair of
// settings comes with its warning.
func TestWhatIfOrdersSettingsAndWarns(t *testing.T) {
	var d struct{ Settings []whatIfRow }
	document(t, &d, "trace", "what-if", traceFile(384, 0))
	if len(d.Settings) != len(candidates()) || d.Settings[0].Setting != "expandable_segments:True" || d.Settings[0].Boundary.Boundary != 10602<<20 {
		t.Fatalf("got %+v", d.Settings)
	}
	for i, r := range d.Settings {
		if i > 0 && r.Boundary.Boundary < d.Settings[i-1].Boundary.Boundary {
			t.Errorf("row %d is out of order", i)
		}
		if mapped := r.MappedUpTo > 0; mapped != strings.Contains(r.Warning, "mapped up to") || mapped && r.Boundary.Boundary > proto.Bytes(r.MappedUpTo) {
			t.Errorf("%s: mapped up to %d, %q", r.Setting, r.MappedUpTo, r.Warning)
		}
		if both := r.Setting == "expandable_segments:True,max_split_size_mb:128"; both != strings.Contains(r.Warning, "whatever quota") {
			t.Errorf("%s: warning %q", r.Setting, r.Warning)
		}
	}
}

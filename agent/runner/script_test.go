package runner

import (
	"cmp"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// TestWorkloadsLieInTheirFolder: a matrix names a function, and none of the
// interpreter's own can be had. PYTHON names the interpreter, python3 when it is
// not set; torch is not needed.
func TestWorkloadsLieInTheirFolder(t *testing.T) {
	dir, folder := t.TempDir(), t.TempDir()
	write := func(path, text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(filepath.Join(dir, "runner.py"), Script())
	write(filepath.Join(folder, "mine.py"), "from os import system\nfrom shutil import rmtree\ndef fold(run): return 1\n")
	write(filepath.Join(folder, "pack", "__init__.py"), "")
	write(filepath.Join(folder, "pack", "deep.py"), "def fold(run): return 1\n")
	write(filepath.Join(folder, "sys.py"), "def exit(run): return 1\n") // the interpreter has its own, and takes that
	for name, c := range map[string]struct {
		folder string
		ok     bool
	}{
		"mine:fold": {folder, true}, "pack.deep:fold": {folder, true},
		"mine:system": {folder, false}, "mine:rmtree": {folder, false}, "os:system": {folder, false}, "subprocess:getoutput": {folder, false},
		"builtins:exec": {folder, false}, "shutil:rmtree": {folder, false}, "sys:exit": {folder, false}, "runner:main": {folder, false},
		"..mine:fold": {folder, false}, "pack.missing:fold": {folder, false}, "mine:missing": {folder, false}, "mine:__builtins__": {folder, false},
		"antigravity:fold": {"", false},
	} {
		t.Run(name, func(t *testing.T) {
			cmd := exec.Command(cmp.Or(os.Getenv("PYTHON"), "python3"), "-c",
				"import runner, sys\ntry: runner.own_workload(sys.argv[1])\nexcept Exception as e: print('refused', e)\nelse: print('taken')", name)
			cmd.Env = append(os.Environ(), "PYTHONPATH="+folder+":"+dir, "OOMFLEET_WORKLOADS="+c.folder)
			out, err := cmd.CombinedOutput()
			if err != nil || strings.HasPrefix(string(out), "taken") != c.ok {
				t.Errorf("%s, %v", out, err)
			}
		})
	}
}

// TestCapFraction: torch truncates fraction * total to whole bytes, and takes
// no fraction above 1.
func TestCapFraction(t *testing.T) {
	const total = 150109880320 // an H200, as torch reports it; NVML says 143,771 MiB
	for quota, want := range map[int64]int64{
		2 << 20: 2 << 20, 11_014 << 20: 11_014 << 20, total - 1: total - 1, total: total, total + 1: total, 143_771 << 20: total,
	} {
		got := python(t, map[string]string{"ask.py": "import runner, sys\nquota, total = map(int, sys.argv[1:])\n" +
			"fraction = runner.cap_fraction(quota, total)\nassert 0 < fraction <= 1\nprint(int(fraction * total))\n"},
			strconv.FormatInt(quota, 10), strconv.Itoa(total))
		if got != strconv.FormatInt(want, 10) {
			t.Errorf("a quota of %d becomes %s, want %d", quota, got, want)
		}
	}
}

// TestOwnWorkloadMayTrain: gradients are off for ESMFold alone. Torch is a
// stand-in here; probetest's TestRealProber trains with the real one.
func TestOwnWorkloadMayTrain(t *testing.T) {
	files := map[string]string{
		"mine.py": "def train(run): return run.torch.no_grad.called\n",
		"ask.py": `import runner, sys
from unittest.mock import MagicMock
run = MagicMock()
run.torch = torch = MagicMock()
runner.run_esmfold = lambda run, torch: torch.no_grad.called
print(runner.workload_of(sys.argv[1])(run, torch))
`,
	}
	for name, want := range map[string]string{"esmfold": "True", "mine:train": "False"} {
		if got := python(t, files, name); got != want {
			t.Errorf("%s: gradients are off: %s, want %s", name, got, want)
		}
	}
}

// TestCheckWorkload sends the built-in check through a whole run of the script.
// Torch is a stand-in that multiplies nothing and gives what the card is said to
// give; probetest's TestRealProber makes the same check with the real one.
func TestCheckWorkload(t *testing.T) {
	files := map[string]string{
		"torch.py": `import os
from types import SimpleNamespace as Namespace
from unittest.mock import MagicMock

WRONG = int(os.environ["STAND_IN_WRONG"])
class Bool:
    def __init__(self, wrong): self.wrong = wrong
    def sum(self): return self.wrong
class Product:
    def __init__(self, value): self.value = value
    def __ne__(self, other):
        assert other == self.value, (other, self.value)
        return Bool(WRONG)
    def is_floating_point(self): return True
    def detach(self): return self
    def cpu(self): return self
class Ones:
    def __init__(self, rows, columns): self.rows, self.columns = rows, columns
    def __matmul__(self, other):
        if WRONG < 0: raise RuntimeError("CUDA error: uncorrectable ECC error encountered")
        return Product(self.columns)
float32 = "float32"
def ones(rows, columns, device, dtype):
    assert device == "cuda:0" and dtype == float32
    return Ones(rows, columns)
def zeros(n, device): assert n == 0 and device == "cuda:0"
def isfinite(product): return Namespace(all=lambda: True)
cuda = Namespace(is_available=lambda: True, is_initialized=lambda: True, init=lambda: None, synchronize=lambda: None,
                 memory_stats=lambda: {"allocated_bytes.all.peak": 7}, get_allocator_backend=lambda: "native",
                 memory=Namespace(_snapshot=lambda: {}))
`,
		"ask.py": `import os, sys
os.environ["OOMFLEET_EVENTS_FD"], os.environ["STAND_IN_WRONG"] = "1", sys.argv[2]
import runner
pid = os.fork()
if pid == 0:
    runner.child({"id": "check.0.1", "workload": {"name": sys.argv[1]}, "seq_len": 1, "batch": 1, "quota_kind": "allocator", "quota_bytes": 0,
                  "record": False}, None)
assert os.waitpid(pid, 0)[1] >> 8 == (0 if sys.argv[2] == "0" else 1)
`}
	for wrong, want := range map[string]string{"0": "", "3": "3 of 4194304 numbers came out wrong", "-1": "CUDA error: uncorrectable ECC error encountered"} {
		events := NewEvents(strings.NewReader(python(t, files, WorkloadCheck, wrong) + "\n"))
		var last Event
		for {
			e, err := events.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			last = e
		}
		switch e := last.(type) {
		case *Done:
			if want != "" || e.OutputFinite == nil || !*e.OutputFinite || e.Meters.PeakAllocated == nil {
				t.Errorf("%s numbers are wrong: it passed, %+v", wrong, e)
			}
		case *Failed:
			if want == "" || e.Exception != "RuntimeError" || e.Message != want || e.Phase != "forward" || e.BadCell {
				t.Errorf("%s numbers are wrong: %+v", wrong, e)
			}
		default:
			t.Errorf("the last event is %T", last)
		}
	}
}

// python runs ask.py of these files beside the runner and returns what it
// prints. PYTHON names the interpreter, python3 when it is not set.
func python(t *testing.T, files map[string]string, args ...string) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "runner.py"), []byte(Script()), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	out, err := exec.Command(cmp.Or(os.Getenv("PYTHON"), "python3"), append([]string{filepath.Join(dir, "ask.py")}, args...)...).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return strings.TrimSpace(string(out))
}

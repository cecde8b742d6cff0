package runner

import (
	"cmp"
	"os"
	"os/exec"
	"path/filepath"
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

// TestOwnWorkloadMayTrain: gradients are off for ESMFold alone. Torch is a
// stand-in here; probetest's TestRealProber trains with the real one.
func TestOwnWorkloadMayTrain(t *testing.T) {
	dir := t.TempDir()
	for path, text := range map[string]string{
		"runner.py": Script(),
		"mine.py":   "def train(run): return run.torch.no_grad.called\n",
		"ask.py": `import runner, sys
from unittest.mock import MagicMock
run = MagicMock()
run.torch = torch = MagicMock()
runner.run_esmfold = lambda run, torch: torch.no_grad.called
print(runner.workload_of(sys.argv[1])(run, torch))
`,
	} {
		if err := os.WriteFile(filepath.Join(dir, path), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, want := range map[string]string{"esmfold": "True", "mine:train": "False"} {
		cmd := exec.Command(cmp.Or(os.Getenv("PYTHON"), "python3"), filepath.Join(dir, "ask.py"), name)
		if out, err := cmd.CombinedOutput(); err != nil || strings.TrimSpace(string(out)) != want {
			t.Errorf("%s: gradients are off: %s, %v; want %s", name, out, err, want)
		}
	}
}

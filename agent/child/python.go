package child

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/oomfleet/oomfleet/agent/runner"
)

// PythonCommand writes the embedded runner into folder (which must exist) and
// returns the command that runs it with the interpreter. Its error is one
// sentence for the operator.
func PythonCommand(interpreter, folder string) ([]string, error) {
	path, err := exec.LookPath(interpreter)
	if err != nil {
		return nil, fmt.Errorf("%s not found: install it or name another interpreter with --python", interpreter)
	}
	file := filepath.Join(folder, "runner.py")
	// Written aside and renamed: a runner of an older agent may be reading it.
	next := file + ".new"
	if err := os.WriteFile(next, []byte(runner.Script()), 0o644); err != nil {
		return nil, fmt.Errorf("write the runner: %w", err)
	}
	if err := os.Rename(next, file); err != nil {
		return nil, fmt.Errorf("write the runner: %w", err)
	}
	return []string{path, "-u", file}, nil
}

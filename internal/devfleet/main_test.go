package devfleet

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// patience bounds every wait of these tests; a fleet that needs it is broken,
// even on a machine that is busy with something else.
const patience = 5 * time.Minute

// Most of these tests wait for processes most of the time, so they share the
// machine: each has a fleet, a program file and folders of its own. Those that
// time something or set a variable of this process run alone.

// built is the folder with the fleetctl that all tests run. It is built here
// once: what is killed is what is shipped.
var built string

func TestMain(m *testing.M) {
	if node := os.Getenv(raftAlone); node != "" {
		if err := runRaftAlone(node); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(func() int {
		var err error
		if built, err = os.MkdirTemp("", "oomfleet-e2e-"); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer os.RemoveAll(built)
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
		defer cancel()
		args, cgo := []string{"build", "-o", filepath.Join(built, "fleetctl")}, "CGO_ENABLED=0"
		if underRace() {
			args, cgo = append(args, "-race"), "CGO_ENABLED=1"
			os.Setenv("GORACE", os.Getenv("GORACE")+" log_path="+raceFiles()) // of children: ours is running
		}
		build := exec.CommandContext(ctx, "go", append(args, "../../cmd/fleetctl")...)
		build.Env = append(os.Environ(), cgo)
		if out, err := build.CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "build fleetctl: %v\n%s", err, out)
			return 1
		}
		code := m.Run()
		for _, report := range newRaces() {
			fmt.Fprintf(os.Stderr, "a process has a data race:\n%s", report)
			code = 1
		}
		if err := goleak.Find(); err != nil && code == 0 {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
		return code
	}())
}

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
const patience = 3 * time.Minute

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
		build := exec.CommandContext(ctx, "go", "build", "-o", filepath.Join(built, "fleetctl"), "../../cmd/fleetctl")
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := build.CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "build fleetctl: %v\n%s", err, out)
			return 1
		}
		code := m.Run()
		if err := goleak.Find(); err != nil && code == 0 {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
		return code
	}())
}

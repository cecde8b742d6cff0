package agent_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/oomfleet/oomfleet/proto"
)

// TestWorkFolderInUse: of two agents on one folder the second does not start, and
// the first one's work is not touched; when the first has ended, the folder is free.
func TestWorkFolderInUse(t *testing.T) {
	inFleet(t, func(f *fleet) {
		a := f.start(f.deps())
		<-a.Ready()
		half := filepath.Join(f.workDir, "outbox", ".part-of-the-first")
		if err := os.WriteFile(half, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		err := f.agent(f.deps()).Run(t.Context())
		if err == nil || !strings.Contains(err.Error(), f.workDir+" is in use by another agent") || !strings.Contains(err.Error(), "--work-dir") {
			t.Errorf("the second agent ends with %v", err)
		}
		if _, err := os.Stat(half); err != nil {
			t.Errorf("the second agent tidied what the first one writes: %v", err)
		}
		f.publish(f.task(1, proto.TaskProbe))
		f.report()
		a.stop()

		b := f.start(f.deps())
		f.publish(f.task(2, proto.TaskProbe))
		f.report() // what delivers it has tidied first
		if _, err := os.Stat(half); err == nil {
			t.Error("the next agent leaves half written files")
		}
		b.stop()
	})
}

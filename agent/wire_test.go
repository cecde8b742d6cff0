package agent_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/oomfleet/oomfleet/internal/wiretest"
	"github.com/oomfleet/oomfleet/proto"
)

var _ = wiretest.Flag()

// TestWireOutbox: what an agent of every version left in its outbox, a result
// and a trace file, is delivered by today's.
func TestWireOutbox(t *testing.T) {
	if wiretest.Rewriting() {
		inFleet(t, func(f *fleet) { leaveBehind(f) })
	}
	for _, folder := range wiretest.Versions(t) {
		t.Run(filepath.Base(folder), func(t *testing.T) {
			inFleet(t, func(f *fleet) {
				box := filepath.Join(f.workDir, "outbox")
				if err := os.CopyFS(box, os.DirFS(filepath.Join(folder, "outbox"))); err != nil {
					t.Fatal(err)
				}
				a := f.start(f.deps())
				r := f.report()
				task := f.task(1, proto.TaskRecord)
				if r.Task != task.ID || r.Fence != 7 || r.Outcome != proto.OutcomePass || r.Evidence.Trace == nil || r.Evidence.Seconds != 42 {
					t.Errorf("result %+v", r)
				}
				f.rest()
				events, meta, err := f.store.GetTrace(t.Context(), r.Evidence.Trace.Digest)
				if err != nil || len(events) != len(recording()) || meta.Cell.ID() != task.CellID || meta.PeakReserved != 3*proto.GiB {
					t.Errorf("%d events, %+v, %v", len(events), meta, err)
				}
				a.stop()
				if left := f.outbox(); len(left) != 0 {
					t.Errorf("left: %v", left)
				}
			})
		})
	}
}

// leaveBehind makes the newest version's outbox: that of an agent that ended
// while its queue took nothing.
func leaveBehind(f *fleet) {
	f.failing(func(op string) error {
		if op == "report" {
			return errors.New("the queue is away")
		}
		return nil
	})
	a := f.start(f.deps())
	f.publish(f.task(1, proto.TaskRecord))
	f.rest()
	a.stop()
	versions := wiretest.Versions(f.T)
	into := filepath.Join(versions[len(versions)-1], "outbox")
	if err := os.RemoveAll(into); err != nil {
		f.Fatal(err)
	}
	if err := os.CopyFS(into, os.DirFS(filepath.Join(f.workDir, "outbox"))); err != nil {
		f.Fatal(err)
	}
}

// TestBadParcelsAreBounded: of what cannot be read the newest is kept for a
// person, and no more than that.
func TestBadParcelsAreBounded(t *testing.T) {
	inFleet(t, func(f *fleet) {
		box := filepath.Join(f.workDir, "outbox")
		if err := os.MkdirAll(box, 0o700); err != nil {
			t.Fatal(err)
		}
		for i := range 50 {
			if err := os.WriteFile(filepath.Join(box, fmt.Sprintf("s-x-%d.json", i)), []byte("no result"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		a := f.start(f.deps())
		f.rest()
		if left := f.outbox(); len(left) != 32 || !strings.HasSuffix(left[0], ".bad") {
			t.Errorf("%d files: %v", len(left), left)
		}
		a.stop()
	})
}

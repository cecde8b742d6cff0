package coordinator

import (
	"bytes"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/oomfleet/oomfleet/queue/memq"
	"github.com/oomfleet/oomfleet/storage/registry"
)

// TestTermLeavesItsJobs: a term ends although its jobs cannot be broken off, and
// says so; those of the next one do not take their room before they have ended.
func TestTermLeavesItsJobs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, err := memq.New(memq.Config{})
		if err != nil {
			t.Fatal(err)
		}
		var log bytes.Buffer
		c, err := New(Config{ReplayWorkers: 1}, Deps{Registry: newReplicaOfOne(), Queue: q, Traces: &recordings{}, Log: slog.New(slog.NewTextHandler(&log, nil))})
		if err != nil {
			t.Fatal(err)
		}
		release := make(chan struct{})
		hang := func() error { <-release; return nil }
		d := newDuty(c)
		d.replays.start(registry.Key{Cell: "a"}, hang)
		d.builds.start(registry.FamilyKey{Family: "a"}, hang)
		began := time.Now() // the bubble's
		if d.part(); time.Since(began) != parting || !strings.Contains(log.String(), "cannot be broken off") {
			t.Errorf("parted after %v: %s", time.Since(began), log.String())
		}
		next := newDuty(c)
		var ran atomic.Bool
		next.replays.start(registry.Key{Cell: "a"}, func() error { ran.Store(true); return nil })
		if synctest.Wait(); ran.Load() {
			t.Error("a job began beside those that were left behind")
		}
		close(release)
		began = time.Now()
		if next.part(); time.Since(began) != 0 || !ran.Load() {
			t.Errorf("parted after %v, the job ran: %v", time.Since(began), ran.Load())
		}
	})
}

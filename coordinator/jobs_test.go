package coordinator

import (
	"bytes"
	"errors"
	"log/slog"
	"slices"
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

// TestFailuresRest: what fails is tried again at the next audit, and less and less
// often as it goes on; once it has not failed, it is as at first.
func TestFailuresRest(t *testing.T) {
	j := newJobs[string](1, nil)
	try := func(err error) bool {
		began := j.start("a", func() error { return err })
		if began {
			j.finished(<-j.done)
		}
		return began
	}
	down := errors.New("the store is full")
	var at []int
	for audit := range 42 {
		j.again()
		if try(down) {
			at = append(at, audit)
		}
		if try(down) {
			t.Fatalf("tried twice within audit %d", audit)
		}
	}
	if want := []int{0, 1, 2, 4, 8, 16, 28, 40}; !slices.Equal(at, want) {
		t.Errorf("tried at audits %v, want %v", at, want)
	}
	for range mostTurns {
		j.again()
	}
	if !try(nil) || !try(down) || try(down) {
		t.Error("what has not failed rests, or what has failed does not")
	}
	if j.again(); !try(down) {
		t.Error("after a success the first failure is not tried again at the next audit")
	}
	<-j.ended()
}

package raftnode

import (
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/oomfleet/oomfleet/storage/registry"
)

// TestHashesAreLate: who asks for the hash of a large state does not wait for it
// longer than it may; it is taken once, is there the next time, and is then taken
// anew.
func TestHashesAreLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		taken := 0
		h := &hashes{sum: func(v registry.View) string {
			taken++ // by one at a time
			<-time.After(3 * time.Second)
			return fmt.Sprint("hash of ", v.AppliedIndex, ", ", taken)
		}}
		ask := func(index uint64, within time.Duration) string {
			return h.of(t.Context(), registry.View{AppliedIndex: index}, within)
		}
		began := time.Now() // the bubble's
		for range 2 {
			if got := ask(7, time.Second); got != "" {
				t.Errorf("too soon: %q", got)
			}
		}
		<-time.After(2 * time.Second)
		if got := ask(7, time.Second); got != "hash of 7, 1" || time.Since(began) != 4*time.Second {
			t.Errorf("%q after %v", got, time.Since(began))
		}
		if got := ask(7, time.Minute); got != "hash of 7, 2" { // memory may have changed since
			t.Errorf("once more: %q", got)
		}
		if got := ask(8, time.Second); got != "" {
			t.Errorf("another state, too soon: %q", got)
		}
		if got := ask(9, time.Minute); got != "hash of 9, 4" { // behind the one of 8
			t.Errorf("one that waits: %q", got)
		}
	})
}

// TestLargeStatesAnswer: a member whose hash takes longer than an answer may is a
// member that answers, of a state that is not known yet.
func TestLargeStatesAnswer(t *testing.T) {
	t.Parallel()
	nodes, _ := hastyThree(t)
	l := leader(t, nodes...)
	propose(t, l, sweep("a", 3))
	odd := others(nodes, l)[0]
	caughtUp(t, odd, l)
	release := make(chan struct{})
	var slow atomic.Bool
	slow.Store(true)
	sum := odd.group.hashes.sum
	odd.group.hashes.mu.Lock()
	odd.group.hashes.sum = func(v registry.View) string {
		if slow.Load() {
			<-release
		}
		return sum(v)
	}
	odd.group.hashes.mu.Unlock()
	until(t, "the member answers without a hash", func() bool {
		for _, m := range l.Members(patient(t)) {
			if m.ID == odd.cfg.ID {
				return m.Role != "" && m.State == StateUnknown && m.Hash == ""
			}
		}
		return false
	})
	if err := l.fits(patient(t), Server{ID: odd.cfg.ID, RaftAddr: odd.Addr()}, true); err != nil {
		t.Errorf("it cannot be added: %v", err)
	}
	slow.Store(false)
	close(release)
	until(t, "the states are the same", func() bool {
		for _, m := range l.Members(patient(t)) {
			if m.State != StateSame {
				return false
			}
		}
		return true
	})
}

package raftnode

import (
	"context"
	"sync"
	"time"

	"github.com/oomfleet/oomfleet/storage/registry"
)

// hashWait is how long an answer waits for the hash of its node's state.
const hashWait = askLimit / 4

// hashes takes the hash of a node's state, which lasts for seconds where that has
// a hundred thousand cells: longer than whoever asks how the node stands can wait.
// One is taken at a time, and one that came too late is the next asker's, if the
// state is still at that entry.
type hashes struct {
	mu     sync.Mutex                 // guards all below
	sum    func(registry.View) string // of a state; tests slow it down
	newest *hashing                   // nil for none
}

// hashing is one hash that is being taken, or was.
type hashing struct {
	index uint64
	done  chan struct{} // closed when hash is there
	hash  string
	given bool // somebody has it; guarded by hashes.mu
}

// of is the hash of a state, or empty when it was not there in time.
func (h *hashes) of(ctx context.Context, v registry.View, within time.Duration) string {
	late := time.NewTimer(within)
	defer late.Stop()
	for {
		one := h.begin(v)
		select {
		case <-one.done:
		case <-late.C:
			return ""
		case <-ctx.Done():
			return ""
		}
		if one.index == v.AppliedIndex {
			h.mu.Lock()
			defer h.mu.Unlock()
			one.given = true
			return one.hash
		}
	}
}

// begin is the hash that is being taken now, or one of this state.
func (h *hashes) begin(v registry.View) *hashing {
	h.mu.Lock()
	defer h.mu.Unlock()
	if one := h.newest; one != nil {
		select {
		case <-one.done:
			if one.index == v.AppliedIndex && !one.given {
				return one
			}
		default:
			return one
		}
	}
	one := &hashing{index: v.AppliedIndex, done: make(chan struct{})}
	h.newest = one
	sum := h.sum
	go func() { // ends by itself
		one.hash = sum(v)
		close(one.done)
	}()
	return one
}

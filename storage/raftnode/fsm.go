package raftnode

import (
	"fmt"
	"io"
	"sync"

	"github.com/hashicorp/raft"
	"github.com/klauspost/compress/zstd"
	"github.com/oomfleet/oomfleet/storage/registry"
)

// fsm is the bridge from raft to the registry's machine: it unpacks entries,
// hands out snapshots, and wakes those that wait for a log position. Raft calls
// it from one goroutine.
type fsm struct {
	machine *registry.Machine
	packer  *packer
	// stop ends the node for an entry that this build cannot read, and does not
	// return.
	stop func(why error)
	// snapshotted takes what came of writing a snapshot.
	snapshotted func(error)
	// restoreErr is why the last Restore failed; raft keeps it to its log.
	restoreErr error

	mu sync.Mutex // guards waiters
	// waiters are closed once the applied index is above their key.
	waiters map[uint64]chan struct{}
}

// Apply applies one entry; raft uses ApplyBatch instead where it can.
func (f *fsm) Apply(entry *raft.Log) any { return f.ApplyBatch([]*raft.Log{entry})[0] }

// ApplyBatch applies entries in order and wakes waiters once. An entry that this
// build cannot read ends the node: the others may have applied it, so going on
// without it would leave this one with another state.
func (f *fsm) ApplyBatch(entries []*raft.Log) []any {
	replies := make([]any, len(entries))
	for i, entry := range entries {
		if entry.Type != raft.LogCommand {
			continue // configurations are raft's own
		}
		cmd, err := f.packer.unpack(entry.Data)
		if err != nil {
			f.stop(fmt.Errorf("entry %d of the log cannot be read by this build: %w; start the build that wrote it or a newer one, nothing is lost", entry.Index, err))
		}
		replies[i] = f.machine.Apply(entry.Index, entry.AppendedAt, cmd)
	}
	f.wake()
	return replies
}

// changed returns a channel that is closed once the applied index is above
// after.
func (f *fsm) changed(after uint64) <-chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	waiter, ok := f.waiters[after]
	if !ok {
		waiter = make(chan struct{})
	}
	// Asked under the lock: an entry applied after this wakes the waiter.
	if f.machine.View().AppliedIndex > after {
		close(waiter)
		delete(f.waiters, after)
	} else {
		f.waiters[after] = waiter
	}
	return waiter
}

func (f *fsm) wake() {
	f.mu.Lock()
	defer f.mu.Unlock()
	applied := f.machine.View().AppliedIndex
	for after, waiter := range f.waiters {
		if applied > after {
			close(waiter)
			delete(f.waiters, after)
		}
	}
}

// Snapshot takes a view, which costs nothing; the log goes on while it is
// written.
func (f *fsm) Snapshot() (raft.FSMSnapshot, error) {
	return snapshot{view: f.machine.View(), note: f.snapshotted}, nil
}

// Restore replaces the state by a snapshot's.
func (f *fsm) Restore(from io.ReadCloser) error {
	f.restoreErr = f.restore(from)
	return f.restoreErr
}

func (f *fsm) restore(from io.Reader) error {
	unpacked, err := zstd.NewReader(from, zstd.WithDecoderConcurrency(1))
	if err != nil {
		return fmt.Errorf("unpack snapshot: %w", err)
	}
	defer unpacked.Close()
	if err := f.machine.Restore(unpacked); err != nil {
		return err
	}
	f.wake()
	return nil
}

// snapshot is one view on its way to a file or to a follower.
type snapshot struct {
	view registry.View
	// note takes what came of writing it.
	note func(error)
}

// Persist writes the view, packed. Raft keeps a failure to its log and tries again.
func (s snapshot) Persist(sink raft.SnapshotSink) error {
	err := s.persist(sink)
	s.note(err)
	return err
}

func (s snapshot) persist(sink raft.SnapshotSink) error {
	packed, err := zstd.NewWriter(sink, zstd.WithEncoderConcurrency(1))
	if err != nil {
		return fmt.Errorf("pack snapshot: %w", err)
	}
	if err := s.view.WriteSnapshot(packed); err != nil {
		return err
	}
	if err := packed.Close(); err != nil {
		return fmt.Errorf("pack snapshot: %w", err)
	}
	return sink.Close()
}

// Release has nothing to release.
func (s snapshot) Release() {}

package raftnode

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"time"

	"github.com/hashicorp/raft"
	"github.com/klauspost/compress/zstd"
	"github.com/oomfleet/oomfleet/storage/registry"
)

// restoreWait bounds a restore, which raft cannot be asked to break off.
const restoreWait = 2 * time.Minute

// restoreGap is more entries than are written while a backup is packed.
const restoreGap = 1000

// Restore replaces the registry on every node by a backup (View.WriteBackup) and
// returns once a majority has it. Only the leader can do it. Without force, a
// registry that holds anything is refused with registry.ErrNotEmpty. A backup
// that is damaged or of a newer build is refused before anything was changed.
//
// Raft gives the backup a position of its own, above all others, and sends it to
// the followers as a snapshot; proposals under way end with ErrUncertain.
func (n *Node) Restore(ctx context.Context, from io.Reader, force bool) (registry.Restored, error) {
	backup, err := registry.ReadBackup(from)
	if err == nil {
		err = backup.Whole()
	}
	if err != nil {
		return registry.Restored{}, err
	}
	if err := n.Consistent(ctx); err != nil {
		return registry.Restored{}, fmt.Errorf("restore: %w", err)
	}
	now := n.View()
	if !force && !now.Empty() {
		return registry.Restored{}, registry.ErrNotEmpty
	}
	// Above every entry that there is, and those that come meanwhile: a view
	// never goes back. Raft burns the position after it.
	next := backup.Replacing(now, max(backup.AppliedIndex, n.raft.LastIndex())+restoreGap)
	packed, err := packSnapshot(next)
	if err != nil {
		return registry.Restored{}, err
	}
	meta := &raft.SnapshotMeta{Version: raft.SnapshotVersionMax, Index: next.AppliedIndex, Size: int64(len(packed))}
	err = n.call(ctx, func() raft.Future {
		return finished{n.raft.Restore(meta, bytes.NewReader(packed), restoreWait)}
	})
	if err != nil {
		return registry.Restored{}, fmt.Errorf("restore: %w", err)
	}
	return registry.Restored{Index: next.AppliedIndex, BackupIndex: backup.AppliedIndex, Sweeps: len(next.Sweeps), Cells: len(next.Records),
		Coefficients: len(next.Coefficients), Programs: len(next.Programs), Content: next.Content()}, nil
}

// finished is a future of something that blocked.
type finished struct{ err error }

func (f finished) Error() error { return f.err }

// packSnapshot is a view as fsm.Restore reads it.
func packSnapshot(v registry.View) ([]byte, error) {
	var out bytes.Buffer
	packed, err := zstd.NewWriter(&out, zstd.WithEncoderConcurrency(1))
	if err != nil {
		return nil, fmt.Errorf("pack snapshot: %w", err)
	}
	if err := v.WriteSnapshot(packed); err != nil {
		return nil, err
	}
	if err := packed.Close(); err != nil {
		return nil, fmt.Errorf("pack snapshot: %w", err)
	}
	return out.Bytes(), nil
}

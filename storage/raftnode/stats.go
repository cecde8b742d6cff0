package raftnode

import (
	"io/fs"
	"path/filepath"
	"strconv"
)

// Stats is how a node stands.
type Stats struct {
	Leadership
	// State is raft's word: Leader, Follower, Candidate or Shutdown.
	State string
	// AppliedIndex is the registry's; the others are raft's and count its own
	// entries as well.
	AppliedIndex  uint64
	CommitIndex   uint64
	LastIndex     uint64
	SnapshotIndex uint64
	Servers       []Server
	// Group is what this node has seen of the others while it led.
	Group GroupStats
	// LogBytes and SnapshotBytes are the sizes on disk.
	LogBytes      int64
	SnapshotBytes int64
	// Trouble is Member.Trouble of this node.
	Trouble string
}

// Stats looks at the node and its folder.
func (n *Node) Stats() Stats {
	leadership, _ := n.Leadership()
	stats := Stats{
		Leadership: leadership, State: n.raft.State().String(),
		AppliedIndex: n.View().AppliedIndex, CommitIndex: n.raft.CommitIndex(), LastIndex: n.raft.LastIndex(),
		Group:         n.group.stats(),
		LogBytes:      folderSize(filepath.Join(n.cfg.DataDir, "log")),
		SnapshotBytes: folderSize(filepath.Join(n.cfg.DataDir, "snapshots")),
	}
	// Raft tells its last snapshot only as text; 0 when it is closed.
	stats.SnapshotIndex, _ = strconv.ParseUint(n.raft.Stats()["last_snapshot_index"], 10, 64)
	stats.Servers = n.Servers()
	stats.Trouble = n.group.unwritten.trouble(n.cfg.DataDir)
	return stats
}

// ID is this node's own id.
func (n *Node) ID() string { return n.cfg.ID }

// Servers are the cluster's members and where they are, with and without a vote;
// none when the node is closed.
func (n *Node) Servers() []Server {
	servers, err := n.servers()
	if err != nil {
		return nil
	}
	var out []Server
	for _, s := range servers {
		out = append(out, Server{ID: string(s.ID), RaftAddr: string(n.group.addresses.of(s.ID, s.Address))})
	}
	return out
}

// folderSize is what files take; one that goes away meanwhile counts nothing.
func folderSize(dir string) int64 {
	var total int64
	_ = filepath.WalkDir(dir, func(_ string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return nil
		}
		if info, err := entry.Info(); err == nil {
			total += info.Size()
		}
		return nil
	})
	return total
}

package raftnode

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/hashicorp/raft"
	wal "github.com/hashicorp/raft-wal"
)

// errRotten is returned for an entry that is not as it was written.
var errRotten = errors.New("it is not as it was written")

// checkedLog is the log with a checksum in each entry. The log underneath has
// checksums only for what it writes again after a crash, so that a byte that has
// changed on disk would be applied: a boundary would silently be another one. The
// checksum lies in the entry's extensions, which are there for that; an entry of
// a build before there were checksums has none, and passes.
type checkedLog struct{ *wal.WAL }

// StoreLog writes one entry.
func (l checkedLog) StoreLog(entry *raft.Log) error { return l.StoreLogs([]*raft.Log{entry}) }

// StoreLogs writes entries, which stay as they are.
func (l checkedLog) StoreLogs(entries []*raft.Log) error {
	signed := make([]*raft.Log, len(entries))
	for i, entry := range entries {
		with := *entry
		with.Extensions = checksum(entry)
		signed[i] = &with
	}
	return l.WAL.StoreLogs(signed)
}

// GetLog reads an entry, and fails with errRotten for one that has changed.
func (l checkedLog) GetLog(index uint64, out *raft.Log) error {
	if err := l.WAL.GetLog(index, out); err != nil {
		return err
	}
	sum := out.Extensions
	out.Extensions = nil
	if out.Index != index || len(sum) > 0 && !bytes.Equal(sum, checksum(out)) {
		return fmt.Errorf("entry %d of the log: %w", index, errRotten)
	}
	return nil
}

// checksum is over all of an entry but its extensions.
func checksum(entry *raft.Log) []byte {
	head := make([]byte, 0, 32)
	for _, part := range []uint64{entry.Index, entry.Term, uint64(entry.Type), uint64(entry.AppendedAt.UnixNano())} {
		head = binary.LittleEndian.AppendUint64(head, part)
	}
	table := crc32.MakeTable(crc32.Castagnoli)
	return binary.LittleEndian.AppendUint32(nil, crc32.Update(crc32.Checksum(head, table), table, entry.Data))
}

// checkEntries reads the whole log, which snapshots keep short.
func (s *store) checkEntries(newest *raft.SnapshotMeta) error {
	first, err := s.log.FirstIndex()
	if err != nil {
		return err
	}
	last, err := s.log.LastIndex()
	if err != nil {
		return err
	}
	var entry raft.Log
	for index := max(first, 1); index <= last; index++ {
		if err := s.log.GetLog(index, &entry); err != nil {
			return err
		}
	}
	if newest != nil {
		last = max(last, newest.Index)
	}
	if reached := s.reached(); reached > last {
		return fmt.Errorf("it ends at entry %d, and entry %d was committed here (with %s removed it starts without the entries between, which are lost)",
			last, reached, s.reachedFile())
	}
	return nil
}

// reachedFile holds the last entry that this node knew to be committed some time
// ago. A log that was cut looks like one whose last write a crash broke off: only
// this tells them apart.
func (s *store) reachedFile() string { return filepath.Join(s.dir, "reached") }

// reached is 0 where nothing can be said: a crash may leave the file empty.
func (s *store) reached() uint64 {
	text, err := os.ReadFile(s.reachedFile())
	if err != nil {
		return 0
	}
	index, _ := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64)
	return index
}

// noteReached keeps what is committed, all of which is in this node's log. What
// could not be kept is tried again at the next look, so that it is known once there
// is room.
func (n *Node) noteReached() {
	index := n.raft.CommitIndex()
	if n.disk.isBroken() || index == n.group.reached.Swap(index) {
		return
	}
	half := n.store.reachedFile() + ".half"
	err := os.WriteFile(half, fmt.Appendln(nil, index), 0o640)
	if err == nil { // else what was noted before would be replaced by nothing
		err = os.Rename(half, n.store.reachedFile())
	}
	if err != nil {
		n.group.reached.Store(0)
	}
	switch news := n.group.unwritten.note("how far its log has come", err); {
	case news && err != nil:
		n.logger.Warn("how far the log has come was not noted: is the disk full? the node ends when its log needs more room", "error", err)
	case news:
		n.logger.Info("how far the log has come was noted again")
	}
}

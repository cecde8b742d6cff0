package raftnode

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	wal "github.com/hashicorp/raft-wal"
	"github.com/hashicorp/raft-wal/metadb"
)

// store is the data folder, opened and looked over.
type store struct {
	dir       string
	lock      *os.File
	meta      *metadb.BoltMetaDB
	log       checkedLog // raft's log and its stable store (term and vote)
	snapshots *snapshots
}

// openStore takes the folder's lock and opens what is in it. It refuses what is
// damaged or does not fit together.
func openStore(dir string, logger hclog.Logger) (_ *store, err error) {
	s := &store{dir: dir, meta: &metadb.BoltMetaDB{}}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close())
		}
	}()
	if err := os.MkdirAll(s.logDir(), 0o750); err != nil {
		return nil, fmt.Errorf("make data folder %s: %w", dir, err)
	}
	if s.lock, err = lockFolder(dir); err != nil {
		return nil, err
	}
	// The store of the log's metadata is ours to close: wal.Close leaves it
	// open, and its lock would make the next open in this process wait for
	// ever.
	s.log.WAL, err = wal.Open(s.logDir(), wal.WithMetaStore(s.meta), wal.WithSegmentSize(segmentSize), wal.WithLogger(logger.Named("wal")))
	switch {
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT), errors.Is(err, syscall.EFBIG):
		return nil, fmt.Errorf("open the log in %s, which needs %d MiB: free disk space: %w", s.logDir(), segmentSize>>20, err)
	case err != nil:
		return nil, s.damaged(s.logDir(), err)
	}
	files, err := raft.NewFileSnapshotStoreWithLogger(dir, retained, logger.Named("snapshot"))
	if err != nil {
		return nil, fmt.Errorf("open snapshots in %s: %w", dir, err)
	}
	s.snapshots = &snapshots{FileSnapshotStore: files, dir: s.snapshotDir()}
	if err := s.check(); err != nil {
		return nil, err
	}
	return s, nil
}

func (s *store) logDir() string      { return filepath.Join(s.dir, "log") }
func (s *store) snapshotDir() string { return filepath.Join(s.dir, "snapshots") }

// lockFolder refuses a folder that another process uses; two of them would
// write two histories into one log.
func lockFolder(dir string) (*os.File, error) {
	lock, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o640)
	if err != nil {
		return nil, fmt.Errorf("lock data folder: %w", err)
	}
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return nil, errors.Join(fmt.Errorf("data folder %s is in use by another process: %w", dir, err), lock.Close())
	}
	return lock, nil
}

// close releases everything; parts that were never opened are skipped.
func (s *store) close() error {
	var errs []error
	if s.log.WAL != nil {
		errs = append(errs, s.log.Close())
	}
	if s.lock != nil {
		errs = append(errs, s.meta.Close(), s.lock.Close())
	}
	return errors.Join(errs...)
}

// check refuses a folder whose parts do not meet. Raft would skip a snapshot
// that it cannot read, and start from an older one or from nothing.
func (s *store) check() error {
	if err := s.checkMeta(); err != nil {
		return err
	}
	newest, err := s.snapshots.newest()
	if err != nil {
		return err
	}
	first, err := s.log.FirstIndex()
	if err != nil {
		return s.damaged(s.logDir(), err)
	}
	term, err := s.term()
	if err != nil {
		return s.damaged(s.logDir(), err)
	}
	if why := misfit(newest, first, term); why != "" {
		return s.damaged(s.logDir(), errors.New(why))
	}
	if err := s.checkEntries(newest); err != nil {
		return s.damaged(s.logDir(), err)
	}
	return nil
}

// misfit says what is wrong with a newest snapshot (nil for none), the log's
// first entry (0 for an empty log) and the last term (0 for a new folder). The
// log takes a broken last segment for one that was never written to, so that it
// is empty must be explained.
func misfit(newest *raft.SnapshotMeta, first, term uint64) string {
	switch {
	case newest == nil && first > 1:
		return fmt.Sprintf("the log begins at entry %d, and there is no snapshot of what came before", first)
	case newest == nil && first == 0 && term > 1:
		return "the log is empty, and this node has taken part in elections"
	case newest == nil:
		return ""
	case first > newest.Index+1:
		return fmt.Sprintf("the log begins at entry %d, and the newest snapshot ends at %d", first, newest.Index)
	case term == 0:
		return "there are snapshots, and the log that belongs to them is gone"
	case first == 0 && len(newest.Configuration.Servers) == 1:
		// Elsewhere a leader may have sent the snapshot, which empties the log.
		return "the log is empty, and this node alone has its entries"
	}
	return ""
}

// checkMeta looks for snapshots that raft's own listing passes over.
func (s *store) checkMeta() error {
	entries, err := os.ReadDir(s.snapshotDir())
	if err != nil {
		return fmt.Errorf("list snapshots: %w", err)
	}
	for _, entry := range entries {
		if !entry.IsDir() || strings.HasSuffix(entry.Name(), ".tmp") {
			continue // a snapshot that was not finished was never relied on
		}
		file := filepath.Join(s.snapshotDir(), entry.Name(), "meta.json")
		text, err := os.ReadFile(file)
		if err != nil {
			return s.damaged(file, err)
		}
		var meta raft.SnapshotMeta
		if err := json.Unmarshal(text, &meta); err != nil {
			return s.damaged(file, err)
		}
		if meta.Version < raft.SnapshotVersionMin || meta.Version > raft.SnapshotVersionMax {
			return s.damaged(file, fmt.Errorf("its version %d is not one that this build reads", meta.Version))
		}
	}
	return nil
}

// term is the last term that this node took part in, 0 for a fresh folder.
func (s *store) term() (uint64, error) {
	return s.log.GetUint64([]byte(termKey))
}

// termKey is raft's own name for it.
const termKey = "CurrentTerm"

// damaged names the file and says how to recover.
func (s *store) damaged(file string, why error) error {
	return fmt.Errorf("%s is damaged or does not fit the rest: %w\n"+
		"Nothing was changed. To recover:\n"+
		"  1. keep a copy of %s\n"+
		"  2. if the other coordinators have a leader: empty %s and start again, the leader sends its state\n"+
		"  3. if others are whole, and too few for a leader: make the one with the longest log a cluster of its own, with\n"+
		"     fleetctl cluster recover, and add this one to it with an empty folder and join: true\n"+
		"  4. if not, and a snapshot is what is damaged: move its folder out of %s and start again; the node goes on from\n"+
		"     the snapshot before it and the log behind that, and refuses if the two do not meet\n"+
		"  5. else empty %s, start again, and give it a backup with fleetctl cluster restore FILE", file, why, s.dir, s.dir, s.snapshotDir(), s.dir)
}

// snapshots shows raft the newest snapshot only. A start must fail when that
// one cannot be read: the older one is a state of the past.
type snapshots struct {
	*raft.FileSnapshotStore
	dir string

	mu      sync.Mutex // guards all below
	file    string     // the state file that was opened last
	openErr error      // why it could not be, raft keeps it to its log
}

// List returns the newest snapshot, if there is one.
func (s *snapshots) List() ([]*raft.SnapshotMeta, error) {
	list, err := s.FileSnapshotStore.List()
	if err != nil {
		return nil, err
	}
	return list[:min(1, len(list))], nil
}

// Open opens a snapshot after its checksum was verified.
func (s *snapshots) Open(id string) (*raft.SnapshotMeta, io.ReadCloser, error) {
	meta, state, err := s.FileSnapshotStore.Open(id)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.file, s.openErr = filepath.Join(s.dir, id, "state.bin"), err
	if err != nil {
		return nil, nil, fmt.Errorf("open snapshot %s: %w", s.file, err)
	}
	return meta, state, nil
}

// lastOpened is the state file that was opened last, and why it could not be.
func (s *snapshots) lastOpened() (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.file, s.openErr
}

// newest is the newest snapshot, nil for none.
func (s *snapshots) newest() (*raft.SnapshotMeta, error) {
	list, err := s.List()
	if err != nil || len(list) == 0 {
		return nil, err
	}
	return list[0], nil
}

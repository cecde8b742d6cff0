package raftnode

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/hashicorp/raft"
)

// addresses decides between the two places that name a server's address: the
// configuration file, which an operator changes, and the log, which Node.Add
// changes. The newer one counts. So all servers may move at once, by changing
// the files, when no leader could write a log; and one may move by Node.Add,
// without touching the files of the others.
type addresses struct {
	path string
	// noted is, for each server of the file, the file's address and what the
	// log said when that was first seen. As long as the log says the same, the
	// file is the newer one.
	noted map[raft.ServerID]notedAddress
}

type notedAddress struct {
	File raft.ServerAddress `json:"file"`
	Log  raft.ServerAddress `json:"log"`
}

// openAddresses reads what earlier starts have noted in a data folder.
func openAddresses(dir string) (*addresses, error) {
	a := &addresses{path: filepath.Join(dir, "addresses.json"), noted: map[raft.ServerID]notedAddress{}}
	text, err := os.ReadFile(a.path)
	if errors.Is(err, fs.ErrNotExist) {
		return a, nil
	}
	if err == nil {
		err = json.Unmarshal(text, &a.noted)
	}
	if err != nil {
		return nil, fmt.Errorf("read known addresses: %w: remove %s, then those of the configuration count", err, a.path)
	}
	return a, nil
}

// note takes in the file's addresses, given what the log says now, and keeps
// that for later starts.
func (a *addresses) note(file []Server, log []raft.Server) error {
	logged := map[raft.ServerID]raft.ServerAddress{}
	for _, s := range log {
		logged[s.ID] = s.Address
	}
	next := map[raft.ServerID]notedAddress{}
	changed := len(file) != len(a.noted)
	for _, s := range file {
		id, addr := raft.ServerID(s.ID), raft.ServerAddress(s.RaftAddr)
		known, ok := a.noted[id]
		if !ok || known.File != addr {
			known, changed = notedAddress{File: addr, Log: logged[id]}, true
		}
		next[id] = known
	}
	if a.noted = next; !changed {
		return nil
	}
	text, err := json.Marshal(next)
	if err != nil {
		return fmt.Errorf("note addresses: %w", err)
	}
	half := a.path + ".half"
	if err := errors.Join(os.WriteFile(half, append(text, '\n'), 0o640), os.Rename(half, a.path)); err != nil {
		return fmt.Errorf("note addresses: %w", err)
	}
	return nil
}

// of is where a server is, logged being what the log says.
func (a *addresses) of(id raft.ServerID, logged raft.ServerAddress) raft.ServerAddress {
	if n, ok := a.noted[id]; ok && (n.Log == logged || logged == "") {
		return n.File
	}
	return logged
}

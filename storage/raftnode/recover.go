package raftnode

import (
	"errors"
	"fmt"
	"log/slog"
	"os"

	"github.com/hashicorp/raft"
)

// Recovered says what Recover did.
type Recovered struct {
	// ID is the only member now, Was those before it, as far as the log said.
	ID  string   `json:"id"`
	Was []string `json:"was"`
	// LastIndex is the last entry that was found; all up to it are kept.
	LastIndex uint64 `json:"last_index"`
	// Copy is the folder's content of before.
	Copy string `json:"copy"`
}

// Recover makes a node that has lost the majority of its cluster a cluster of
// its own, after its folder was copied. The node must be stopped, and the others
// must never come back with what they hold: empty their folders and add them
// anew. Entries that were written and never committed are kept and will be
// committed: nothing that anybody was told is lost if this is the member with
// the longest log.
//
// It writes one entry behind the last one, in a term that nobody has seen: a
// list of members with this node alone.
func Recover(cfg Config) (out Recovered, err error) {
	if err := cfg.Validate(); err != nil {
		return out, err
	}
	logger := newLogger(slog.New(slog.DiscardHandler))
	if cfg.Logger != nil {
		logger = newLogger(cfg.Logger)
	}
	if _, err := os.Stat(cfg.DataDir); err != nil {
		return out, fmt.Errorf("recover: %w", err)
	}
	s, err := openStore(cfg.DataDir, logger) // nobody else has it, and it is whole
	if err != nil {
		return out, err
	}
	state, err := findState(s)
	if err = errors.Join(err, s.close()); err != nil {
		return out, fmt.Errorf("recover: %w", err)
	}
	out = Recovered{ID: cfg.ID, LastIndex: state.last, Copy: fmt.Sprintf("%s-before-recover-%d", cfg.DataDir, state.last)}
	self := raft.Server{ID: raft.ServerID(cfg.ID), Address: raft.ServerAddress(cfg.listenAddr())}
	member := false
	for _, m := range state.members {
		out.Was = append(out.Was, string(m.ID))
		member = member || m.ID == self.ID
	}
	if !member {
		return out, fmt.Errorf("recover: %s is no member of the cluster that its folder %s tells of (%v)", cfg.ID, cfg.DataDir, out.Was)
	}
	if err := os.CopyFS(out.Copy, os.DirFS(cfg.DataDir)); err != nil {
		return out, fmt.Errorf("recover: copy the folder first: %w", err)
	}
	if s, err = openStore(cfg.DataDir, logger); err != nil {
		return out, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	if err := s.log.SetUint64([]byte(termKey), state.term+1); err != nil {
		return out, fmt.Errorf("recover: write the term: %w", err)
	}
	entry := &raft.Log{Index: state.last + 1, Term: state.term + 1, Type: raft.LogConfiguration,
		Data: raft.EncodeConfiguration(raft.Configuration{Servers: []raft.Server{self}})}
	if err := s.log.StoreLog(entry); err != nil {
		return out, fmt.Errorf("recover: write the new list of members: %w", err)
	}
	return out, nil
}

// foundState is where a stopped node has come to.
type foundState struct {
	last, term uint64
	members    []raft.Server
}

func findState(s *store) (out foundState, err error) {
	newest, err := s.snapshots.newest()
	if err != nil {
		return out, err
	}
	if out.term, err = s.term(); err != nil {
		return out, err
	}
	if newest != nil {
		out.last, out.term, out.members = newest.Index, max(out.term, newest.Term), newest.Configuration.Servers
	}
	first, err := s.log.FirstIndex()
	if err != nil {
		return out, err
	}
	last, err := s.log.LastIndex()
	if err != nil {
		return out, err
	}
	for index := max(first, 1); index <= last; index++ {
		var entry raft.Log
		if err := s.log.GetLog(index, &entry); err != nil {
			return out, fmt.Errorf("read entry %d: %w", index, err)
		}
		if entry.Type == raft.LogConfiguration && index > out.last {
			out.members = raft.DecodeConfiguration(entry.Data).Servers
		}
		out.term = max(out.term, entry.Term)
	}
	if out.last = max(out.last, last); out.last == 0 {
		return out, errors.New("the folder is empty, there is nothing to recover")
	}
	return out, nil
}

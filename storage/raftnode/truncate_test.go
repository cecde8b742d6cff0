package raftnode

import (
	"fmt"
	"log/slog"
	"testing"

	"github.com/hashicorp/raft"
)

// TestLogThatWasCutOpensAgain: a leader that is deposed with entries that nobody
// else has must cut them off its log, and start again afterwards. raft-wal 0.4.0
// wrote such a log in a form that it could not read.
func TestLogThatWasCutOpensAgain(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s, err := openStore(dir, newLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.log.SetUint64([]byte(termKey), 3); err != nil {
		t.Fatal(err)
	}
	write := func(from, to, term uint64) {
		t.Helper()
		for i := from; i <= to; i++ {
			if err := s.log.StoreLog(&raft.Log{Index: i, Term: term, Data: fmt.Append(nil, i, term)}); err != nil {
				t.Fatal(err)
			}
		}
	}
	write(1, 20, 2)
	if err := s.log.DeleteRange(11, 20); err != nil {
		t.Fatal(err)
	}
	write(11, 15, 3)
	if err := s.close(); err != nil {
		t.Fatal(err)
	}
	if s, err = openStore(dir, newLogger(slog.New(slog.DiscardHandler))); err != nil {
		t.Fatal(err)
	}
	defer s.close() //nolint:errcheck // it was only read
	for i := uint64(1); i <= 15; i++ {
		want := uint64(2)
		if i > 10 {
			want = 3
		}
		var entry raft.Log
		if err := s.log.GetLog(i, &entry); err != nil || entry.Term != want || string(entry.Data) != string(fmt.Append(nil, i, want)) {
			t.Fatalf("entry %d is %+v, %v", i, entry, err)
		}
	}
}

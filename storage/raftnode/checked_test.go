package raftnode

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"github.com/oomfleet/oomfleet/storage/registry"
)

func setMember(port string) registry.Command {
	return registry.Command{SetMember: &registry.SetMember{Member: registry.Member{ID: "a", API: "http://host-a:" + port, CommandVersion: 1}}}
}

// damageLog changes the text of the log's only file.
func damageLog(t *testing.T, dir string, damage func([]byte) []byte) {
	t.Helper()
	segments, err := filepath.Glob(filepath.Join(dir, "log", "*.wal"))
	if err != nil || len(segments) != 1 {
		t.Fatalf("%v %v", segments, err)
	}
	text, err := os.ReadFile(segments[0])
	if err == nil {
		err = os.WriteFile(segments[0], damage(text), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestChangedByteInTheLogIsRefused: an entry that is as readable as before and
// says something else is never applied.
func TestChangedByteInTheLogIsRefused(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	n := lone(t, dir)
	propose(t, n, setMember("8462"))
	propose(t, n, setMember("9000"))
	closeNode(t, n)
	damageLog(t, dir, func(text []byte) []byte {
		if bytes.Count(text, []byte("host-a:8462")) != 1 {
			t.Fatal("the entry is not in the log as it is")
		}
		return bytes.Replace(text, []byte("host-a:8462"), []byte("host-a:8463"), 1)
	})
	if err := refused(t, dir, filepath.Join(dir, "log")); !errors.Is(err, errRotten) {
		t.Error(err)
	}
}

// TestCutLogIsRefused: what was committed and is gone is not forgotten in silence,
// although the log cannot tell it from a write that a crash broke off.
func TestCutLogIsRefused(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	n := lone(t, dir)
	propose(t, n, setMember("8001"))
	for range 8 {
		propose(t, n, sweep("a", 1))
	}
	propose(t, n, setMember("8002"))
	closeNode(t, n)
	damageLog(t, dir, func(text []byte) []byte { return text[:bytes.Index(text, []byte("host-a:8002"))-64] })
	refused(t, dir, "was committed here")
	// What it says of going on all the same.
	if err := os.Remove(filepath.Join(dir, "reached")); err != nil {
		t.Fatal(err)
	}
	again := lone(t, dir)
	if m := again.View().Members["a"]; m.API != "http://host-a:8001" {
		t.Errorf("it began with %+v", m)
	}
	propose(t, again, setMember("8003"))
}

// TestEntriesWithoutAChecksum: those of a build that wrote none are read, and what
// raft gets is what it gave.
func TestEntriesWithoutAChecksum(t *testing.T) {
	t.Parallel()
	s, err := openStore(t.TempDir(), newLogger(nil))
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	old := &raft.Log{Index: 1, Term: 1, Data: []byte("old"), AppendedAt: time.Unix(1, 2)}
	next := &raft.Log{Index: 2, Term: 1, Data: []byte("new"), AppendedAt: time.Unix(3, 4)}
	if err := errors.Join(s.log.WAL.StoreLog(old), s.log.StoreLog(next)); err != nil {
		t.Fatal(err)
	}
	if next.Extensions != nil {
		t.Error("raft's own entry was changed")
	}
	for _, want := range []*raft.Log{old, next} {
		var got raft.Log
		if err := s.log.GetLog(want.Index, &got); err != nil || string(got.Data) != string(want.Data) || got.Extensions != nil || !got.AppendedAt.Equal(want.AppendedAt) {
			t.Errorf("%+v, %v", got, err)
		}
	}
}

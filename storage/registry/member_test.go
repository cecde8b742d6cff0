package registry_test

import (
	"bytes"
	"testing"
	"time"

	"github.com/oomfleet/oomfleet/storage/registry"
)

// TestRemovedMemberIsForgotten: one that has left the cluster holds nothing up.
func TestRemovedMemberIsForgotten(t *testing.T) {
	m := registry.New()
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	set := func(index uint64, member registry.Member) registry.Reply {
		return m.Apply(index, at, registry.Command{Version: 1, SetMember: &registry.SetMember{Member: member}})
	}
	set(1, registry.Member{ID: "a", API: "http://a:1", CommandVersion: 2})
	set(2, registry.Member{ID: "b", API: "http://b:1", CommandVersion: 1})
	before := m.View()
	if r := set(3, registry.Member{ID: "b"}); !r.Accepted {
		t.Errorf("%+v", r)
	}
	if got := m.View().Members; len(got) != 1 || got["a"].CommandVersion != 2 {
		t.Errorf("members %v", got)
	}
	if len(before.Members) != 2 {
		t.Errorf("a view that was taken before has changed: %v", before.Members)
	}
	if r := set(4, registry.Member{ID: "b"}); r.Accepted || r.Refused != "" {
		t.Errorf("again: %+v", r)
	}
}

// TestSnapshotOfARemovedMember: builds that kept a member which had left wrote it
// into their snapshots. A replica that begins with one is as one that replays the log.
func TestSnapshotOfARemovedMember(t *testing.T) {
	m := registry.New()
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for i, member := range []registry.Member{{ID: "a", API: "http://a:1", CommandVersion: 1}, {ID: "b", API: "http://b:1", CommandVersion: 1}, {ID: "b", CommandVersion: 1}} {
		m.Apply(uint64(i+1), at, registry.Command{Version: 1, SetMember: &registry.SetMember{Member: member}})
	}
	kept := m.View()
	kept.Members = map[string]registry.Member{"a": kept.Members["a"], "b": {ID: "b", CommandVersion: 1}}
	var text bytes.Buffer
	if err := kept.WriteSnapshot(&text); err != nil {
		t.Fatal(err)
	}
	old := registry.New()
	if err := old.Restore(&text); err != nil {
		t.Fatal(err)
	}
	if got, want := old.View().Hash(), m.View().Hash(); got != want {
		t.Errorf("members %v and %v: the states differ", old.View().Members, m.View().Members)
	}
}

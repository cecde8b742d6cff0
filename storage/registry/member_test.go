package registry_test

import (
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

package main

import (
	"slices"
	"testing"

	"github.com/oomfleet/oomfleet/storage/raftnode"
	"github.com/oomfleet/oomfleet/storage/registry"
)

// TestMembersAreKeptTrue: the version of a member is what it says itself, and one
// that the cluster has no more is forgotten; else it would hold up every command
// of a newer version for ever.
func TestMembersAreKeptTrue(t *testing.T) {
	a, b := registry.Member{ID: "a", API: "http://a:1", CommandVersion: 1}, registry.Member{ID: "b", API: "http://b:1", CommandVersion: 1}
	newer := registry.Member{ID: "a", API: "http://a:1", CommandVersion: 2}
	both, one := []raftnode.Server{{ID: "a"}, {ID: "b"}}, []raftnode.Server{{ID: "a"}}
	for name, tc := range map[string]struct {
		servers []raftnode.Server
		applies map[string]int
		want    []registry.Member
	}{
		"all is as it was":              {both, map[string]int{"a": 1, "b": 1}, nil},
		"one was upgraded":              {both, map[string]int{"a": 2, "b": 1}, []registry.Member{newer}},
		"one does not answer":           {both, map[string]int{"a": 1}, nil},
		"one left the cluster":          {one, map[string]int{"a": 1}, []registry.Member{{ID: "b"}}},
		"one left and one was upgraded": {one, map[string]int{"a": 2}, []registry.Member{newer, {ID: "b"}}},
		"a new one, not announced yet":  {append(both, raftnode.Server{ID: "c"}), map[string]int{"a": 1, "b": 1, "c": 1}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			if got := stale(map[string]registry.Member{"a": a, "b": b}, tc.servers, tc.applies); !slices.Equal(got, tc.want) {
				t.Errorf("got %+v, want %+v", got, tc.want)
			}
		})
	}
}

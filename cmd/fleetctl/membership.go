package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/oomfleet/oomfleet/coordinator/api"
	"github.com/oomfleet/oomfleet/storage/raftnode"
	"github.com/oomfleet/oomfleet/storage/registry"
)

// ClusterMembers implements api.Cluster: what the node's members say of
// themselves, and the API addresses that the registry has.
func (r *replica) ClusterMembers(ctx context.Context) []api.ClusterMember {
	known := r.View().Members
	out := []api.ClusterMember{}
	for _, m := range r.Members(ctx) {
		out = append(out, api.ClusterMember{NewMember: api.NewMember{ID: m.ID, RaftAddr: m.RaftAddr, API: known[m.ID].API}, Role: role(m), Why: m.Why,
			Voter: m.Voter, AppliedIndex: m.AppliedIndex, Age: m.Age.Seconds(), Hash: m.Hash, State: string(m.State), Trouble: m.Trouble})
	}
	return out
}

// role is raft's word in the words of the API.
func role(m raftnode.Member) string {
	words := map[string]string{"Leader": "leader", "Follower": "follower", "Candidate": "candidate", "Shutdown": ""}
	return words[m.Role]
}

// AddMember implements api.Cluster. The member's API address goes to the
// registry, for it to be found once it leads.
func (r *replica) AddMember(ctx context.Context, m api.NewMember) error {
	if m.API == "" {
		return &api.ClusterRefusal{Why: "name the API's base URL too, for the others to pass requests on"}
	}
	if err := r.Add(ctx, raftnode.Server{ID: m.ID, RaftAddr: m.RaftAddr}); err != nil {
		return clusterError(err)
	}
	return r.announce(ctx, registry.Member{ID: m.ID, API: m.API, CommandVersion: r.View().Members[m.ID].CommandVersion})
}

// RemoveMember implements api.Cluster. Its address is forgotten with it.
func (r *replica) RemoveMember(ctx context.Context, id string) error {
	if err := r.Remove(ctx, id); err != nil {
		return clusterError(err)
	}
	return r.announce(ctx, registry.Member{ID: id})
}

func (r *replica) announce(ctx context.Context, member registry.Member) error {
	if r.View().Members[member.ID] == member {
		return nil
	}
	if _, err := r.Propose(ctx, registry.Command{SetMember: &registry.SetMember{Member: member}}); err != nil {
		return fmt.Errorf("announce member %s: %w", member.ID, err)
	}
	return nil
}

// attendEvery is how often the leader holds the registry's members against the
// cluster's.
const attendEvery = time.Second

// attend keeps the registry's members true while this node leads, until ctx ends:
// a member that was upgraded applies more, and one that the leader removed because
// it was dead must hold nothing up any more.
func (r *replica) attend(ctx context.Context) error {
	tick := time.NewTicker(attendEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if leading, _ := r.Leadership(); !leading {
			continue
		}
		servers := r.Servers()
		if len(servers) == 0 {
			continue // closed
		}
		for _, m := range stale(r.View().Members, servers, r.Applies()) {
			if err := r.announce(ctx, m); err != nil {
				break // it leads no more, or the next look does it
			}
		}
	}
}

// stale are the members of which the registry says something else than the
// cluster's list and what they said they apply.
func stale(known map[string]registry.Member, servers []raftnode.Server, applies map[string]int) []registry.Member {
	var out []registry.Member
	for _, id := range slices.Sorted(maps.Keys(known)) {
		m := known[id]
		if !slices.ContainsFunc(servers, func(s raftnode.Server) bool { return s.ID == id }) {
			out = append(out, registry.Member{ID: id})
		} else if has, asked := applies[id]; asked && has != m.CommandVersion {
			m.CommandVersion = has
			out = append(out, m)
		}
	}
	return out
}

func clusterError(err error) error {
	if errors.Is(err, raftnode.ErrNotFit) || errors.Is(err, raftnode.ErrQuorum) || errors.Is(err, raftnode.ErrNotMember) {
		return &api.ClusterRefusal{Why: err.Error(), Unknown: errors.Is(err, raftnode.ErrNotMember)}
	}
	return err
}

var _ api.Cluster = (*replica)(nil)

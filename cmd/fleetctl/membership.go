package main

import (
	"context"
	"errors"
	"fmt"

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
			Voter: m.Voter, AppliedIndex: m.AppliedIndex, Age: m.Age.Seconds(), Hash: m.Hash, State: string(m.State)})
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
	return r.announce(ctx, m.ID, m.API)
}

// RemoveMember implements api.Cluster. Its address is forgotten with it.
func (r *replica) RemoveMember(ctx context.Context, id string) error {
	if err := r.Remove(ctx, id); err != nil {
		return clusterError(err)
	}
	return r.announce(ctx, id, "")
}

func (r *replica) announce(ctx context.Context, id, address string) error {
	member := registry.Member{ID: id, API: address, CommandVersion: registry.CommandVersion}
	if r.View().Members[id] == member {
		return nil
	}
	if _, err := r.Propose(ctx, registry.Command{SetMember: &registry.SetMember{Member: member}}); err != nil {
		return fmt.Errorf("announce member %s: %w", id, err)
	}
	return nil
}

func clusterError(err error) error {
	if errors.Is(err, raftnode.ErrNotFit) || errors.Is(err, raftnode.ErrQuorum) || errors.Is(err, raftnode.ErrNotMember) {
		return &api.ClusterRefusal{Why: err.Error(), Unknown: errors.Is(err, raftnode.ErrNotMember)}
	}
	return err
}

var _ api.Cluster = (*replica)(nil)

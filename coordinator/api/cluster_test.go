package api_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http/httptest"
	"testing"

	"github.com/oomfleet/oomfleet/coordinator"
	"github.com/oomfleet/oomfleet/coordinator/api"
	"github.com/oomfleet/oomfleet/storage/registry"
)

// tended is a replica whose cluster can be changed.
type tended struct {
	replica
	members []api.ClusterMember
	added   []api.NewMember
	removed []string
	err     error
}

func (c *tended) ClusterMembers(context.Context) []api.ClusterMember { return c.members }

func (c *tended) AddMember(_ context.Context, m api.NewMember) error {
	if c.err == nil {
		c.added = append(c.added, m)
	}
	return c.err
}

func (c *tended) RemoveMember(_ context.Context, id string) error {
	if c.err == nil {
		c.removed = append(c.removed, id)
	}
	return c.err
}

func tend(t *testing.T, c *cluster, id string) (*tended, *httptest.Server) {
	t.Helper()
	node := &tended{replica: replica{c, id}}
	service, err := coordinator.New(coordinator.Config{}, coordinator.Deps{Registry: node, Queue: c.queue, Traces: c.traces})
	if err != nil {
		t.Fatal(err)
	}
	handler, err := api.New(api.Deps{ID: id, Sweeps: service, Registry: node, Traces: c.traces, Agents: c.queue})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	c.apply(registry.Command{SetMember: &registry.SetMember{Member: registry.Member{ID: id, API: server.URL, CommandVersion: registry.CommandVersion}}})
	return node, server
}

func TestClusterStatus(t *testing.T) {
	c := newCluster(t)
	node, server := tend(t, c, "n1")
	node.members = []api.ClusterMember{
		{NewMember: api.NewMember{ID: "n1"}, Role: "leader", Voter: true, AppliedIndex: 9, Hash: "x", State: "same"},
		{NewMember: api.NewMember{ID: "n2"}, Role: "follower", Voter: true, AppliedIndex: 4, State: "unknown"},
		{NewMember: api.NewMember{ID: "n3"}, Why: "no route", Voter: true, State: "unknown"},
		{NewMember: api.NewMember{ID: "n4"}, Role: "follower", AppliedIndex: 9, Hash: "x", State: "same"},
	}
	got, err := c.client(server).Cluster(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if got.Asked != "n1" || got.Leader != "n1" || got.Voters != 3 || got.Answering != 2 || got.MayLose != 0 || got.Alarm {
		t.Errorf("%+v", got)
	}
	if got.Members[1].Lag != 5 || got.Members[0].Lag != 0 || got.Members[2].Lag != 0 {
		t.Errorf("lags of %+v", got.Members)
	}
	node.members[3].State = "differs"
	node.members[2].Role = "follower"
	if got, err = c.client(server).Cluster(t.Context()); err != nil || !got.Alarm || got.MayLose != 1 {
		t.Errorf("%+v, %v", got, err)
	}
}

// TestClusterChanges: writes go to the leader, and what cannot be done says why.
func TestClusterChanges(t *testing.T) {
	c := newCluster(t)
	leader, at := tend(t, c, "n1")
	_, follower := tend(t, c, "n2")
	m := api.NewMember{ID: "n4", RaftAddr: "h:1", API: "http://h:2"}
	if got, err := c.client(follower).Join(t.Context(), m); err != nil || got != m {
		t.Fatalf("%+v, %v", got, err)
	}
	if _, err := c.client(follower).Remove(t.Context(), "n3"); err != nil {
		t.Fatal(err)
	}
	if len(leader.added) != 1 || leader.added[0] != m || len(leader.removed) != 1 || leader.removed[0] != "n3" {
		t.Errorf("the leader added %v and removed %v", leader.added, leader.removed)
	}
	for err, want := range map[error]struct {
		status int
		code   string
	}{
		&api.ClusterRefusal{Why: "too few"}:                 {409, api.CodeRefused},
		&api.ClusterRefusal{Why: "no such", Unknown: true}:  {404, api.CodeNotFound},
		fmt.Errorf("gone: %w", registry.ErrNotLeader):       {503, api.CodeNoLeader},
		fmt.Errorf("on the way: %w", registry.ErrUncertain): {503, api.CodeUncertain},
		errors.New("a secret"):                              {503, api.CodeUnavailable},
	} {
		leader.err = err
		text, _ := json.Marshal(m)
		c.request("POST", at.URL+"/v1/cluster/join", string(text)).wantProblem(t, want.status, want.code, "")
		c.request("POST", at.URL+"/v1/cluster/remove", `{"id":"n3"}`).wantProblem(t, want.status, want.code, "")
	}
	// A registry without a cluster has none to change.
	c.request("GET", c.serve("n3", nil).URL+"/v1/cluster", "").wantProblem(t, 503, api.CodeUnavailable, "no cluster")
}

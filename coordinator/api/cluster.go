package api

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"
)

const clusterPath = "/v1/cluster"

// changeWithin bounds a change of the cluster's members.
const changeWithin = 30 * time.Second

// Cluster is the coordinators' own list of themselves. A Registry that has these
// methods too lets administrators change it; one that has not refuses.
type Cluster interface {
	// ClusterMembers asks all members how they stand, this one included.
	ClusterMembers(ctx context.Context) []ClusterMember
	// AddMember and RemoveMember change the list, on the leader only, which
	// they may name as registry.ErrNotLeader does. What cannot be done as it is
	// asked for is a *ClusterRefusal.
	AddMember(ctx context.Context, m NewMember) error
	RemoveMember(ctx context.Context, id string) error
}

// ClusterRefusal is returned for a change that the cluster cannot take.
type ClusterRefusal struct {
	// Unknown is whether there is no such member.
	Unknown bool
	// Why says what to do instead.
	Why string
}

// Error is why.
func (e *ClusterRefusal) Error() string { return e.Why }

// NewMember is a coordinator to add, or one that has moved.
type NewMember struct {
	ID string `json:"id" doc:"the coordinator's id, as in its configuration"`
	// RaftAddr is host:port for the other coordinators, API the base URL for
	// everybody else.
	RaftAddr string `json:"raft_addr" doc:"host:port for the other coordinators"`
	API      string `json:"api" doc:"base URL for everybody else"`
}

// ClusterMember is one coordinator as it says itself.
type ClusterMember struct {
	NewMember
	// Role is leader, follower or candidate; empty when it does not answer,
	// and Why says why. Voter is whether it counts for a majority.
	Role  string `json:"role"`
	Why   string `json:"why,omitempty"`
	Voter bool   `json:"voter"`
	// Lag is how many entries it is behind the furthest member, Age how old its
	// state may be.
	AppliedIndex uint64  `json:"applied_index"`
	Lag          uint64  `json:"lag"`
	Age          float64 `json:"age_seconds"`
	Hash         string  `json:"state_hash"`
	// State compares it with the state of the coordinator that answers: same,
	// differs (at the same entry: an alarm), or unknown.
	State string `json:"state"`
	// Trouble is what a person has to do for it to go on, by its own word.
	Trouble string `json:"trouble,omitempty"`
}

// ClusterStatus is one coordinator's look at its cluster.
type ClusterStatus struct {
	// Asked is who answers, Leader who leads by its knowledge.
	Asked  string `json:"asked"`
	Leader string `json:"leader"`
	// Voters may vote, Answering do; MayLose is how many more may be lost.
	Voters    int             `json:"voters"`
	Answering int             `json:"answering"`
	MayLose   int             `json:"may_lose"`
	Alarm     bool            `json:"alarm"` // states differ at the same entry
	Members   []ClusterMember `json:"members"`
}

// clusterStatus adds up what members say.
func clusterStatus(asked, leader string, members []ClusterMember) ClusterStatus {
	out := ClusterStatus{Asked: asked, Leader: leader, Members: members}
	furthest := uint64(0)
	for _, m := range members {
		furthest = max(furthest, m.AppliedIndex)
		out.Alarm = out.Alarm || m.State == "differs"
		if m.Voter {
			out.Voters++
			if m.Role != "" {
				out.Answering++
			}
		}
	}
	for i := range members {
		if members[i].Role != "" {
			members[i].Lag = furthest - members[i].AppliedIndex
		}
	}
	out.MayLose = max(0, out.Answering-(out.Voters/2+1))
	return out
}

// memberName names a member.
type memberName struct {
	ID string `json:"id" doc:"the coordinator's id"`
}

func (s *server) registerCluster(h huma.API) {
	huma.Register(h, huma.Operation{OperationID: "cluster", Method: http.MethodGet, Path: clusterPath, Summary: "How the coordinators stand, each by its own word"},
		func(ctx context.Context, _ *struct{}) (*body[ClusterStatus], error) {
			cluster, err := s.cluster()
			if err != nil {
				return nil, err
			}
			return &body[ClusterStatus]{clusterStatus(s.ID, s.Registry.LeaderID(), cluster.ClusterMembers(ctx))}, nil
		})
	huma.Register(h, huma.Operation{OperationID: "join", Method: http.MethodPost, Path: clusterPath + "/join", Summary: "Add a coordinator, or say where one is now"},
		func(ctx context.Context, in *struct{ Body NewMember }) (*body[NewMember], error) {
			return s.changeCluster(ctx, in.Body, func(ctx context.Context, c Cluster) error { return c.AddMember(ctx, in.Body) })
		})
	huma.Register(h, huma.Operation{OperationID: "remove", Method: http.MethodPost, Path: clusterPath + "/remove", Summary: "Take a coordinator out of the cluster"},
		func(ctx context.Context, in *struct{ Body memberName }) (*body[NewMember], error) {
			return s.changeCluster(ctx, NewMember{ID: in.Body.ID}, func(ctx context.Context, c Cluster) error { return c.RemoveMember(ctx, in.Body.ID) })
		})
}

func (s *server) cluster() (Cluster, error) {
	if cluster, ok := s.Registry.(Cluster); ok {
		return cluster, nil
	}
	return nil, problem(http.StatusServiceUnavailable, CodeUnavailable, "this coordinator has no cluster")
}

func (s *server) changeCluster(ctx context.Context, m NewMember, change func(context.Context, Cluster) error) (*body[NewMember], error) {
	cluster, err := s.cluster()
	if err != nil {
		return nil, err
	}
	// Whoever asked may go; half a change is none that anybody wants.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), changeWithin)
	defer cancel()
	err = change(ctx, cluster)
	var refusal *ClusterRefusal
	switch {
	case errors.As(err, &refusal) && refusal.Unknown:
		return nil, problem(http.StatusNotFound, CodeNotFound, refusal.Why)
	case errors.As(err, &refusal):
		return nil, problem(http.StatusConflict, CodeRefused, refusal.Why)
	case err != nil:
		return nil, s.problemOf(err)
	}
	s.Log.Warn("cluster was changed", "member", m.ID, "address", m.RaftAddr)
	return &body[NewMember]{m}, nil
}

// Cluster asks a coordinator how all of them stand.
func (c *Client) Cluster(ctx context.Context) (ClusterStatus, error) {
	return ask[ClusterStatus](ctx, c, http.MethodGet, clusterPath, nil)
}

// Join adds a coordinator to the cluster, or says where a member is now.
func (c *Client) Join(ctx context.Context, m NewMember) (NewMember, error) {
	return ask[NewMember](ctx, c, http.MethodPost, clusterPath+"/join", m)
}

// Remove takes a coordinator out of the cluster.
func (c *Client) Remove(ctx context.Context, id string) (NewMember, error) {
	return ask[NewMember](ctx, c, http.MethodPost, clusterPath+"/remove", memberName{id})
}

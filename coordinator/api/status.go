package api

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/oomfleet/oomfleet/coordinator"
	"github.com/oomfleet/oomfleet/proto"
	"github.com/oomfleet/oomfleet/storage/registry"
)

// Status is one coordinator's answer about itself and the cluster.
type Status struct {
	ID string `json:"id"`
	Position
	Leader      string    `json:"leader"`
	Version     string    `json:"version"`
	AppliedTime time.Time `json:"applied_time"`
	// Hash is of the whole state, Content of what a backup holds; empty where they
	// were not asked for.
	Hash    string            `json:"state_hash"`
	Content string            `json:"content_hash"`
	Members []registry.Member `json:"members"`
	// Troubles are the parts of the fleet that this coordinator cannot use; only a
	// leader has any.
	Troubles []coordinator.Trouble `json:"troubles,omitempty" doc:"parts of the fleet that the leader cannot use, so that sweeps stand still; the leader alone knows"`
}

// Troubled knows what a leader cannot use. Sweeps that have this method are asked.
type Troubled interface {
	Troubles() []coordinator.Trouble
}

// AgentList is the answer of the list of agents.
type AgentList struct {
	Agents []proto.AgentInfo `json:"agents"`
}

// digests keeps the hashes of the newest state that was asked for: of a large one
// they take seconds, and whoever looks at a coordinator looks again and again.
type digests struct {
	mu            sync.Mutex // guards the rest; held while they are taken, as once is enough
	index         uint64
	hash, content string // empty for none yet
}

func (d *digests) of(v registry.View) (hash, content string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.hash == "" || d.index != v.AppliedIndex {
		d.index, d.hash, d.content = v.AppliedIndex, v.Hash(), v.Content()
	}
	return d.hash, d.content
}

func (s *server) registerStatus(h huma.API) {
	digests := &digests{}
	huma.Register(h, huma.Operation{OperationID: "status", Method: http.MethodGet, Path: "/v1/status", Summary: "This coordinator and its cluster"},
		func(_ context.Context, in *struct {
			Hashes bool `query:"hashes" default:"true" doc:"false leaves out the hashes, which take long for a large state"`
		}) (*body[Status], error) {
			view, at := s.look()
			out := Status{ID: s.ID, Position: at, Leader: s.Registry.LeaderID(), Version: s.Version,
				AppliedTime: view.AppliedTime, Members: []registry.Member{}}
			if in.Hashes {
				out.Hash, out.Content = digests.of(view)
			}
			if troubled, ok := s.Sweeps.(Troubled); ok {
				out.Troubles = troubled.Troubles()
			}
			for _, m := range view.Members {
				out.Members = append(out.Members, m)
			}
			slices.SortFunc(out.Members, func(a, b registry.Member) int { return strings.Compare(a.ID, b.ID) })
			return &body[Status]{out}, nil
		})
	huma.Register(h, huma.Operation{OperationID: "agents", Method: http.MethodGet, Path: "/v1/agents", Summary: "Agents announced now"},
		func(ctx context.Context, _ *struct{}) (*body[AgentList], error) {
			agents, err := s.Agents.Agents(ctx)
			if err != nil {
				return nil, s.problemAt(partQueue, err)
			}
			out := AgentList{Agents: []proto.AgentInfo{}}
			for _, a := range agents {
				if a.QuotaKinds == nil {
					a.QuotaKinds = []proto.QuotaKind{}
				}
				out.Agents = append(out.Agents, a)
			}
			return &body[AgentList]{out}, nil
		})
}

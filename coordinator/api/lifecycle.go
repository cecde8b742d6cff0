package api

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/oomfleet/oomfleet/coordinator"
	"github.com/oomfleet/oomfleet/proto"
)

const collectPath = "/v1/traces/collect"

// longestDrain bounds how long an agent may be given to finish its run.
const longestDrain = 24 * time.Hour

// Keeper takes agents away and keeps the trace store clean. Sweeps that have
// these methods too can be asked for it; others refuse.
type Keeper interface {
	Drain(ctx context.Context, id proto.AgentID, within time.Duration) (proto.AgentInfo, error)
	Collect(ctx context.Context, r coordinator.CollectRequest) (coordinator.Collection, error)
}

// Drain is the body of a drain.
type Drain struct {
	// WithinSeconds is for how long the agent's run may go on.
	WithinSeconds int `json:"within_seconds" minimum:"1" maximum:"86400" doc:"for how long the agent's run may go on"`
}

// Drained is the answer: the agent as it announced itself when it was told.
type Drained struct {
	Agent proto.AgentInfo `json:"agent"`
}

// Collect is the body of a collection.
type Collect struct {
	// KeepSeconds is how old an object must be that the registry does not refer to.
	KeepSeconds int  `json:"keep_seconds" minimum:"86400" doc:"how old an object must be that nothing refers to; a day at least"`
	DryRun      bool `json:"dry_run,omitempty" doc:"remove nothing"`
	Force       bool `json:"force,omitempty" doc:"remove even if most of the store would go"`
}

func (s *server) registerLifecycle(h huma.API) {
	refusal := func() error {
		return problem(http.StatusConflict, CodeRefused, "this coordinator cannot do that")
	}
	huma.Register(h, huma.Operation{OperationID: "drain", Method: http.MethodPost, Path: "/v1/agents/{id}/drain", Summary: "Tell an agent to take no more work and to end"},
		func(ctx context.Context, in *struct {
			ID   string `path:"id"`
			Body Drain
		}) (*body[Drained], error) {
			keeper, ok := s.Sweeps.(Keeper)
			if !ok {
				return nil, refusal()
			}
			agent, err := keeper.Drain(ctx, proto.AgentID(in.ID), min(time.Duration(in.Body.WithinSeconds)*time.Second, longestDrain))
			if errors.Is(err, coordinator.ErrUnknownAgent) {
				return nil, problem(http.StatusNotFound, CodeNotFound, "no such agent is announced; agents list shows them")
			}
			if err != nil {
				return nil, s.problemAt(partQueue, err)
			}
			if agent.QuotaKinds == nil {
				agent.QuotaKinds = []proto.QuotaKind{}
			}
			return &body[Drained]{Drained{agent}}, nil
		})
	huma.Register(h, huma.Operation{OperationID: "collect", Method: http.MethodPost, Path: collectPath, Summary: "Remove stored objects that nothing refers to, or list them"},
		func(ctx context.Context, in *struct{ Body Collect }) (*body[coordinator.Collection], error) {
			keeper, ok := s.Sweeps.(Keeper)
			if !ok {
				return nil, refusal()
			}
			got, err := keeper.Collect(ctx, coordinator.CollectRequest{Keep: time.Duration(in.Body.KeepSeconds) * time.Second, DryRun: in.Body.DryRun, Force: in.Body.Force})
			if err != nil {
				return nil, s.problemOf(err)
			}
			return &body[coordinator.Collection]{got}, nil
		})
}

// Drain tells an agent to take no more work; see coordinator.Coordinator.Drain.
func (c *Client) Drain(ctx context.Context, id proto.AgentID, d Drain) (Drained, error) {
	return ask[Drained](ctx, c, http.MethodPost, "/v1/agents/"+url.PathEscape(string(id))+"/drain", d)
}

// Collect removes stored objects that nothing refers to, or lists them.
func (c *Client) Collect(ctx context.Context, r Collect) (coordinator.Collection, error) {
	return ask[coordinator.Collection](ctx, c, http.MethodPost, collectPath, r)
}

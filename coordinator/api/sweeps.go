package api

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/oomfleet/oomfleet/coordinator"
	"github.com/oomfleet/oomfleet/proto"
	"github.com/oomfleet/oomfleet/storage/registry"
)

// Submission is the body of a submit.
type Submission struct {
	// Source is the matrix file's text, Set its overrides as --set takes them.
	Source string   `json:"source"`
	Set    []string `json:"set,omitempty"`
	// Origin is measured or simulated: which agents are to run it.
	Origin proto.Origin `json:"origin" enum:"measured,simulated"`
	// Again makes a sweep of its own of a matrix that was submitted before.
	Again bool `json:"again,omitempty"`
	// Request makes the same again harmless also with Again. It travels as the
	// header Idempotency-Key, which a coordinator that does not know it passes over.
	Request string `json:"-"`
}

// SweepList is the answer of the list of sweeps.
type SweepList struct {
	Sweeps []registry.Summary `json:"sweeps"`
	Position
}

// SweepReport is the answer of one sweep.
type SweepReport struct {
	proto.Report
	AgeSeconds float64 `json:"age_seconds"`
}

// Cancelled is the answer of a cancel.
type Cancelled struct {
	ID     proto.MatrixID `json:"id"`
	Closed int            `json:"closed"`
}

// sweepPath is one sweep's.
const sweepPath = "/v1/sweeps/{id}"

// body wraps an answer's document the way huma wants it.
type body[T any] struct{ Body T }

func (s *server) registerSweeps(h huma.API) {
	s.registerRollout(h)
	huma.Register(h, huma.Operation{OperationID: "submit", Method: http.MethodPost, Path: "/v1/sweeps", Summary: "Submit a matrix", MaxBodyBytes: maxBody},
		func(ctx context.Context, in *struct {
			Key  string `header:"Idempotency-Key" maxLength:"64" pattern:"^[A-Za-z0-9_-]+$" doc:"made up by the client for this one request; the same again counts once"`
			Body Submission
		}) (*body[coordinator.SubmitReply], error) {
			reply, err := s.Sweeps.Submit(ctx, coordinator.SubmitRequest{Source: in.Body.Source, Set: in.Body.Set, Origin: in.Body.Origin, Again: in.Body.Again, Request: in.Key})
			if err != nil {
				return nil, s.problemOf(err)
			}
			return &body[coordinator.SubmitReply]{reply}, nil
		})
	huma.Register(h, huma.Operation{OperationID: "sweeps", Method: http.MethodGet, Path: "/v1/sweeps", Summary: "List sweeps"},
		func(context.Context, *struct{}) (*body[SweepList], error) {
			view, at := s.look()
			return &body[SweepList]{SweepList{view.SweepList(), at}}, nil
		})
	huma.Register(h, huma.Operation{OperationID: "sweep", Method: http.MethodGet, Path: sweepPath, Summary: "Where a sweep stands"},
		func(_ context.Context, in *struct {
			ID string `path:"id"`
		}) (*body[SweepReport], error) {
			view, at := s.look()
			report, ok := view.Report(proto.MatrixID(in.ID))
			if !ok {
				return nil, s.problemOf(coordinator.ErrUnknownSweep)
			}
			report.Role = at.Role
			return &body[SweepReport]{SweepReport{report, at.AgeSeconds}}, nil
		})
	huma.Register(h, huma.Operation{OperationID: "cancel", Method: http.MethodPost, Path: "/v1/sweeps/{id}/cancel", Summary: "Cancel a sweep"},
		func(ctx context.Context, in *struct {
			ID string `path:"id"`
		}) (*body[Cancelled], error) {
			closed, err := s.Sweeps.Cancel(ctx, proto.MatrixID(in.ID))
			if err != nil {
				return nil, s.problemOf(err)
			}
			return &body[Cancelled]{Cancelled{proto.MatrixID(in.ID), closed}}, nil
		})
}

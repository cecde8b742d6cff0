package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"

	"github.com/danielgtaylor/huma/v2"

	"github.com/oomfleet/oomfleet/coordinator"
	"github.com/oomfleet/oomfleet/coordinator/diff"
	"github.com/oomfleet/oomfleet/proto"
	"github.com/oomfleet/oomfleet/storage/registry"
)

// Repeater records settled cells again; only the leader can.
type Repeater interface {
	Repeat(ctx context.Context, r coordinator.RepeatRequest) (coordinator.SubmitReply, error)
}

// Repetition is the body of a repeat.
type Repetition struct {
	Cells   []proto.CellID `json:"cells" minItems:"1"`
	Repeats int            `json:"repeats" minimum:"1" maximum:"20"`
	// Request makes the same again harmless; see Submission.
	Request string `json:"-"`
}

// SweepComparison is a comparison of two sweeps, and where it stands.
type SweepComparison struct {
	diff.Document
	Position
}

// compareSweepsQuery names two sweeps and how they are judged.
type compareSweepsQuery struct {
	After        string  `query:"after" required:"true" doc:"the sweep that is asked about"`
	Before       string  `query:"before" doc:"the sweep that it is compared with; left out, the one before of the same cells on the next older driver"`
	BeforeDriver string  `query:"before_driver" doc:"needed where the sweep has several drivers"`
	AfterDriver  string  `query:"after_driver" doc:"needed where the sweep has several drivers"`
	Margin       int64   `query:"margin_bytes" minimum:"1" default:"16777216" doc:"the difference that does not matter"`
	Confidence   float64 `query:"confidence" minimum:"0.5" maximum:"0.999" default:"0.95" doc:"the rate at which the verdicts should hold"`
	Card         int64   `query:"card_bytes" minimum:"0" doc:"the memory of the card that jobs run on; 0 asks about none"`
}

func (s *server) registerRollout(h huma.API) {
	huma.Register(h, huma.Operation{OperationID: "compare-sweeps", Method: http.MethodGet, Path: "/v1/compare", Summary: "Compare two sweeps, cell by cell and term by term"},
		func(_ context.Context, q *compareSweepsQuery) (*body[SweepComparison], error) {
			view, at := s.look()
			doc, err := compareSweeps(view, *q)
			switch {
			case errors.Is(err, diff.ErrInput):
				return nil, problem(http.StatusUnprocessableEntity, CodeBadRequest, err.Error())
			case err != nil:
				return nil, s.problemOf(err)
			}
			return &body[SweepComparison]{SweepComparison{doc, at}}, nil
		})
	huma.Register(h, huma.Operation{OperationID: "repeat", Method: http.MethodPost, Path: "/v1/sweeps/{id}/repeat", Summary: "Record settled cells again"},
		func(ctx context.Context, in *struct {
			ID   string `path:"id"`
			Key  string `header:"Idempotency-Key" maxLength:"64" pattern:"^[A-Za-z0-9_-]+$" doc:"made up by the client for this one request; the same again counts once"`
			Body Repetition
		}) (*body[coordinator.SubmitReply], error) {
			again, ok := s.Sweeps.(Repeater)
			if !ok {
				return nil, problem(http.StatusServiceUnavailable, CodeUnavailable, "this coordinator cannot record cells again")
			}
			reply, err := again.Repeat(ctx, coordinator.RepeatRequest{Of: proto.MatrixID(in.ID), Cells: in.Body.Cells, Repeats: in.Body.Repeats, Request: in.Key})
			if err != nil {
				return nil, s.problemOf(err)
			}
			return &body[coordinator.SubmitReply]{reply}, nil
		})
}

func compareSweeps(v registry.View, q compareSweepsQuery) (diff.Document, error) {
	after := v.Sweeps[proto.MatrixID(q.After)]
	if after == nil {
		return diff.Document{}, fmt.Errorf("compare %q: %w", q.After, coordinator.ErrUnknownSweep)
	}
	if q.Before == "" {
		before, driver, newer := coordinator.BaseOf(v, after)
		if newer {
			return diff.Document{}, fmt.Errorf("%w: what has settled before %s is of newer drivers, and a driver is held against an older one; name the sweep to compare it with", diff.ErrInput, q.After)
		}
		if before == nil {
			return diff.Document{}, fmt.Errorf("%w: nothing that has settled before %s has its cells on another stack; name the sweep to compare it with", diff.ErrInput, q.After)
		}
		q.Before, q.BeforeDriver = string(before.ID), driver
	}
	before, ok := v.Report(proto.MatrixID(q.Before))
	if !ok {
		return diff.Document{}, fmt.Errorf("compare %q: %w", q.Before, coordinator.ErrUnknownSweep)
	}
	report, _ := v.Report(after.ID)
	return diff.Sweeps(diff.Side{Name: q.Before, Report: before, Driver: q.BeforeDriver}, diff.Side{Name: q.After, Report: report, Driver: q.AfterDriver},
		diff.Options{Margin: proto.Bytes(q.Margin), Confidence: q.Confidence, Card: proto.Bytes(q.Card)})
}

// CompareSweeps compares two sweeps; see compareSweepsQuery for the parameters.
func (c *Client) CompareSweeps(ctx context.Context, question url.Values) (SweepComparison, error) {
	return ask[SweepComparison](ctx, c, http.MethodGet, "/v1/compare?"+question.Encode(), nil)
}

// Repeat records settled cells again. It counts once: see Submit.
func (c *Client) Repeat(ctx context.Context, of proto.MatrixID, r Repetition) (coordinator.SubmitReply, error) {
	return askOnce[coordinator.SubmitReply](ctx, c, r.Request, "/v1/sweeps/"+url.PathEscape(string(of))+"/repeat", r)
}

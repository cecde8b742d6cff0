package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/oomfleet/oomfleet/coordinator/quota"
	"github.com/oomfleet/oomfleet/proto"
)

// Recommendation is a quota with its evidence.
type Recommendation = quota.Recommendation

// questionWithin bounds the replays of one question. A recommendation takes one
// sweep, a search about twenty; a second of settings that split much each.
const questionWithin = time.Minute

// SubjectQuery is what every question for a quota has. It is exported for huma,
// which reads embedded parameters of exported types alone. Driver and GPU may be
// left out where only one is known.
type SubjectQuery struct {
	GPU       string   `query:"gpu"`
	Driver    string   `query:"driver"`
	Workload  string   `query:"workload" default:"esmfold"`
	Params    []string `query:"param,explode" doc:"KEY=VALUE of the workload, may be repeated; needed where several variants are known"`
	ChunkSize int      `query:"chunk_size" minimum:"0" default:"0"`
	Env       []string `query:"env,explode" doc:"KEY=VALUE, may be repeated"`
	Kind      string   `query:"quota_kind" enum:"allocator,process,device" default:"allocator"`
	Origin    string   `query:"origin" enum:"measured,simulated,imported" default:"measured"`
	Risk      float64  `query:"risk" minimum:"0.0001" maximum:"0.5" default:"0.01" doc:"how probable an out-of-memory may be where the answer is a fit's bound"`
}

// PointQuery is a question for one length and batch.
type PointQuery struct {
	SubjectQuery
	SeqLen      int  `query:"seq_len" required:"true" minimum:"1"`
	Batch       int  `query:"batch" minimum:"1" default:"1"`
	Extrapolate bool `query:"extrapolate" doc:"answer outside the fitted domain too, marked"`
}

// question reads the parameters; what is wrong with them is a *Problem.
func (q *SubjectQuery) question() (quota.Question, error) {
	out := quota.Question{Kind: proto.QuotaKind(q.Kind), Origin: proto.Origin(q.Origin), Risk: q.Risk,
		Subject: quota.Subject{Workload: q.Workload, GPU: q.GPU, Driver: q.Driver, ChunkSize: q.ChunkSize}}
	var err error
	if out.Env, err = pairs("env", q.Env); err != nil {
		return out, err
	}
	out.Params, err = pairs("param", q.Params)
	return out, err
}

func (q *PointQuery) question() (quota.Question, error) {
	out, err := q.SubjectQuery.question()
	out.SeqLen, out.Batch, out.Extrapolate = q.SeqLen, q.Batch, q.Extrapolate
	return out, err
}

// desk answers questions for quotas.
type desk struct {
	*server
	shelf *shelf
	// seats bounds the questions that replay at once: a coordinator has other
	// work to do.
	seats chan struct{}
}

// answered runs one question on this node's view.
func answered[T any](ctx context.Context, d *desk, ask func(quota.Adviser) (T, error)) (*body[T], error) {
	ctx, cancel := context.WithTimeout(ctx, questionWithin)
	defer cancel()
	tooLong := problem(http.StatusServiceUnavailable, CodeUnavailable, "the question takes more replays than fit into a minute: ask for single lengths and batches, or try again when the coordinator has less to do")
	select {
	case d.seats <- struct{}{}:
		defer func() { <-d.seats }()
	case <-ctx.Done():
		return nil, tooLong
	}
	view, at := d.look()
	answer, err := ask(quota.Adviser{View: view, At: quota.Stamp(at), Library: d.shelf.within(ctx), Now: time.Now(),
		Stop: func() bool { return ctx.Err() != nil }})
	var refused *quota.Refusal
	switch {
	case ctx.Err() != nil:
		return nil, tooLong
	case errors.As(err, &refused):
		return nil, problem(statusOf(refused.Code), string(refused.Code), refused.Why)
	case err != nil:
		return nil, d.problemOf(fmt.Errorf("answer a question: %w", err))
	}
	return &body[T]{answer}, nil
}

// statusOf is the status of a refusal: the question's own fault, or nothing to
// answer it from.
func statusOf(code quota.Code) int {
	switch code {
	case quota.BadQuestion, quota.Ambiguous:
		return http.StatusBadRequest
	case quota.UnknownDriver, quota.NotCovered:
		return http.StatusNotFound
	case quota.OutsideDomain, quota.NothingFits:
		return http.StatusUnprocessableEntity
	}
	panic("api: a refusal without a status: " + string(code))
}

func (s *server) registerQuota(h huma.API) {
	d := &desk{server: s, shelf: newShelf(s.Traces), seats: make(chan struct{}, max(1, runtime.GOMAXPROCS(0)/2))}
	huma.Register(h, huma.Operation{OperationID: "quota", Method: http.MethodGet, Path: "/v1/quota", Summary: "A quota for one workload, with its evidence"},
		func(ctx context.Context, in *PointQuery) (*body[Recommendation], error) {
			q, err := in.question()
			if err != nil {
				return nil, err
			}
			return answered(ctx, d, func(a quota.Adviser) (Recommendation, error) {
				return a.Recommend(q)
			})
		})
	d.registerBackward(h)
	d.registerCompare(h)
}

package api

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/oomfleet/oomfleet/proto"
	"github.com/oomfleet/oomfleet/storage/registry"
)

// CoefficientList is the answer of the coefficients.
type CoefficientList struct {
	Coefficients []proto.Coefficients `json:"coefficients"`
	Position
}

// coefficientQuery filters coefficients; an empty field matches all.
type coefficientQuery struct {
	GPU       string `query:"gpu"`
	Driver    string `query:"driver"`
	Workload  string `query:"workload"`
	Origin    string `query:"origin" enum:"measured,simulated,imported"`
	QuotaKind string `query:"quota_kind" enum:"allocator,process,device"`
}

func (q coefficientQuery) matches(k registry.GroupKey, c proto.Coefficients) bool {
	return (q.GPU == "" || q.GPU == c.Group.GPU) && (q.Driver == "" || q.Driver == c.Group.Driver) &&
		(q.Workload == "" || q.Workload == c.Group.Workload.Name) && (q.Origin == "" || q.Origin == string(k.Origin)) &&
		(q.QuotaKind == "" || q.QuotaKind == string(k.QuotaKind))
}

// quotaQuery is a question for a quota. Driver and GPU may be left out where
// only one is known.
type quotaQuery struct {
	SeqLen    int      `query:"seq_len" required:"true" minimum:"1"`
	Batch     int      `query:"batch" minimum:"1" default:"1"`
	ChunkSize int      `query:"chunk_size" minimum:"0" default:"0"`
	GPU       string   `query:"gpu"`
	Driver    string   `query:"driver"`
	Workload  string   `query:"workload" default:"esmfold"`
	Params    []string `query:"param,explode" doc:"KEY=VALUE of the workload, may be repeated; needed where several variants are known"`
	Env       []string `query:"env,explode" doc:"KEY=VALUE, may be repeated"`
	Kind      string   `query:"quota_kind" enum:"allocator,process,device" default:"allocator"`
	Origin    string   `query:"origin" enum:"measured,simulated,imported" default:"measured"`
}

func (s *server) registerAnswers(h huma.API) {
	huma.Register(h, huma.Operation{OperationID: "coefficients", Method: http.MethodGet, Path: "/v1/coefficients", Summary: "Fitted coefficients"},
		func(_ context.Context, q *coefficientQuery) (*body[CoefficientList], error) {
			view, at := s.look()
			out := CoefficientList{Coefficients: []proto.Coefficients{}, Position: at}
			for _, k := range slices.SortedFunc(maps.Keys(view.Coefficients), registry.GroupKey.Compare) {
				for _, c := range view.Coefficients[k].Models {
					if q.matches(k, c) {
						out.Coefficients = append(out.Coefficients, c)
					}
				}
			}
			return &body[CoefficientList]{out}, nil
		})
	huma.Register(h, huma.Operation{OperationID: "quota", Method: http.MethodGet, Path: "/v1/quota", Summary: "A quota for one workload"},
		func(_ context.Context, q *quotaQuery) (*body[Recommendation], error) {
			question := Question{SeqLen: q.SeqLen, Batch: q.Batch, ChunkSize: q.ChunkSize, GPU: q.GPU, Driver: q.Driver,
				Workload: q.Workload, QuotaKind: proto.QuotaKind(q.Kind), Origin: proto.Origin(q.Origin)}
			var errs [2]error
			question.Env, errs[0] = pairs("env", q.Env)
			question.Params, errs[1] = pairs("param", q.Params)
			if err := cmp.Or(errs[:]...); err != nil {
				return nil, err
			}
			view := s.Registry.View()
			answer, err := Recommend(view, question)
			if err != nil {
				return nil, problem(http.StatusNotFound, CodeNotCovered, err.Error())
			}
			answer.AppliedIndex, answer.Role = view.AppliedIndex, s.role()
			return &body[Recommendation]{answer}, nil
		})
}

// pairs reads KEY=VALUE pairs; a value may hold anything.
func pairs(parameter string, texts []string) (map[string]string, error) {
	out := map[string]string{}
	for _, text := range texts {
		name, value, ok := strings.Cut(text, "=")
		if !ok || name == "" {
			return nil, problem(http.StatusBadRequest, CodeBadRequest, fmt.Sprintf("%s takes KEY=VALUE, not %q", parameter, text))
		}
		out[name] = value
	}
	return out, nil
}

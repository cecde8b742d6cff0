package api

import (
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

// CoefficientQuery filters coefficients; an empty field matches all. It is
// exported for huma, which reads embedded parameters of exported types alone.
type CoefficientQuery struct {
	GPU       string `query:"gpu"`
	Driver    string `query:"driver"`
	Workload  string `query:"workload"`
	Origin    string `query:"origin" enum:"measured,simulated,imported"`
	QuotaKind string `query:"quota_kind" enum:"allocator,process,device"`
}

func (q CoefficientQuery) matches(k registry.GroupKey, c proto.Coefficients) bool {
	return (q.GPU == "" || q.GPU == c.Group.GPU) && (q.Driver == "" || q.Driver == c.Group.Driver) &&
		(q.Workload == "" || q.Workload == c.Group.Workload.Name) && (q.Origin == "" || q.Origin == string(k.Origin)) &&
		(q.QuotaKind == "" || q.QuotaKind == string(k.QuotaKind))
}

func (s *server) registerAnswers(h huma.API) {
	huma.Register(h, huma.Operation{OperationID: "coefficients", Method: http.MethodGet, Path: "/v1/coefficients", Summary: "Fitted coefficients"},
		func(_ context.Context, q *CoefficientQuery) (*body[CoefficientList], error) {
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

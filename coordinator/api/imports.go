package api

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/oomfleet/oomfleet/coordinator"
	"github.com/oomfleet/oomfleet/proto"
)

// Import is the body of an import.
type Import struct {
	// Coefficients are of origin imported; see coordinator.Import.
	Coefficients []proto.Coefficients `json:"coefficients"`
}

func (s *server) registerImport(h huma.API) {
	huma.Register(h, huma.Operation{OperationID: "import", Method: http.MethodPost, Path: "/v1/coefficients", Summary: "Import coefficients that were made elsewhere", MaxBodyBytes: maxBody},
		func(ctx context.Context, in *struct{ Body Import }) (*body[coordinator.ImportReply], error) {
			if s.Imports == nil {
				return nil, problem(http.StatusServiceUnavailable, CodeUnavailable, "this coordinator takes no imports")
			}
			reply, err := s.Imports.Import(ctx, in.Body.Coefficients)
			if err != nil {
				return nil, s.problemOf(err)
			}
			return &body[coordinator.ImportReply]{reply}, nil
		})
}

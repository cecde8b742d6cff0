package api_test

import (
	"context"
	"fmt"
	"net/http/httptest"
	"testing"

	"github.com/oomfleet/oomfleet/coordinator"
	"github.com/oomfleet/oomfleet/coordinator/api"
	"github.com/oomfleet/oomfleet/storage/registry"
)

// outgrown takes sweeps that another coordinator could not apply.
type outgrown struct{ nothing }

func (outgrown) Submit(context.Context, coordinator.SubmitRequest) (coordinator.SubmitReply, error) {
	return coordinator.SubmitReply{}, fmt.Errorf("submit: %w: this needs command version 2", registry.ErrOldMember)
}

// TestOlderCoordinator: a write that waits for an upgrade says so.
func TestOlderCoordinator(t *testing.T) {
	c := newCluster(t)
	handler, err := api.New(api.Deps{ID: "n1", Sweeps: outgrown{}, Registry: replica{c, "n1"}, Traces: c.traces, Agents: c.queue})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(handler)
	defer server.Close()
	c.request("POST", server.URL+"/v1/sweeps", `{"source":"x","origin":"measured"}`).wantProblem(t, 409, api.CodeRefused, "older build")
}

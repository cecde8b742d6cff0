package api_test

import (
	"bytes"
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/oomfleet/oomfleet/coordinator"
	"github.com/oomfleet/oomfleet/coordinator/api"
	"github.com/oomfleet/oomfleet/proto"
)

// broken takes a sweep badly.
type broken struct{ nothing }

func (broken) Submit(context.Context, coordinator.SubmitRequest) (coordinator.SubmitReply, error) {
	panic("a broken invariant")
}

// TestPanicsAreAnswered: with a document, without what is inside, and the log
// has the stack; an answer that has begun is cut off.
func TestPanicsAreAnswered(t *testing.T) {
	c := newCluster(t)
	var log bytes.Buffer
	node := replica{c, "n1"}
	handler, err := api.New(api.Deps{ID: "n1", Sweeps: broken{}, Registry: node, Traces: c.traces, Agents: c.queue,
		Log: slog.New(slog.NewTextHandler(&log, nil)),
		Metrics: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusOK)
			panic("half way")
		})})
	if err != nil {
		t.Fatal(err)
	}
	ask := func(method, path, body string) (w *httptest.ResponseRecorder, panicked any) {
		w = httptest.NewRecorder()
		r := httptest.NewRequest(method, path, strings.NewReader(body))
		r.Header.Set("Content-Type", "application/json")
		defer func() { panicked = recover() }()
		handler.ServeHTTP(w, r)
		return w, nil
	}
	w, panicked := ask("POST", "/v1/sweeps", `{"source": "x", "origin": "`+string(proto.OriginMeasured)+`"}`)
	if panicked != nil {
		t.Fatalf("panicked with %v", panicked)
	}
	answer{w.Code, w.Header().Get("Content-Type"), w.Body.String()}.wantProblem(t, http.StatusInternalServerError, api.CodeInternal, "its log says which")
	if strings.Contains(w.Body.String(), "invariant") || !strings.Contains(log.String(), "a broken invariant") || !strings.Contains(log.String(), "recover_test.go") {
		t.Errorf("answered %s and logged %s", w.Body, log.String())
	}
	if _, panicked := ask("GET", "/metrics", ""); panicked != http.ErrAbortHandler {
		t.Errorf("an answer that has begun ends with %v", panicked)
	}
}

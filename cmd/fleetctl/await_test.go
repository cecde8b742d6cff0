package main

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/oomfleet/oomfleet/proto"
)

// TestWhoWaitsBearsSilence: a coordinator that is away for a moment when the wait
// begins is waited for; a sweep that nobody knows is not.
func TestWhoWaitsBearsSilence(t *testing.T) {
	report := proto.Report{Matrix: proto.MatrixRef{Name: "nightly", ID: "nightly-2794c5ed"}, State: "settled", Origin: proto.OriginMeasured}
	var asked atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case asked.Add(1) <= 3:
			panic(http.ErrAbortHandler) // the connection ends without an answer
		case strings.HasSuffix(r.URL.Path, "/"+string(report.Matrix.ID)):
			w.Header().Set("Content-Type", "application/json")
			if err := json.NewEncoder(w).Encode(report); err != nil {
				t.Error(err)
			}
		case strings.HasSuffix(r.URL.Path, "/sweeps"):
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write([]byte(`{"sweeps":[]}`))
		default:
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusNotFound)
			_, _ = w.Write([]byte(`{"code":"not_found","message":"no such sweep"}`))
		}
	}))
	defer server.Close()
	var out, errs bytes.Buffer
	status := func(id string) int {
		return run(t.Context(), []string{"matrix", "status", id, "--wait", "--server", server.URL}, streams{in: strings.NewReader(""), out: &out, err: &errs})
	}
	if code := status(string(report.Matrix.ID)); code != 0 {
		t.Errorf("exit code %d: %s", code, errs.String())
	}
	if n := strings.Count(errs.String(), "waiting for an answer"); n != 1 {
		t.Errorf("the wait was said %d times: %s", n, errs.String())
	}
	before := asked.Load()
	if code := status("unknown"); code != exitUsage || asked.Load() > before+2 {
		t.Errorf("exit code %d after %d requests: %s", code, asked.Load()-before, errs.String())
	}
}

package main

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/oomfleet/oomfleet/proto"
)

// electing is a coordinator that knows no leader for its first writes.
type electing struct {
	mu   sync.Mutex
	left int
	keys []string // of all writes
}

func (e *electing) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	e.mu.Lock()
	defer e.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	if r.Method != http.MethodPost {
		w.WriteHeader(http.StatusNotFound)
		io.WriteString(w, `{"code":"not_found","message":"no reads here"}`)
		return
	}
	e.keys = append(e.keys, r.Header.Get("Idempotency-Key"))
	if e.left > 0 {
		e.left--
		w.WriteHeader(http.StatusServiceUnavailable)
		io.WriteString(w, `{"code":"no_leader","message":"the leader does not answer; try again in a second"}`)
		return
	}
	json.NewEncoder(w).Encode(map[string]any{"id": "sweep-1", "matrix": map[string]any{"id": "sweep-1"}, "agent": proto.AgentInfo{}})
}

// TestWritesAwaitALeader: a command that comes during an election succeeds when
// it is over, and what is to count once has one key all the while.
func TestWritesAwaitALeader(t *testing.T) {
	const matrixFile = "../../deploy/examples/nightly.yaml"
	for name, args := range map[string][]string{
		"submit":  {"matrix", "submit", matrixFile, "--again"},
		"cancel":  {"matrix", "cancel", "sweep-1"},
		"collect": {"trace", "gc"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := &electing{left: 2}
			server := httptest.NewServer(e)
			defer server.Close()
			var out, errs bytes.Buffer
			code := run(t.Context(), append(args, "--server", server.URL), streams{in: strings.NewReader(""), out: &out, err: &errs})
			if code != 0 || len(e.keys) != 3 {
				t.Fatalf("%d after %d requests: %s", code, len(e.keys), errs.String())
			}
			if e.keys[0] != e.keys[1] || e.keys[1] != e.keys[2] || name == "submit" && e.keys[0] == "" {
				t.Errorf("keys %q", e.keys)
			}
		})
	}
}

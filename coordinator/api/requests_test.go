package api_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/oomfleet/oomfleet/coordinator"
	"github.com/oomfleet/oomfleet/coordinator/api"
	"github.com/oomfleet/oomfleet/proto"
)

// losing does what a write asks for and loses the first answers on the way: one
// as a dead leader does, one with the connection, one in its middle.
func losing(writes *atomic.Int32) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method != http.MethodPost {
				next.ServeHTTP(w, r)
				return
			}
			n := writes.Add(1)
			if n > 3 {
				next.ServeHTTP(w, r)
				return
			}
			answer := httptest.NewRecorder()
			next.ServeHTTP(answer, r)
			w.Header().Set("Content-Type", "application/json")
			switch n {
			case 1:
				w.WriteHeader(http.StatusServiceUnavailable)
				io.WriteString(w, `{"code":"uncertain","message":"the leader was lost on the way"}`)
			case 2:
				panic(http.ErrAbortHandler)
			case 3:
				io.WriteString(w, answer.Body.String()[:5])
			}
		})
	}
}

// TestLostAnswers: a submission and a repeat that are to be sweeps of their own
// count once, however often their answers are lost, with both clients.
func TestLostAnswers(t *testing.T) {
	cells := []proto.CellID{cell(64).ID()}
	again := submission()
	again.Again = true
	for name, ask := range map[string]func(t *testing.T, c *cluster, s *httptest.Server) (coordinator.SubmitReply, error){
		"submit": func(t *testing.T, c *cluster, s *httptest.Server) (coordinator.SubmitReply, error) {
			return c.client(s).Submit(t.Context(), again)
		},
		"repeat": func(t *testing.T, c *cluster, s *httptest.Server) (coordinator.SubmitReply, error) {
			return c.client(s).Repeat(t.Context(), "all", api.Repetition{Cells: cells, Repeats: 2})
		},
		"submit in Python": func(t *testing.T, _ *cluster, s *httptest.Server) (r coordinator.SubmitReply, err error) {
			_, answers := pyAsk(t, with("servers", s.URL), pyCall{"submit", with("source", again.Source, "again", true)})
			if answers[0].Refused != nil {
				t.Fatalf("%+v", answers[0].Refused)
			}
			return r, json.Unmarshal(answers[0].Answer, &r)
		},
		"repeat in Python": func(t *testing.T, _ *cluster, s *httptest.Server) (r coordinator.SubmitReply, err error) {
			_, answers := pyAsk(t, with("servers", s.URL), pyCall{"repeat", with("id", "all", "cells", cells, "repeats", 2)})
			if answers[0].Refused != nil {
				t.Fatalf("%+v", answers[0].Refused)
			}
			return r, json.Unmarshal(answers[0].Answer, &r)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, _ := measuredFleet(t)
			var writes atomic.Int32
			server := c.serve("n1", losing(&writes))
			before := len(c.machine.View().Sweeps)
			reply, err := ask(t, c, server)
			if err != nil || c.machine.View().Sweeps[reply.Matrix.ID] == nil {
				t.Fatalf("%+v, %v", reply, err)
			}
			if n := len(c.machine.View().Sweeps) - before; n != 1 || writes.Load() != 4 {
				t.Errorf("%d sweeps of %d writes", n, writes.Load())
			}
			if other, err := ask(t, c, server); err != nil || other.Matrix.ID == reply.Matrix.ID {
				t.Errorf("the next invocation: %+v, %v", other, err)
			}
		})
	}
}

func TestRequestKeys(t *testing.T) {
	c, _ := measuredFleet(t)
	server := c.serve("n1", nil)
	for key, says := range map[string]string{"two words": "pattern", strings.Repeat("x", 65): "length"} {
		keyed(c, server.URL+"/v1/sweeps/all/repeat", key, api.Repetition{Cells: []proto.CellID{cell(64).ID()}, Repeats: 1}).wantProblem(t, 422, api.CodeBadRequest, says)
		keyed(c, server.URL+"/v1/sweeps", key, submission()).wantProblem(t, 422, api.CodeBadRequest, says)
	}
	document := c.request("GET", server.URL+"/openapi.json", "").body
	if n := strings.Count(document, `"name":"Idempotency-Key"`); n != 2 {
		t.Errorf("the OpenAPI document has the header at %d operations", n)
	}
	client := c.client(server)
	repeat := api.Repetition{Cells: []proto.CellID{cell(64).ID()}, Repeats: 1, Request: "key-1"}
	first, err := client.Repeat(t.Context(), "all", repeat)
	if err != nil {
		t.Fatal(err)
	}
	if same, err := client.Repeat(t.Context(), "all", repeat); err != nil || same.Matrix != first.Matrix {
		t.Errorf("%+v, %v", same, err)
	}
	repeat.Repeats = 2
	_, err = client.Repeat(t.Context(), "all", repeat)
	if p, ok := err.(*api.Problem); !ok || p.Code != api.CodeRefused || !strings.Contains(p.Message, "one request only") {
		t.Errorf("%v", err)
	}
}

// keyed posts a document under a key, as any HTTP client could.
func keyed(c *cluster, url, key string, document any) answer {
	c.Helper()
	body, err := json.Marshal(document)
	if err != nil {
		c.Fatal(err)
	}
	return c.requestWith(http.Header{"Idempotency-Key": {key}}, http.MethodPost, url, string(body))
}

// TestForwardKeepsKeys: the same request counts once whichever coordinator is asked.
func TestForwardKeepsKeys(t *testing.T) {
	c := newCluster(t)
	servers := []*httptest.Server{c.serve("n1", nil), c.serve("n2", nil), c.serve("n3", nil)}
	again := submission()
	again.Again = true
	for _, s := range servers {
		if got := keyed(c, s.URL+"/v1/sweeps", "key-1", again); got.status != http.StatusOK {
			t.Fatalf("%+v", got)
		}
	}
	if n := len(c.machine.View().Sweeps); n != 1 {
		t.Errorf("%d sweeps of one request", n)
	}
}

// TestClientsOfOlderCoordinators: one that knows no keys, and refuses bodies with
// what it does not know, takes what the clients send.
func TestClientsOfOlderCoordinators(t *testing.T) {
	var seen []map[string]json.RawMessage
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var body map[string]json.RawMessage
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
			t.Error(err)
		}
		w.Header().Set("Content-Type", "application/json")
		knows := []string{"source", "set", "origin", "again"}
		if strings.HasSuffix(r.URL.Path, "/repeat") {
			knows = []string{"cells", "repeats"}
		}
		for name := range body {
			if !slices.Contains(knows, name) {
				w.WriteHeader(http.StatusUnprocessableEntity)
				fmt.Fprintf(w, `{"code":"bad_request","message":"validation failed; body.%s: unexpected property"}`, name)
				return
			}
		}
		seen = append(seen, body)
		io.WriteString(w, `{"matrix":{"id":"sweep-1"}}`)
	}))
	defer server.Close()
	client, err := api.NewClient(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	if reply, err := client.Submit(t.Context(), submission()); err != nil || reply.Matrix.ID != "sweep-1" {
		t.Errorf("submit: %+v, %v", reply, err)
	}
	if reply, err := client.Repeat(t.Context(), "all", api.Repetition{Cells: []proto.CellID{"x"}, Repeats: 2}); err != nil || reply.Matrix.ID != "sweep-1" {
		t.Errorf("repeat: %+v, %v", reply, err)
	}
	_, answers := pyAsk(t, with("servers", server.URL), pyCall{"submit", with("source", "x", "again", true)}, pyCall{"repeat", with("id", "all", "cells", []string{"x"}, "repeats", 2)})
	for _, a := range answers {
		if a.Refused != nil {
			t.Errorf("in Python: %+v", a.Refused)
		}
	}
	if len(seen) != 4 {
		t.Errorf("%d of 4 requests were taken", len(seen))
	}
}

// TestForwardOverADeadConnection: a leader whose connection ends before it has
// said anything is asked once more, over another one, where twice is once.
func TestForwardOverADeadConnection(t *testing.T) {
	for name, tc := range map[string]struct {
		key, path string
		body      any
		status    int
	}{
		"submit with a key": {"key-1", "/v1/sweeps", submission(), http.StatusOK},
		"submit":            {"", "/v1/sweeps", submission(), http.StatusServiceUnavailable},
		"cancel":            {"", "/v1/sweeps/all/cancel", nil, http.StatusOK},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, _ := measuredFleet(t)
			var dead atomic.Bool
			c.serve("n1", func(next http.Handler) http.Handler {
				return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if dead.CompareAndSwap(true, false) {
						panic(http.ErrAbortHandler)
					}
					next.ServeHTTP(w, r)
				})
			})
			follower := c.serve("n2", nil)
			c.request("POST", follower.URL+"/v1/sweeps", "{}").wantProblem(t, 422, api.CodeBadRequest, "") // leaves a connection behind
			dead.Store(true)
			if got := keyed(c, follower.URL+tc.path, tc.key, tc.body); got.status != tc.status {
				t.Errorf("%+v", got)
			}
		})
	}
}

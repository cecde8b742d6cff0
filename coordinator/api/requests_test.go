package api_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
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
		body, err := json.Marshal(api.Repetition{Cells: []proto.CellID{cell(64).ID()}, Repeats: 1, Request: key})
		if err != nil {
			t.Fatal(err)
		}
		c.request("POST", server.URL+"/v1/sweeps/all/repeat", string(body)).wantProblem(t, 422, api.CodeBadRequest, says)
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

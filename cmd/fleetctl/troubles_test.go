package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/oomfleet/oomfleet/coordinator"
)

// TestTroublesAreSaid: what the leader cannot use is on every screen that somebody
// looks at when a sweep stands still, with the reason and what to do. Where tasks
// are refused so are announcements: no screen asks for agents then.
func TestTroublesAreSaid(t *testing.T) {
	since := time.Now().Add(-3 * time.Minute).UTC().Format(time.RFC3339)
	trouble := func(part coordinator.Part, said string) string {
		return fmt.Sprintf(`{"part":%q,"since":%q,"last":%q,"message":%q}`, part, since, since, said)
	}
	for name, tt := range map[string]struct {
		troubles string
		says     []string
		agents   bool // whether agents are asked for all the same
	}{
		"queue": {trouble(coordinator.PartQueue, "publish tasks: batch is incomplete"),
			[]string{"the queue (NATS) takes nothing more, neither tasks nor results, for 3 min now: publish tasks: batch is incomplete; ", "make room, and start it again"}, false},
		"store": {trouble(coordinator.PartTraces, "connection refused") + "," + trouble(coordinator.PartPrograms, "store is full"),
			[]string{"cannot read the trace store, so nothing is predicted, for 3 min now: connection refused; ", "takes no programs from the leader", "store is full"}, true},
		"new":  {trouble("printer", "out of paper"), []string{"cannot use a part of the fleet (printer), for 3 min now: out of paper"}, true},
		"none": {"", nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			mux := http.NewServeMux()
			for path, text := range map[string]string{
				"GET /v1/agents":  `{"agents":[]}`,
				"GET /v1/cluster": `{"asked":"b","leader":"a","voters":1,"answering":1,"members":[{"id":"a","role":"leader","voter":true}]}`,
			} {
				mux.HandleFunc(path, func(w http.ResponseWriter, _ *http.Request) {
					w.Header().Set("Content-Type", "application/json")
					fmt.Fprint(w, text)
				})
			}
			mux.HandleFunc("GET /v1/status", func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				if r.URL.Query().Get("consistent") != "true" { // only the leader knows
					fmt.Fprint(w, `{"id":"b","leader":"a","role":"follower"}`)
					return
				}
				fmt.Fprintf(w, `{"id":"a","leader":"a","role":"leader","troubles":[%s]}`, tt.troubles)
			})
			mux.HandleFunc("GET /v1/sweeps/{id}", func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				if err := writeJSON(w, aSweep()); err != nil {
					t.Error(err)
				}
			})
			server := httptest.NewServer(mux)
			defer server.Close()
			for _, screen := range []string{"matrix status nightly-2794c5ed", "agents list", "cluster status"} {
				_, stderr, code := fleetctl(t, append(strings.Fields(screen), "--server", server.URL)...)
				if code != exitOK {
					t.Errorf("%s: exit %d, %s", screen, code, stderr)
				}
				said := strings.Join(strings.Fields(stderr), " ")
				for _, part := range tt.says {
					if !strings.Contains(said, part) {
						t.Errorf("%s says\n%s\nand not %q", screen, stderr, part)
					}
				}
				waits := strings.HasPrefix(screen, "matrix") && tt.agents
				if got := strings.Contains(stderr, "for an agent"); got != waits || !waits && len(tt.says) == 0 && stderr != "" {
					t.Errorf("%s says\n%s", screen, stderr)
				}
			}
		})
	}
}

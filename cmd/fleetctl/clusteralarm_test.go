package main

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/oomfleet/oomfleet/coordinator/api"
)

// TestDifferingStatesAreAnAlarm: a script that runs cluster status learns by its
// exit code that two members have different states, and still gets the document.
func TestDifferingStatesAreAnAlarm(t *testing.T) {
	for name, c := range map[string]struct {
		alarm bool
		args  []string
		code  int
	}{
		"alarm":             {true, nil, exitFailed},
		"alarm, a document": {true, []string{"--json"}, exitFailed},
		"all is well":       {false, nil, exitOK},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				json.NewEncoder(w).Encode(api.ClusterStatus{Asked: "a", Leader: "a", Voters: 3, Answering: 3, MayLose: 1, Alarm: c.alarm})
			}))
			defer server.Close()
			var out, errs bytes.Buffer
			code := run(t.Context(), append([]string{"cluster", "status", "--server", server.URL}, c.args...), streams{in: strings.NewReader(""), out: &out, err: &errs})
			if code != c.code || strings.Contains(errs.String(), "different states at the same entry") != c.alarm || out.Len() == 0 {
				t.Errorf("exit code %d, want %d: %s%s", code, c.code, out.String(), errs.String())
			}
		})
	}
}

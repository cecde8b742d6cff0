package api_test

import (
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/oomfleet/oomfleet/coordinator/api"
	"github.com/oomfleet/oomfleet/storage/registry"
)

// TestUnknownPaths: what the mux refuses by itself has the form of every
// refusal.
func TestUnknownPaths(t *testing.T) {
	c := newCluster(t)
	server := c.serve("n1", nil)
	for _, path := range []string{"/", "/v1", "/v2/quota", "/v1/sweeps/a/b/c", "//v1//nothing"} {
		c.request("GET", server.URL+path, "").wantProblem(t, http.StatusNotFound, api.CodeNotFound, "openapi.json")
	}
	c.request("POST", server.URL+"/v1/quota", "").wantProblem(t, http.StatusMethodNotAllowed, api.CodeMethodNotAllowed, "takes GET, HEAD, and not POST")
	c.request("DELETE", server.URL+"/v1/sweeps", "").wantProblem(t, http.StatusMethodNotAllowed, api.CodeMethodNotAllowed, "POST")
	if got := c.request("GET", server.URL+"//v1/./sweeps", ""); got.status != http.StatusOK { // through a redirect
		t.Errorf("%+v", got)
	}
}

// stopped is the address of a process that takes connections and says nothing.
func stopped(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	return "http://" + listener.Addr().String()
}

// TestStoppedLeader: a read that only the leader can answer does not wait for
// one that says nothing longer than for a majority.
func TestStoppedLeader(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.serve("n1", nil)
	follower := c.serve("n2", nil)
	c.apply(registry.Command{SetMember: &registry.SetMember{Member: registry.Member{ID: "n3", API: stopped(t), CommandVersion: registry.CommandVersion}}})
	c.believe("n2", "n3")
	begin := time.Now()
	c.request("GET", follower.URL+"/v1/coefficients?consistent=true", "").wantProblem(t, http.StatusServiceUnavailable, api.CodeNoLeader, "does not answer")
	if took := time.Since(begin); took > time.Minute { // usually six seconds; an answer may take ninety
		t.Errorf("that took %v", took)
	}
}

// TestPythonPassesStoppedOver: a stopped coordinator costs the Python client a
// few seconds, not its patience with one that works.
func TestPythonPassesStoppedOver(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	servers := stopped(t) + "," + c.serve("n1", nil).URL
	begin := time.Now()
	_, answers := pyAsk(t, map[string]any{"servers": servers}, pyCall{Method: "status"}, pyCall{Method: "sweeps"})
	for _, a := range answers {
		if a.Refused != nil || len(a.Answer) == 0 {
			t.Errorf("%+v", a)
		}
	}
	if took := time.Since(begin); took > time.Minute {
		t.Errorf("that took %v", took)
	}
}

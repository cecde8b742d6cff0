package main

import (
	"bytes"
	"context"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/oomfleet/oomfleet/coordinator/api"
	"github.com/oomfleet/oomfleet/internal/secret"
	"github.com/oomfleet/oomfleet/proto"
)

// linking is a world whose store has addresses.
type linking struct{ api.Traces }

func (linking) Link(_ context.Context, d proto.Digest, _ time.Duration) (secret.Text, proto.Bytes, error) {
	return secret.Of("https://s3.example/" + string(d) + "?sig=x"), 7, nil
}

// TestTraceGetURL: the address alone goes to stdout, so that curl can take it.
func TestTraceGetURL(t *testing.T) {
	w := serveWorld(t, "../../agent/sim/traces")
	digest := strings.Repeat("ab", 32)
	get := func(args ...string) (int, string, string) {
		var out, errs bytes.Buffer
		code := run(t.Context(), append([]string{"trace", "get", digest}, args...), streams{in: strings.NewReader(""), out: &out, err: &errs})
		return code, out.String(), errs.String()
	}
	if code, out, errs := get("--url"); code != 1 || out != "" || !strings.Contains(errs, "traces.public_url") {
		t.Errorf("a folder: %d %q %q", code, out, errs)
	}
	node := alone{w}
	handler, err := api.New(api.Deps{ID: "a", Sweeps: node, Registry: node, Traces: linking{w}, Agents: node})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	t.Setenv("OOMFLEET_SERVER", server.URL)
	if code, out, errs := get("--url"); code != 0 || out != "https://s3.example/"+digest+"?sig=x\n" || !strings.HasPrefix(errs, "good until ") {
		t.Errorf("%d %q %q", code, out, errs)
	}
	if code, out, _ := get("--url", "--json"); code != 0 || !strings.Contains(out, `"expires":`) || !strings.Contains(out, `"size_bytes": 7`) {
		t.Errorf("%d %q", code, out)
	}
	if code, _, errs := get("--url", "-o", "x"); code != 2 {
		t.Errorf("both: %d %q", code, errs)
	}
}

package api_test

import (
	"bytes"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/oomfleet/oomfleet/allocator"
	"github.com/oomfleet/oomfleet/coordinator"
	"github.com/oomfleet/oomfleet/coordinator/api"
	"github.com/oomfleet/oomfleet/internal/s3server/s3servertest"
	"github.com/oomfleet/oomfleet/storage/trace"
	"github.com/oomfleet/oomfleet/storage/trace/s3x"
)

// TestTraceURL: the address that the API gives out fetches the trace from a real
// store, and is told to the asker alone.
func TestTraceURL(t *testing.T) {
	store := s3servertest.Start(t, s3servertest.Options{})
	driver, err := s3x.Open(t.Context(), s3x.Config{URL: store.URL(), PublicURL: store.URL(), Bucket: "traces",
		AccessKey: s3servertest.AccessKey, SecretKey: s3servertest.SecretKey})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(driver.Close)
	c := newCluster(t)
	c.traces = trace.NewStore(driver)
	var log bytes.Buffer
	node := replica{c, "n1"}
	logger := slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	service, err := coordinator.New(coordinator.Config{}, coordinator.Deps{Registry: node, Queue: c.queue, Traces: c.traces, Log: logger})
	if err != nil {
		t.Fatal(err)
	}
	handler, err := api.New(api.Deps{ID: "n1", Sweeps: service, Registry: node, Traces: c.traces, Agents: c.queue, Log: logger})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	ref, err := c.traces.PutTrace(t.Context(), []allocator.Event{{Action: allocator.SegmentAlloc, Addr: 1 << 21, Size: 1 << 21}}, trace.Meta{})
	if err != nil {
		t.Fatal(err)
	}
	before := time.Now()
	link, err := c.client(server).TraceURL(t.Context(), ref.Digest)
	if err != nil || link.Digest != ref.Digest || link.Size != ref.Size {
		t.Fatalf("%+v, %v", link, err)
	}
	if left := link.Expires.Sub(before); left < 14*time.Minute || left > 16*time.Minute {
		t.Errorf("good for %s", left)
	}
	got := c.request("GET", link.URL, "")
	if got.status != http.StatusOK || trace.DigestOf([]byte(got.body)) != ref.Digest {
		t.Errorf("fetched %d, %d bytes", got.status, len(got.body))
	}
	answer, err := http.Get(server.URL + "/v1/traces/" + string(ref.Digest) + "/url")
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if _, err := io.Copy(io.Discard, answer.Body); err != nil || answer.Header.Get("Cache-Control") != "no-store" {
		t.Errorf("may be kept on the way: %v, %v", answer.Header, err)
	}
	c.request("GET", server.URL+"/v1/traces/"+strings.Repeat("0", 64)+"/url", "").wantProblem(t, 404, api.CodeNotFound, "no such trace")
	c.request("GET", server.URL+"/v1/traces/X/url", "").wantProblem(t, 422, api.CodeBadRequest, "digest")
	if strings.Contains(log.String(), "X-Amz") {
		t.Errorf("the log has it: %s", log.String())
	}
}

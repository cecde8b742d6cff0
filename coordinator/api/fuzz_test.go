package api_test

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/oomfleet/oomfleet/coordinator"
	"github.com/oomfleet/oomfleet/coordinator/api"
	"github.com/oomfleet/oomfleet/queue/memq"
	"github.com/oomfleet/oomfleet/storage/registry"
	"github.com/oomfleet/oomfleet/storage/trace"
	"github.com/oomfleet/oomfleet/storage/trace/dir"
)

// FuzzRequest: whatever is asked, with whatever body, the answer is a document or
// a problem of ours, and the server never says that it failed by itself.
func FuzzRequest(f *testing.F) {
	for _, seed := range []struct{ method, path, body, header string }{
		{"POST", "/v1/sweeps", `{"source":"apiVersion: oomfleet/v1\nname: t\n","origin":"simulated","set":["axes.seq_len=1"],"again":true}`, ``},
		{"POST", "/v1/sweeps/t-1/cancel", ``, ``},
		{"POST", "/v1/sweeps/t-1/repeat", `{"cells":["x"],"repeats":1}`, ``},
		{"POST", "/v1/coefficients", `{"coefficients":[{"origin":"imported","quota_kind":"allocator","target":"reserved","terms":[{"name":"weights","value":1}],"model":{}}]}`, ``},
		{"POST", "/v1/agents/gpu-1/drain", `{"within_seconds":60}`, ``},
		{"POST", "/v1/traces/collect", `{"keep_seconds":86400,"dry_run":true}`, ``},
		{"POST", "/v1/cluster/join", `{"id":"b","raft_addr":"h:1","api":"http://h:2"}`, ``},
		{"POST", "/v1/restore", `{"format":"oomfleet-registry","version":1}`, ``},
		{"GET", "/v1/quota?seq_len=300&batch=1&param=model%3Desmfold&env=A%3Db", ``, ``},
		{"GET", "/v1/quota/max-batch?quota_bytes=8589934592&seq_len=64", ``, ``},
		{"GET", "/v1/compare?after=new&margin_bytes=1", ``, ``},
		{"GET", "/v1/boundaries?at_least=3&limit=1&cursor=x", ``, ``},
		{"GET", "/v1/traces/0000000000000000000000000000000000000000000000000000000000000000", ``, ``},
		{"GET", "/v1/sweeps?consistent=true", ``, `0`},
		{"GET", "/v1/programs?max_age=5s", ``, `18446744073709551615`},
		{"GET", "/v1/watch?since=0&kinds=sweeps,%20programs", ``, `3`},
	} {
		f.Add(seed.method, seed.path, seed.body, seed.header)
	}
	q, err := memq.New(memq.Config{})
	if err != nil {
		f.Fatal(err)
	}
	driver, err := dir.New(f.TempDir())
	if err != nil {
		f.Fatal(err)
	}
	// One server for all: to describe every operation takes longer than to answer.
	node := replica{&cluster{queue: q, traces: trace.NewStore(driver), machine: registry.New(), leader: "n1", changed: make(chan struct{})}, "n1"}
	service, err := coordinator.New(coordinator.Config{}, coordinator.Deps{Registry: node, Queue: q, Traces: node.traces})
	if err != nil {
		f.Fatal(err)
	}
	handler, err := api.New(api.Deps{ID: "n1", Sweeps: service, Registry: node, Traces: node.traces, Agents: q, Imports: service})
	if err != nil {
		f.Fatal(err)
	}
	gone, leave := context.WithCancel(f.Context())
	leave()
	f.Fuzz(func(t *testing.T, method, path, body, header string) {
		if !strings.HasPrefix(path, "/v1/") || strings.ContainsAny(path, " \t\r\n\x00") || method != "GET" && method != "POST" {
			return // not what a server hands on
		}
		// One who waits for a position, or watches, is gone at once: none comes.
		ctx := t.Context()
		if header != "" || strings.HasPrefix(path, "/v1/watch") {
			ctx = gone
		}
		r, err := http.NewRequestWithContext(ctx, method, "http://n1", strings.NewReader(body))
		if err != nil {
			return
		}
		if r.URL, err = r.URL.Parse(path); err != nil {
			return
		}
		r.RequestURI = path
		r.Header.Set("Content-Type", "application/json")
		if header != "" {
			r.Header.Set("Oomfleet-Min-Index", header)
			r.Header.Set("Last-Event-ID", header)
			r.Header.Set("Authorization", header)
		}
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		var p api.Problem
		switch {
		case w.Code == http.StatusInternalServerError:
			t.Errorf("%s %q %q: %s", method, path, body, w.Body)
		case w.Code >= 400:
			if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil || p.Code == "" || p.Message == "" {
				t.Errorf("%s %q %q: %d %s", method, path, body, w.Code, w.Body)
			}
		case w.Code == http.StatusOK && strings.HasPrefix(w.Header().Get("Content-Type"), "application/json") && !json.Valid(bytes.TrimSpace(w.Body.Bytes())):
			t.Errorf("%s %q: no document: %s", method, path, w.Body)
		}
	})
}

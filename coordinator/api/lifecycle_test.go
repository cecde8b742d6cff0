package api_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/oomfleet/oomfleet/coordinator"
	"github.com/oomfleet/oomfleet/coordinator/api"
	"github.com/oomfleet/oomfleet/proto"
	"github.com/oomfleet/oomfleet/storage/trace"
	"github.com/oomfleet/oomfleet/storage/trace/dir"
)

// alone leads for ever.
type alone struct{ replica }

func (a alone) Leadership() (bool, <-chan struct{}) { return true, make(chan struct{}) }

// TestCollect: what nothing refers to is listed, then removed, by a coordinator
// at work; an administrator's token is needed for either.
func TestCollect(t *testing.T) {
	c := newCluster(t)
	root := t.TempDir()
	driver, err := dir.New(root)
	if err != nil {
		t.Fatal(err)
	}
	store := trace.NewStore(driver)
	node := alone{replica{c, "n1"}}
	service, err := coordinator.New(coordinator.Config{AuditEvery: time.Millisecond}, coordinator.Deps{Registry: node, Queue: c.queue, Traces: store, Garbage: store})
	if err != nil {
		t.Fatal(err)
	}
	handler, err := api.New(api.Deps{ID: "n1", Sweeps: service, Registry: node, Traces: store, Agents: c.queue})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(handler)
	defer server.Close()
	client := c.client(server)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	done := make(chan error, 1)
	go func() { done <- service.Run(ctx) }()
	defer func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	if _, err := client.Submit(ctx, submission()); err != nil {
		t.Fatal(err)
	}
	digest, err := store.PutEvidence(ctx, proto.Result{Task: "s-1-1"})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(root, "evidence", string(digest)+".json")
	old := time.Now().Add(-48 * time.Hour)
	if err := os.Chtimes(path, old, old); err != nil {
		t.Fatal(err)
	}
	look := func(r api.Collect) coordinator.Collection {
		t.Helper()
		for {
			got, err := client.Collect(ctx, r)
			var p *api.Problem
			switch {
			case err == nil:
				return got
			case errors.As(err, &p) && p.Code == api.CodeRefused && ctx.Err() == nil: // no audit yet
			default:
				t.Fatal(err)
			}
		}
	}
	if got := look(api.Collect{KeepSeconds: 7 * 86400, DryRun: true}); got.Found != 0 || got.Young != 1 || got.Objects != 1 {
		t.Errorf("within a week: %+v", got)
	}
	got := look(api.Collect{KeepSeconds: 86400, DryRun: true})
	if got.Found != 1 || got.Garbage[0].Digest != digest || got.Garbage[0].Kind != trace.KindEvidence || got.Removed != 0 {
		t.Errorf("dry run: %+v", got)
	}
	if _, err := os.Stat(path); err != nil {
		t.Error(err)
	}
	if got := look(api.Collect{KeepSeconds: 86400}); got.Removed != 1 {
		t.Errorf("%+v", got)
	}
	if _, err := os.Stat(path); !os.IsNotExist(err) {
		t.Errorf("afterwards: %v", err)
	}
	if got := c.request("POST", server.URL+"/v1/traces/collect", `{"keep_seconds":3600}`); got.status != http.StatusUnprocessableEntity {
		t.Errorf("an hour is enough: %+v", got)
	}
}

func TestDrain(t *testing.T) {
	c := newCluster(t)
	client := c.client(c.serve("n1", nil))
	a := proto.AgentInfo{ID: "gpu-1", Origin: proto.OriginMeasured, Stack: proto.Stack{GPU: "NVIDIA H200", Driver: "580.1"}, State: proto.AgentBusy, Task: "m-1-1"}
	if err := c.queue.Announce(t.Context(), a, time.Minute); err != nil {
		t.Fatal(err)
	}
	heard := make(chan proto.Control, 1000)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- c.queue.Client().Listen(ctx, a.Stack.Pool(a.Origin), func(said proto.Control) { heard <- said })
	}()
	for said := (proto.Control{}); !said.Drains("gpu-1"); {
		got, err := client.Drain(ctx, "gpu-1", api.Drain{WithinSeconds: 90})
		if err != nil || got.Agent.Task != "m-1-1" {
			t.Fatalf("%+v, %v", got, err)
		}
		select {
		case said = <-heard:
			if said.DrainSeconds != 90 {
				t.Errorf("said %+v", said)
			}
		case <-time.After(10 * time.Millisecond): // it did not listen yet
		}
	}
	cancel()
	<-done
	var p *api.Problem
	if _, err := client.Drain(t.Context(), "gpu-2", api.Drain{WithinSeconds: 1}); !errors.As(err, &p) || p.Code != api.CodeNotFound {
		t.Errorf("an agent that is not there: %v", err)
	}
	if _, err := client.Drain(t.Context(), "gpu-1", api.Drain{}); err == nil {
		t.Error("no time at all is taken")
	}
}

var _ api.Keeper = (*coordinator.Coordinator)(nil)

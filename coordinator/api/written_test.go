package api_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/oomfleet/oomfleet/coordinator"
	"github.com/oomfleet/oomfleet/coordinator/api"
	"github.com/oomfleet/oomfleet/proto"
	"github.com/oomfleet/oomfleet/storage/registry"
)

// laggard is a follower that applies nothing more until it is released.
type laggard struct {
	replica
	// asked is told when somebody waits for more.
	asked chan struct{}

	mu       sync.Mutex // guards the rest
	stuck    *registry.View
	released chan struct{}
}

func newLaggard(c *cluster, id string) *laggard {
	view := c.machine.View()
	return &laggard{replica: replica{c, id}, asked: make(chan struct{}, 100), stuck: &view, released: make(chan struct{})}
}

func (l *laggard) View() registry.View {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.stuck != nil {
		return *l.stuck
	}
	return l.replica.View()
}

func (l *laggard) Changed(uint64) <-chan struct{} {
	l.asked <- struct{}{}
	return l.released
}

func (l *laggard) release() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stuck = nil
	close(l.released)
}

// handler is the API of one node over any registry.
func (c *cluster) handler(id string, reg api.Registry) http.Handler {
	c.Helper()
	service, err := coordinator.New(coordinator.Config{}, coordinator.Deps{Registry: replica{c, id}, Queue: c.queue, Traces: c.traces})
	if err != nil {
		c.Fatal(err)
	}
	handler, err := api.New(api.Deps{ID: id, Version: "v1", Sweeps: service, Registry: reg, Traces: c.traces, Agents: c.queue})
	if err != nil {
		c.Fatal(err)
	}
	return handler
}

// TestReadsWhatItWrote: a follower that passed a write on has not applied it
// yet. The writer's next read waits there until it has.
func TestReadsWhatItWrote(t *testing.T) {
	c := newCluster(t)
	c.serve("n1", nil)
	slow := newLaggard(c, "n2")
	follower := httptest.NewServer(c.handler("n2", slow))
	t.Cleanup(follower.Close)
	client, other := c.client(follower), c.client(follower)
	reply, err := client.Submit(t.Context(), submission())
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() {
		list, err := client.Sweeps(t.Context())
		if err == nil && (len(list.Sweeps) != 1 || list.Role != "follower" || list.AppliedIndex < reply.Index) {
			err = errors.New("it misses what was written")
		}
		done <- err
	}()
	<-slow.asked
	// Whoever wrote nothing does not wait, and gets what is there.
	if list, err := other.Sweeps(t.Context()); err != nil || len(list.Sweeps) != 0 {
		t.Errorf("another reader: %+v, %v", list, err)
	}
	// A sweep that this follower has not heard of is the leader's to tell.
	if report, err := other.Sweep(t.Context(), reply.Matrix.ID); err != nil || report.Matrix != reply.Matrix || report.Role != "leader" {
		t.Errorf("an unknown sweep: %+v, %v", report, err)
	}
	slow.release()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if report, err := other.Sweep(t.Context(), reply.Matrix.ID); err != nil || report.Role != "follower" {
		t.Errorf("once it has: %+v, %v", report, err)
	}
}

// TestWriterPassesLaggardsOver: a follower that stays behind refuses after a
// while, and the client asks the next coordinator.
func TestWriterPassesLaggardsOver(t *testing.T) {
	c := newCluster(t)
	leader := c.serve("n1", nil)
	slow := newLaggard(c, "n2")
	handler := c.handler("n2", slow)
	c.addSweep("s", proto.OriginMeasured, cell(64))
	index := strconv.FormatUint(c.machine.View().AppliedIndex, 10)
	ask := func(header string) *httptest.ResponseRecorder {
		r := httptest.NewRequest(http.MethodGet, "/v1/sweeps", nil)
		r.Header.Set("Oomfleet-Min-Index", header)
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		return w
	}
	synctest.Test(t, func(t *testing.T) {
		slow.released = make(chan struct{}) // one of this bubble
		begin := time.Now()
		w := ask(index)
		answer{w.Code, w.Header().Get("Content-Type"), w.Body.String()}.wantProblem(t, 503, api.CodeTooOld, "stands at log position 1 and "+index+" was asked for")
		if took := time.Since(begin); took != 2*time.Second {
			t.Errorf("it took %s", took)
		}
	})
	slow.released = make(chan struct{})
	w := ask("soon")
	answer{w.Code, w.Header().Get("Content-Type"), w.Body.String()}.wantProblem(t, 422, api.CodeBadRequest, `log position, not "soon"`)

	follower := httptest.NewServer(handler)
	t.Cleanup(follower.Close)
	c.apply(registry.Command{SetMember: &registry.SetMember{Member: registry.Member{ID: "n2", API: follower.URL, CommandVersion: registry.CommandVersion}}})
	client := c.client(follower, leader)
	if _, err := client.Submit(t.Context(), submission()); err != nil {
		t.Fatal(err)
	}
	if list, err := client.Sweeps(t.Context()); err != nil || len(list.Sweeps) != 2 || list.Role != "leader" {
		t.Errorf("%+v, %v", list, err)
	}
}

// TestWritesSayWhereTheyStand: the answer of a write names a position that holds
// it, whoever takes it.
func TestWritesSayWhereTheyStand(t *testing.T) {
	c := newCluster(t)
	for _, s := range []*httptest.Server{c.serve("n1", nil), c.serve("n2", nil)} {
		before := c.machine.View().AppliedIndex
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.URL+"/v1/sweeps/none/cancel", nil)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
		if got := answer.Header.Get("Oomfleet-Applied-Index"); got != strconv.FormatUint(before, 10) {
			t.Errorf("position %q, want %d", got, before)
		}
	}
}

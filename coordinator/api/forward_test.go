package api_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"time"

	"github.com/oomfleet/oomfleet/coordinator"
	"github.com/oomfleet/oomfleet/coordinator/api"
	"github.com/oomfleet/oomfleet/proto"
)

// nothing takes no sweeps.
type nothing struct{}

func (nothing) Submit(context.Context, coordinator.SubmitRequest) (coordinator.SubmitReply, error) {
	return coordinator.SubmitReply{}, errors.New("not this one")
}

func (nothing) Cancel(context.Context, proto.MatrixID) (int, error) {
	return 0, errors.New("not this one")
}

// counted counts the requests that reach a server.
func counted(n *atomic.Int32) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			n.Add(1)
			next.ServeHTTP(w, r)
		})
	}
}

func wantNoLeader(t *testing.T, err error) {
	t.Helper()
	var p *api.Problem
	if !errors.As(err, &p) || p.Code != api.CodeNoLeader || p.GetStatus() != http.StatusServiceUnavailable {
		t.Errorf("got %v, want no leader", err)
	}
}

func submission() api.Submission {
	return api.Submission{Source: source("[64]", "580.1"), Origin: proto.OriginMeasured}
}

func TestForward(t *testing.T) {
	c := newCluster(t)
	var atLeader atomic.Int32
	c.serve("n1", counted(&atLeader))
	client := c.client(c.serve("n2", nil))
	reply, err := client.Submit(t.Context(), submission())
	if err != nil || reply.New != 1 || atLeader.Load() != 1 {
		t.Fatalf("%+v, %v, %d requests reached the leader", reply, err, atLeader.Load())
	}
	report, err := client.Sweep(t.Context(), reply.Matrix.ID)
	if err != nil || report.Role != "follower" || atLeader.Load() != 1 { // reads stay here
		t.Errorf("%+v, %v, %d requests reached the leader", report, err, atLeader.Load())
	}
	// The leader's problems come back whole.
	bad := submission()
	bad.Source += "colour: red\n"
	var p *api.Problem
	if _, err := client.Submit(t.Context(), bad); !errors.As(err, &p) || p.Code != api.CodeBadMatrix || len(p.Details) != 1 || p.Details[0].Line != 8 {
		t.Errorf("got %v", err)
	}
	if done, err := client.Cancel(t.Context(), reply.Matrix.ID); err != nil || done.ID != reply.Matrix.ID {
		t.Errorf("%+v, %v", done, err)
	}
}

// TestSecondHopRefused: two followers that take each other for the leader must
// not send a request in circles.
func TestSecondHopRefused(t *testing.T) {
	c := newCluster(t)
	var at2, at3 atomic.Int32
	c.serve("n1", nil)
	second := c.serve("n2", counted(&at2))
	c.serve("n3", counted(&at3))
	c.believe("n2", "n3")
	c.believe("n3", "n2")
	_, err := c.client(second).Submit(t.Context(), submission())
	wantNoLeader(t, err)
	if at2.Load() != 1 || at3.Load() != 1 {
		t.Errorf("%d and %d requests", at2.Load(), at3.Load())
	}
	if n := len(c.machine.View().Sweeps); n != 0 {
		t.Errorf("%d sweeps", n)
	}
}

func TestNoLeader(t *testing.T) {
	c := newCluster(t)
	c.serve("n1", nil)
	second := c.serve("n2", nil)
	for name, believes := range map[string]string{"unknown": "", "not a member": "n9"} {
		t.Run(name, func(t *testing.T) {
			c.believe("n2", believes)
			_, err := c.client(second).Submit(t.Context(), submission())
			wantNoLeader(t, err)
			if _, err := c.client(second).Sweeps(t.Context()); err != nil { // reads need none
				t.Error(err)
			}
		})
	}
	t.Run("the leader lost it meanwhile", func(t *testing.T) {
		c.believe("n1", "n3")
		defer c.believe("n1", "n1")
		c.believe("n2", "n1")
		_, err := c.client(second).Submit(t.Context(), submission())
		wantNoLeader(t, err)
	})
	t.Run("gone", func(t *testing.T) {
		// Of a cluster of its own: over a connection that was used before, the
		// follower may not know yet that the leader is gone, and cannot tell
		// whether the leader has read the request.
		c := newCluster(t)
		first, second := c.serve("n1", nil), c.serve("n2", nil)
		first.Close()
		_, err := c.client(second).Submit(t.Context(), submission())
		wantNoLeader(t, err)
	})
}

// TestClientTriesNext: a coordinator that is gone or knows no leader is passed
// over, and the one that answered is asked first from then on.
func TestClientTriesNext(t *testing.T) {
	for _, tt := range []struct {
		name  string
		spoil func(c *cluster, s *httptest.Server)
		asked int32 // requests at the first server after both calls
	}{
		{"gone", func(_ *cluster, s *httptest.Server) { s.Close() }, 0},
		{"no leader", func(c *cluster, _ *httptest.Server) { c.believe("n2", "") }, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := newCluster(t)
			var at1, at2 atomic.Int32
			leader, other := c.serve("n1", counted(&at1)), c.serve("n2", counted(&at2))
			tt.spoil(c, other)
			client := c.client(other, leader)
			for range 2 {
				if _, err := client.Submit(t.Context(), submission()); err != nil {
					t.Fatal(err)
				}
			}
			if at2.Load() != tt.asked || at1.Load() != 2 {
				t.Errorf("%d requests at the first server, %d at the leader", at2.Load(), at1.Load())
			}
		})
	}
}

// TestAnswerThatBreaksOff: a leader's answer that ends too soon ends so at the
// follower too, and is not taken for whole.
func TestAnswerThatBreaksOff(t *testing.T) {
	c := newCluster(t)
	c.serve("n1", func(http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			io.WriteString(w, `{"sweeps":[`)
			http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		})
	})
	follower := c.serve("n2", nil)
	answer, err := http.Get(follower.URL + "/v1/sweeps?consistent=true")
	if err != nil {
		return // it broke off before its beginning was read
	}
	defer answer.Body.Close()
	if text, err := io.ReadAll(answer.Body); err == nil {
		t.Errorf("%s: %q", answer.Status, text)
	}
}

// TestLateAnswerIsTaken: an answer that has begun is read to its end, although the
// look at its server that began meanwhile finds it silent.
func TestLateAnswerIsTaken(t *testing.T) {
	t.Parallel() // it takes the five seconds after which that look gives up
	looked, gaveUp := make(chan struct{}), make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/healthz" {
			close(looked)
			<-r.Context().Done()
			close(gaveUp)
			return
		}
		<-looked
		w.Header().Set("Content-Type", "application/json")
		io.WriteString(w, `{"agents":`)
		http.NewResponseController(w).Flush()
		<-gaveUp
		select {
		case <-r.Context().Done():
		case <-time.After(200 * time.Millisecond): // the client has had the time to give this up too
		}
		io.WriteString(w, `[]}`)
	}))
	t.Cleanup(server.Close)
	client, err := api.NewClient(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.Agents(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestClientStaysWithRefusals: what one coordinator refuses, all refuse.
func TestClientStaysWithRefusals(t *testing.T) {
	c := newCluster(t)
	var at2 atomic.Int32
	client := c.client(c.serve("n1", nil), c.serve("n2", counted(&at2)))
	bad := submission()
	bad.Source = "name: x"
	if _, err := client.Submit(t.Context(), bad); err == nil || at2.Load() != 0 {
		t.Errorf("%v, %d requests at the second", err, at2.Load())
	}
}

func TestClientErrors(t *testing.T) {
	page := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v1/sweeps" {
			w.WriteHeader(http.StatusBadGateway)
		}
		w.Write([]byte("<html>"))
	}))
	defer page.Close()
	client, err := api.NewClient(page.URL)
	if err != nil {
		t.Fatal(err)
	}
	var p *api.Problem
	if _, err := client.Sweeps(t.Context()); !errors.As(err, &p) || p.Code != api.CodeUnavailable || !strings.Contains(p.Message, "502") {
		t.Errorf("a gateway: %v", err)
	}
	if _, err := client.Status(t.Context()); err == nil || !strings.Contains(err.Error(), "not the document") {
		t.Errorf("a page: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := client.Status(ctx); !errors.Is(err, context.Canceled) || strings.Contains(err.Error(), "is it running") {
		t.Errorf("cancelled: %v", err)
	}
	page.Close()
	if _, err := client.Status(t.Context()); err == nil || !strings.Contains(err.Error(), "is it running?") {
		t.Errorf("gone: %v", err)
	}
	for _, bad := range []string{"", "127.0.0.1:7400", "ftp://x", "http://a,,http://b", "http://", "://"} {
		if _, err := api.NewClient(bad); err == nil {
			t.Errorf("no error for %q", bad)
		}
	}
	if _, err := api.NewClient("http://a/, https://b:1"); err != nil {
		t.Error(err)
	}
}

// TestRefusalIsSaidOnce: coordinators that say the same need not be quoted each.
func TestRefusalIsSaidOnce(t *testing.T) {
	c := newCluster(t)
	first, second, third := c.serve("n1", nil), c.serve("n2", nil), c.serve("n3", nil)
	first.Close()
	_, err := c.client(second, third).Submit(t.Context(), submission())
	wantNoLeader(t, err)
	if n := strings.Count(err.Error(), "does not answer"); n != 1 {
		t.Errorf("said %d times: %v", n, err)
	}
	_, answers := pyAsk(t, with("servers", second.URL+","+third.URL), pyCall{"cancel", with("id", "all")})
	if r := answers[0].Refused; r == nil || strings.Count(r.Message, "does not answer") != 1 {
		t.Errorf("in Python: %+v", answers[0])
	}
}

// TestForwardSaysWhyABodyWasNotRead: a follower reads a request before it passes
// it on, and what is slow or cut off is not called too large.
func TestForwardSaysWhyABodyWasNotRead(t *testing.T) {
	for name, test := range map[string]struct {
		body   io.Reader
		status int
		says   string
	}{
		"slow":      {iotest.ErrReader(os.ErrDeadlineExceeded), http.StatusRequestTimeout, "took too long"},
		"cut off":   {iotest.ErrReader(io.ErrUnexpectedEOF), http.StatusBadRequest, "broke off"},
		"too large": {strings.NewReader(strings.Repeat("x", 5<<20)), http.StatusRequestEntityTooLarge, "larger than 4 MiB"},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t)
			c.serve("n1", nil)
			follower := c.serve("n2", func(next http.Handler) http.Handler {
				return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					r.Body = io.NopCloser(test.body)
					next.ServeHTTP(w, r)
				})
			})
			c.request("POST", follower.URL+"/v1/sweeps", "{}").wantProblem(t, test.status, api.CodeBadRequest, test.says)
		})
	}
}

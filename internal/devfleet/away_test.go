package devfleet

import (
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/oomfleet/oomfleet/proto"
	"github.com/oomfleet/oomfleet/queue/natsq"
)

// TestAgentPausedPastItsLease: an agent is stopped in the middle of a run, its
// task goes to another, and it goes on only when everything has settled. Then it
// learns that its task is closed and ends the run, or its report comes first,
// which is late and changes nothing.
func TestAgentPausedPastItsLease(t *testing.T) {
	t.Parallel()
	w := start(t, Config{Agents: 4}) // two for each driver
	var pid int
	awayAgent(t, w, func() {
		var err error
		if pid, err = w.Signal("agent-0", syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
	}, func() { syscall.Kill(pid, syscall.SIGCONT) })
}

// TestAgentPartitioned: the same with an agent that goes on working and reaches
// neither queue nor trace store. Its run has ended when it is back: its report is
// late.
func TestAgentPartitioned(t *testing.T) {
	t.Parallel()
	net := newNetwork(t)
	w := start(t, Config{Agents: 4, Via: net.via})
	a := awayAgent(t, w, func() { net.cut("agent-0") }, func() { net.mend("agent-0") })
	if a.offered == a.accepted {
		t.Error("no result came late")
	}
}

// awayAgent takes agent-0 away in the middle of a run and brings it back when
// the sweep has settled without it.
func awayAgent(t *testing.T, w *world, away, back func()) *autopsy {
	t.Helper()
	id := w.submit()
	w.running(4)
	away()
	report := w.finish(id)
	if runs := strings.Count(w.logs()["agent-0"], `msg="run finished"`); runs > 1 {
		t.Errorf("agent-0 was away and has finished %d runs", runs)
	}
	before := w.results().LastSeq
	back()
	await(t, "its report comes home, or its run is ended", func() bool {
		r := w.results()
		return r.Msgs == 0 && (r.LastSeq > before || strings.Contains(w.logs()["agent-0"], "its task was cancelled"))
	})
	again, err := w.client().Sweep(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	if why := differ(report, again); why != "" {
		t.Errorf("the late report has changed the sweep: %s", why)
	}
	return w.judge(report)
}

// TestStreamsDeleted: somebody deletes the queue's streams, with all that is in
// them, in the middle of a sweep. They are made anew, and what is open is
// published again.
func TestStreamsDeleted(t *testing.T) {
	t.Parallel()
	w := start(t, Config{})
	id := w.submit()
	w.midway(id)
	who, err := nats.NkeyOptionFromSeed(w.keyFile("coordinator.nk"))
	if err != nil {
		t.Fatal(err)
	}
	nc, err := nats.Connect(w.conf.Queue.URL, who, nats.Timeout(patience))
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{natsq.TasksStream, natsq.ResultsStream, "KV_" + natsq.PresenceBucket} {
		if err := js.DeleteStream(t.Context(), name); err != nil {
			t.Fatal(err)
		}
	}
	report := w.finish(id)
	if n := metric(t, w.API(), "oomfleet_audit_republished_total"); n == 0 {
		t.Error("the audit has published nothing again")
	}
	await(t, "the agents are announced again", func() bool {
		list, err := w.client().Agents(t.Context())
		return err == nil && len(list.Agents) == w.cfg.Agents
	})
	w.judge(report)
}

// troubledStore passes requests to an S3 server on and spoils those that write
// objects of agents, in the order of its plan.
type troubledStore struct {
	*httputil.ReverseProxy

	mu   sync.Mutex // guards all below
	plan []trouble  // what the next writes meet
	met  map[trouble]int
}

// trouble is what a write to the store meets.
type trouble string

const (
	storeSlow trouble = "slow"         // two seconds for a request
	storeSkew trouble = "clock skew"   // 403 RequestTimeTooSkewed
	storeHalf trouble = "half written" // the connection ends in the middle
	storeBusy trouble = "busy"         // 503 SlowDown
)

func (s *troubledStore) next() trouble {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.plan) == 0 {
		return ""
	}
	next := s.plan[0]
	s.plan = s.plan[1:]
	s.met[next]++
	return next
}

// ServeHTTP implements http.Handler.
func (s *troubledStore) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	meets := trouble("")
	if r.Method == http.MethodPut && r.ContentLength > 1<<10 { // a trace, not a canary or a bucket
		meets = s.next()
	}
	refuse := func(status int, code string) {
		io.Copy(io.Discard, r.Body) //nolint:errcheck // what matters is the answer
		w.Header().Set("Content-Type", "application/xml")
		w.WriteHeader(status)
		io.WriteString(w, "<Error><Code>"+code+"</Code><Message>trouble</Message></Error>")
	}
	switch meets {
	case storeSkew:
		refuse(http.StatusForbidden, "RequestTimeTooSkewed")
		return
	case storeBusy:
		refuse(http.StatusServiceUnavailable, "SlowDown")
		return
	case storeHalf:
		r.Body = &halfBody{ReadCloser: r.Body, left: r.ContentLength / 2}
	case storeSlow:
		pause(r.Context(), 2*time.Second)
	}
	s.ReverseProxy.ServeHTTP(w, r)
}

// halfBody fails in the middle.
type halfBody struct {
	io.ReadCloser
	left int64
}

func (b *halfBody) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, io.ErrUnexpectedEOF
	}
	n, err := b.ReadCloser.Read(p[:min(int64(len(p)), b.left)])
	b.left -= int64(n)
	return n, err
}

// TestTraceStoreMisbehaves: the store breaks off in the middle of an object, says
// that a clock is wrong, is busy, and is slow. Recordings stay on the agents'
// disks until they are stored whole; the agent says what keeps it.
func TestTraceStoreMisbehaves(t *testing.T) {
	t.Parallel()
	plan := []trouble{storeHalf, storeSkew, storeSlow, storeBusy, storeHalf, storeSkew, storeSlow}
	store := &troubledStore{plan: slices.Clone(plan), met: map[trouble]int{}}
	w := start(t, Config{Via: func(from, to, address string) (string, error) {
		if to != "s3" || !strings.HasPrefix(from, "agent-") {
			return address, nil
		}
		return store.front(t, address)
	}})
	id := w.submit()
	report := w.finish(id)
	store.mu.Lock()
	for _, want := range plan {
		if store.met[want] == 0 {
			t.Errorf("no write met %q; %d of %d were planned for nobody", want, len(store.plan), len(plan))
		}
	}
	store.mu.Unlock()
	logs := w.logs()["agent-0"] + w.logs()["agent-1"]
	if !strings.Contains(logs, "check NTP") {
		t.Error("no agent says that its clock should be looked at")
	}
	stored := map[proto.Digest]bool{}
	list, err := w.client().Traces(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range list.Traces {
		stored[e.Ref.Digest] = true
		s := w.cli("trace", "get", string(e.Ref.Digest), "-o", t.TempDir()+"/trace")
		if s.code != 0 || !strings.Contains(s.out, "content matches its digest") {
			t.Errorf("trace %s: exit code %d: %s%s", e.Ref.Digest, s.code, s.out, s.errors)
		}
	}
	if len(stored) == 0 {
		t.Error("there is no trace")
	}
	w.judge(report)
}

// front serves the store at an address of its own, until the test ends.
func (s *troubledStore) front(t *testing.T, address string) (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	if s.ReverseProxy == nil {
		// The request's own Host goes on: it is signed.
		s.ReverseProxy = &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(&url.URL{Scheme: "http", Host: address})
			r.Out.Host = r.In.Host
		}, ErrorHandler: func(w http.ResponseWriter, _ *http.Request, _ error) {
			panic(http.ErrAbortHandler) // the connection ends, as its other half did
		}, ErrorLog: nil}
	}
	server := &http.Server{Handler: s}
	ended := make(chan struct{})
	go func() {
		server.Serve(l) //nolint:errcheck // ended by Close
		close(ended)
	}()
	t.Cleanup(func() {
		server.Close()
		<-ended
		http.DefaultTransport.(*http.Transport).CloseIdleConnections()
	})
	return l.Addr().String(), nil
}

package api_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/oomfleet/oomfleet/coordinator/api"
	"github.com/oomfleet/oomfleet/proto"
	"github.com/oomfleet/oomfleet/storage/registry"
)

var errEnough = errors.New("enough")

// patience bounds what is expected to happen, on a machine that is busy with
// much else too. Nothing waits for it in full but a failure.
const patience = 3 * time.Minute

// collect watches until n events beside hello have come.
func collect(t *testing.T, client *api.Client, o api.WatchOptions, n int) []api.Event {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var got []api.Event
	err := client.Watch(ctx, o, func(e api.Event) error {
		if e.Kind != api.EventHello {
			got = append(got, e)
		}
		if len(got) >= n {
			return errEnough
		}
		return nil
	})
	if !errors.Is(err, errEnough) {
		t.Fatalf("%d events of %d, %v", len(got), n, err)
	}
	return got
}

func kindsOf(events []api.Event) (out []string) {
	for _, e := range events {
		out = append(out, e.Kind)
	}
	return out
}

func quick() api.WatchLimits {
	return api.WatchLimits{Heartbeat: 20 * time.Millisecond, Gather: time.Millisecond}
}

func TestWatch(t *testing.T) {
	c := newCluster(t)
	c.watch = quick()
	leader, follower := c.serve("n1", nil), c.serve("n2", nil)
	c.addSweep("s", proto.OriginMeasured, cell(64), cell(128))
	since := uint64(0)
	all := []string{"boundaries", "boundaries", "coefficients", "programs", "sweeps"}
	go func() { // while two watch
		for _, n := range []int{64, 128} {
			c.settle(proto.OriginMeasured, cell(n), registry.Settlement{State: proto.CellFailed, Reason: "crashed"})
		}
		c.apply(registry.Command{SetProgram: &registry.SetProgram{Family: registry.FamilyOf(proto.OriginMeasured, cell(64)), Inputs: []proto.Digest{"i"}, Refused: "no"}})
		key := registry.KeyOf(imported(7))
		c.apply(registry.Command{SetCoefficients: &registry.SetCoefficients{Key: key, Models: []proto.Coefficients{imported(7)}, Evidence: []proto.TaskID{}}})
	}()
	for _, client := range []*api.Client{c.client(leader), c.client(follower)} {
		var seen []api.Event
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		err := client.Watch(ctx, api.WatchOptions{Since: &since}, func(e api.Event) error {
			seen = append(seen, e)
			if e.Kind == "coefficients" && e.Coefficients.Coefficients[0].Terms[0].Value == 7 {
				return errEnough
			}
			return nil
		})
		cancel()
		if !errors.Is(err, errEnough) || seen[0].Kind != api.EventHello {
			t.Fatalf("%v, %v", kindsOf(seen), err)
		}
		last := uint64(0)
		for _, e := range seen[1:] {
			if e.Index < last {
				t.Errorf("%s at %d comes after %d", e.Kind, e.Index, last)
			}
			last = e.Index
		}
		// From there on nothing is there that was not seen; from 0 on, all is.
		if got := collect(t, client, api.WatchOptions{Since: &since}, 5); !slices.Equal(slices.Sorted(slices.Values(kindsOf(got))), all) || got[len(got)-1].Index != last {
			t.Errorf("%v", kindsOf(got))
		}
	}
	boundaries := collect(t, c.client(follower), api.WatchOptions{Since: &since, Kinds: []string{"boundaries"}}, 2)
	if b := boundaries[0].Boundary; b == nil || b.Reason != "crashed" || b.Revision != 1 || boundaries[0].ID != b.Index {
		t.Errorf("%+v", boundaries[0])
	}
	from := boundaries[0].ID
	if rest := collect(t, c.client(leader), api.WatchOptions{Since: &from, Kinds: []string{"boundaries"}}, 1); rest[0].Boundary.SeqLen == boundaries[0].Boundary.SeqLen {
		t.Error("what was seen comes again")
	}
	for query, words := range map[string]string{"kinds=boundary": "kinds are", "since=now": "since is a log position"} {
		c.request("GET", leader.URL+"/v1/watch?"+query, "").wantProblem(t, 422, api.CodeBadRequest, words)
	}
}

// TestWatchGoesOnElsewhere: a stream that breaks is opened at another
// coordinator, and what changed meanwhile comes once.
func TestWatchGoesOnElsewhere(t *testing.T) {
	c := newCluster(t)
	c.watch = quick()
	first, second := c.serve("n1", nil), c.serve("n2", nil)
	client := c.client(first, second)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var names []string
	hellos := 0
	err := client.Watch(ctx, api.WatchOptions{Kinds: []string{"sweeps"}, Retry: time.Millisecond}, func(e api.Event) error {
		switch {
		case e.Kind == api.EventHello && hellos == 0:
			hellos++
			c.addSweep("a", proto.OriginMeasured, cell(64))
		case e.Kind == api.EventHello:
			hellos++
		case e.Kind == "sweeps":
			names = append(names, string(e.Sweep.Matrix.ID))
			if len(names) == 1 {
				first.CloseClientConnections()
				c.addSweep("b", proto.OriginMeasured, cell(128))
			}
			if len(names) == 2 {
				return errEnough
			}
		}
		return nil
	})
	if !errors.Is(err, errEnough) || !slices.Equal(names, []string{"a", "b"}) || hellos != 2 {
		t.Errorf("%v, %d streams, %v", names, hellos, err)
	}
}

// TestWatchLeavesASilentCoordinator: a stream that carries nothing, as of a
// coordinator that is stopped, is opened at another one.
func TestWatchLeavesASilentCoordinator(t *testing.T) {
	stopped := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}))
	t.Cleanup(stopped.Close)
	c := newCluster(t)
	c.watch = quick()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	err := c.client(stopped, c.serve("n1", nil)).Watch(ctx, api.WatchOptions{Retry: time.Millisecond, Silence: 100 * time.Millisecond}, func(e api.Event) error {
		if e.Kind != api.EventHello {
			t.Errorf("%+v", e)
		}
		return errEnough
	})
	if !errors.Is(err, errEnough) {
		t.Errorf("it stayed with the one that is stopped: %v", err)
	}
}

func TestWatchSeesARestore(t *testing.T) {
	c := newCluster(t)
	c.watch = quick()
	server := c.serve("n1", nil)
	c.addSweep("old", proto.OriginMeasured, cell(64))
	var file strings.Builder
	if err := c.machine.View().WriteBackup(&file); err != nil {
		t.Fatal(err)
	}
	c.addSweep("lost", proto.OriginMeasured, cell(128))
	var seen []string
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	err := c.client(server).Watch(ctx, api.WatchOptions{}, func(e api.Event) error {
		switch e.Kind {
		case api.EventHello:
			if _, err := (replica{c, "n1"}).Restore(ctx, strings.NewReader(file.String()), true); err != nil {
				return err
			}
		case "sweeps":
			seen = append(seen, string(e.Sweep.Matrix.ID))
			return errEnough
		default:
			seen = append(seen, e.Kind)
		}
		return nil
	})
	if !errors.Is(err, errEnough) || !slices.Equal(seen, []string{"reset", "old"}) {
		t.Errorf("%v, %v", seen, err)
	}
}

// overdue is the connection of a watcher. It says when a write to it has taken
// a tenth longer than the patience; it may take twice as long.
type overdue struct {
	http.ResponseWriter
	patience time.Duration
	late     *time.Timer
}

// SetWriteDeadline begins a write.
func (o *overdue) SetWriteDeadline(at time.Time) error {
	o.late.Reset(o.patience * 11 / 10)
	return http.NewResponseController(o.ResponseWriter).SetWriteDeadline(at)
}

// FlushError ends it.
func (o *overdue) FlushError() error {
	defer o.late.Stop()
	return http.NewResponseController(o.ResponseWriter).Flush()
}

func (o *overdue) Unwrap() http.ResponseWriter { return o.ResponseWriter }

// TestSlowWatcherIsDropped: one that does not read is told so when it reads
// again.
func TestSlowWatcherIsDropped(t *testing.T) {
	c := newCluster(t)
	c.watch = api.WatchLimits{Heartbeat: time.Hour, Patience: patience, Gather: time.Millisecond}
	keepsUp := c.serve("n1", nil)
	c.watch.Patience = 3 * time.Second
	late := time.NewTimer(time.Hour)
	defer late.Stop()
	server := c.serve("n2", func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			h.ServeHTTP(&overdue{w, 3 * time.Second, late}, r)
		})
	})
	var cells []proto.Cell
	for n := range 6000 {
		cells = append(cells, cell(n+1, func(x *proto.Cell) { x.Env = map[string]string{"PAD": strings.Repeat("x", 3000)} }))
	}
	c.addSweep("s", proto.OriginMeasured, cells...)
	c.apply(registry.Command{CancelSweep: &registry.CancelSweep{ID: "s"}})
	since := uint64(0)
	if got := collect(t, c.client(keepsUp), api.WatchOptions{Since: &since}, len(cells)+1); got[len(cells)].ID == 0 || got[0].ID != 0 {
		t.Errorf("ids %d and %d: the position is known when all of its entry have gone", got[0].ID, got[len(cells)].ID)
	}
	conn, err := net.Dial("tcp", server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	// One that is not dropped would be served for ever.
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(conn, "GET /v1/watch?since=0 HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
	<-late.C
	dropped, whole := false, 0
	lines := bufio.NewScanner(conn)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		dropped = dropped || lines.Text() == "event: dropped"
		if strings.HasPrefix(lines.Text(), "event: boundaries") {
			whole++
		}
	}
	t.Logf("%d of %d events, dropped event %v", whole, len(cells), dropped)
	if !dropped || whole >= len(cells) {
		t.Errorf("a watcher that did not read got %d events of %d, told %v", whole, len(cells), dropped)
	}
}

func TestWatchersAreBounded(t *testing.T) {
	c := newCluster(t)
	c.watch = api.WatchLimits{Most: 1, Heartbeat: time.Millisecond}
	server := c.serve("n1", nil)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL+"/v1/watch", nil)
	if err != nil {
		t.Fatal(err)
	}
	first, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer first.Body.Close()
	lines := bufio.NewScanner(first.Body)
	for lines.Scan() && lines.Text() != ": alive" { // a heartbeat comes
	}
	c.request("GET", server.URL+"/v1/watch", "").wantProblem(t, 503, api.CodeTooMany, "watch another one")
	cancel()
	for { // the place is free again
		if got := c.request("GET", server.URL+"/v1/watch?kinds=none", ""); got.status != 422 {
			t.Fatalf("%+v", got)
		}
		ctx, done := context.WithTimeout(t.Context(), patience)
		err := c.client(server).Watch(ctx, api.WatchOptions{Retry: time.Millisecond}, func(api.Event) error { return errEnough })
		done()
		if errors.Is(err, errEnough) {
			return
		}
	}
}

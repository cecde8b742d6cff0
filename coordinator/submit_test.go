package coordinator

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/oomfleet/oomfleet/matrix"
	"github.com/oomfleet/oomfleet/proto"
	"github.com/oomfleet/oomfleet/queue"
	"github.com/oomfleet/oomfleet/storage/registry"
)

func TestSubmit(t *testing.T) {
	f := newFleet(t)
	c, err := New(f.cfg, Deps{Registry: f.registry, Queue: f.queue, Traces: f.traces})
	if err != nil {
		t.Fatal(err)
	}
	submit := func(r SubmitRequest) SubmitReply {
		t.Helper()
		reply, err := c.Submit(f.ctx, r)
		if err != nil {
			t.Fatal(err)
		}
		return reply
	}
	measured := SubmitRequest{Source: source("[64, 66]"), Origin: proto.OriginMeasured}
	first := submit(measured)
	if first.New != 2 || first.Known != 0 || !strings.HasPrefix(string(first.Matrix.ID), "test-") || first.Matrix.Name != "test" {
		t.Errorf("first: %+v", first)
	}
	if again := submit(measured); again.Matrix != first.Matrix || again.New != 0 || again.Known != 2 {
		t.Errorf("the same again: %+v", again)
	}
	reordered := measured
	reordered.Source = source("[66, 64]")
	if got := submit(reordered); got.Matrix != first.Matrix {
		t.Errorf("the same in another order: %+v", got)
	}
	override := measured
	override.Set = []string{"axes.seq_len=64"}
	if got := submit(override); got.Matrix.ID == first.Matrix.ID || got.Known != 1 {
		t.Errorf("with an override: %+v", got)
	} else if kept := f.registry.View().Sweeps[got.Matrix.ID]; !slices.Equal(kept.Set, override.Set) || kept.Source != override.Source {
		t.Errorf("kept source %q and overrides %v", kept.Source, kept.Set)
	}
	simulated := measured
	simulated.Origin = proto.OriginSimulated
	if got := submit(simulated); got.Matrix.ID == first.Matrix.ID || got.New != 2 {
		t.Errorf("of another origin: %+v", got)
	}
	again := measured
	again.Again = true
	if got := submit(again); got.Matrix.ID != first.Matrix.ID+"-2" || got.Known != 2 {
		t.Errorf("asked for again: %+v", got)
	}
	if _, err := c.Cancel(f.ctx, first.Matrix.ID); err != nil {
		t.Fatal(err)
	}
	if got := submit(measured); got.Matrix.ID != first.Matrix.ID+"-2" {
		t.Errorf("after the first was cancelled: %+v", got)
	}
}

func TestSubmitRefuses(t *testing.T) {
	f := newFleet(t)
	c, err := New(f.cfg, Deps{Registry: f.registry, Queue: f.queue, Traces: f.traces})
	if err != nil {
		t.Fatal(err)
	}
	var problems matrix.Problems
	if _, err := c.Submit(f.ctx, SubmitRequest{Source: "name: 3", Origin: proto.OriginMeasured}); !errors.As(err, &problems) || problems[0].Line == 0 {
		t.Errorf("a bad file gives %v", err)
	}
	var refused *RefusedError
	if _, err := c.Submit(f.ctx, SubmitRequest{Source: source("[64]"), Origin: proto.OriginImported}); !errors.As(err, &refused) {
		t.Errorf("an imported sweep gives %v", err)
	}
	if _, err := c.Cancel(f.ctx, "nothing"); !errors.Is(err, ErrUnknownSweep) {
		t.Errorf("cancelling nothing gives %v", err)
	}
	if n := len(f.registry.View().Sweeps); n != 0 {
		t.Errorf("%d sweeps were made", n)
	}
}

// TestSubmitInstalled: `installed` is what agents of the sweep's origin have.
func TestSubmitInstalled(t *testing.T) {
	f := newFleet(t)
	c, err := New(f.cfg, Deps{Registry: f.registry, Queue: f.queue, Traces: f.traces})
	if err != nil {
		t.Fatal(err)
	}
	src := strings.ReplaceAll(source("[64]"), driver, matrix.Installed)
	r := SubmitRequest{Source: src, Origin: proto.OriginMeasured}
	if _, err := c.Submit(f.ctx, r); err == nil {
		t.Error("installed without an agent")
	}
	for _, a := range []proto.AgentInfo{
		{ID: "a", Origin: proto.OriginMeasured, Stack: proto.Stack{GPU: gpu, Driver: "1"}},
		{ID: "b", Origin: proto.OriginMeasured, Stack: proto.Stack{GPU: gpu, Driver: "2"}},
		{ID: "c", Origin: proto.OriginSimulated, Stack: proto.Stack{GPU: gpu, Driver: "3"}},
	} {
		if err := f.queue.Announce(f.ctx, a, time.Minute); err != nil {
			t.Fatal(err)
		}
	}
	if reply, err := c.Submit(f.ctx, r); err != nil || reply.New != 2 {
		t.Errorf("two drivers of this origin: %+v, %v", reply, err)
	}
}

// TestCancel: open tasks leave the queue, and what a run under way reports is
// kept as late.
func TestCancel(t *testing.T) {
	f := newFleet(t)
	c, _ := f.start()
	id := f.submit(c, "[64, 66]")
	busy := make(chan queue.Delivery)
	f.agents(1, func(ctx context.Context, d queue.Delivery, agent proto.AgentID) error {
		select {
		case busy <- d:
		case <-ctx.Done():
		}
		return nil
	})
	running := <-busy
	closed, err := c.Cancel(f.ctx, id)
	if err != nil || closed != 2 {
		t.Errorf("closed %d, %v", closed, err)
	}
	if closed, err := c.Cancel(f.ctx, id); err != nil || closed != 0 {
		t.Errorf("the second time: closed %d, %v", closed, err)
	}
	if waiting, err := f.queue.Waiting(f.ctx); err != nil || len(waiting) != 0 {
		t.Errorf("waiting %v, %v", waiting, err)
	}
	if r := f.settled(id); r.State != "cancelled" || r.Counts.Cancelled != 2 {
		t.Errorf("report %+v", r.Counts)
	}
	task, err := running.Task()
	if err != nil {
		t.Fatal(err)
	}
	if err := f.honest(f.ctx, running, "a"); err != nil {
		t.Fatal(err)
	}
	v := f.registry.View()
	for {
		if v = f.registry.View(); recordOf(v, task.ID).Late == 1 {
			return
		}
		select {
		case <-f.registry.Changed(v.AppliedIndex):
		case <-f.ctx.Done():
			t.Fatal("the late result was not counted")
		}
	}
}

func TestSlug(t *testing.T) {
	for in, want := range map[string]string{"nightly-2": "nightly-2", "A b_c": "a-b-c", "--": "matrix", "": "matrix", "Ünï": "n"} {
		if got := slug(in); got != want {
			t.Errorf("slug(%q) = %q, want %q", in, got, want)
		}
	}
}

// lost is a registry whose next answers to AddSweep are lost on the way after the
// commit.
func lost(n int) func(int, registry.Command) error {
	return func(_ int, cmd registry.Command) error {
		if cmd.AddSweep != nil && n > 0 {
			n--
			return registry.ErrUncertain
		}
		return nil
	}
}

// TestRequestsCountOnce: a submission and a repeat whose answers were lost are
// asked for again, and are what they were; another request is another one.
func TestRequestsCountOnce(t *testing.T) {
	f := newFleet(t)
	c, _ := f.start()
	f.agents(1, f.honest)
	id := f.submit(c, "[64, 66]")
	settled := f.settled(id)
	submit := func(request, lengths string) (SubmitReply, error) {
		return c.Submit(f.ctx, SubmitRequest{Source: source(lengths), Origin: proto.OriginMeasured, Again: true, Request: request})
	}
	repeat := func(request string, n int) (SubmitReply, error) {
		return c.Repeat(f.ctx, RepeatRequest{Of: id, Cells: []proto.CellID{settled.Cells[0].ID}, Repeats: n, Request: request})
	}
	for what, ask := range map[string]func(string) (SubmitReply, error){
		"submit": func(r string) (SubmitReply, error) { return submit("s"+r, "[64, 66]") },
		"repeat": func(r string) (SubmitReply, error) { return repeat("r"+r, 2) },
	} {
		t.Run(what, func(t *testing.T) {
			before := len(f.registry.View().Sweeps)
			f.registry.failing(lost(1))
			if _, err := ask("1"); !errors.Is(err, registry.ErrUncertain) {
				t.Fatalf("the answer was not lost: %v", err)
			}
			first, err := ask("1")
			if err != nil {
				t.Fatal(err)
			}
			again, err := ask("1")
			if err != nil || again.Matrix != first.Matrix || again.Settled+again.Known != first.Settled+first.Known {
				t.Errorf("%+v, then %+v, %v", first, again, err)
			}
			if n := len(f.registry.View().Sweeps) - before; n != 1 {
				t.Errorf("one request made %d sweeps", n)
			}
			other, err := ask("2")
			if err != nil || other.Matrix.ID == first.Matrix.ID {
				t.Errorf("another request: %+v, %v", other, err)
			}
		})
	}
	var refused *RefusedError
	if _, err := submit("s1", "[64]"); !errors.As(err, &refused) || !strings.Contains(refused.Why, "one request only") {
		t.Errorf("the key of another matrix: %v", err)
	}
	if _, err := repeat("r1", 3); !errors.As(err, &refused) || !strings.Contains(refused.Why, "one request only") {
		t.Errorf("the key of another repeat: %v", err)
	}
	all := []proto.CellID{settled.Cells[1].ID, settled.Cells[0].ID}
	if _, err := c.Repeat(f.ctx, RepeatRequest{Of: id, Cells: all, Repeats: 2, Request: "r1"}); !errors.As(err, &refused) || !strings.Contains(refused.Why, "one request only") {
		t.Errorf("the key of a repeat of other cells: %v", err)
	}
	if _, err := repeat("s1", 2); !errors.As(err, &refused) {
		t.Errorf("the key of a submission: %v", err)
	}
}

// TestRequestsAtOnce: requests that took the same id for free make a sweep each,
// with keys and without.
func TestRequestsAtOnce(t *testing.T) {
	for name, keys := range map[string][2]string{"keys": {"a", "b"}, "no keys": {}, "one key": {"a", ""}} {
		t.Run(name, func(t *testing.T) {
			f := newFleet(t)
			c, err := New(f.cfg, Deps{Registry: f.registry, Queue: f.queue, Traces: f.traces})
			if err != nil {
				t.Fatal(err)
			}
			f.submit(c, "[64]")
			ask := func(request string) (proto.MatrixID, error) {
				r, err := c.Submit(f.ctx, SubmitRequest{Source: source("[64]"), Origin: proto.OriginMeasured, Again: true, Request: request})
				return r.Matrix.ID, err
			}
			var second proto.MatrixID
			in := false
			f.registry.fail = func(_ int, cmd registry.Command) error {
				if !in {
					in = true
					f.registry.mu.Unlock() // the other request comes in between look and commit
					second, err = ask(keys[1])
					f.registry.mu.Lock()
				}
				return nil
			}
			first, errFirst := ask(keys[0])
			if err != nil || errFirst != nil || first == second || len(f.registry.View().Sweeps) != 3 {
				t.Errorf("%s and %s, %v %v", first, second, err, errFirst)
			}
		})
	}
}

package coordinator

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/oomfleet/oomfleet/proto"
	"github.com/oomfleet/oomfleet/queue"
	"github.com/oomfleet/oomfleet/queue/memq"
	"github.com/oomfleet/oomfleet/storage/registry"
)

// told is a channel of what agents hear, from the first moment on that a
// message arrives: saying something until then is part of it.
func (f *fleet) told() <-chan proto.Control {
	f.t.Helper()
	heard := make(chan proto.Control, 10_000)
	q := f.queue.(*memq.Queue).Client()
	pool := stack.Pool(proto.OriginMeasured)
	f.t.Cleanup(f.listener(q, pool, heard))
	for {
		if err := q.Tell(f.ctx, pool, proto.Control{Seen: 1}); err != nil {
			f.t.Fatal(err)
		}
		select {
		case <-heard:
			for len(heard) > 0 {
				<-heard
			}
			return heard
		case <-time.After(time.Millisecond):
		}
	}
}

func (f *fleet) listener(q queue.Queue, pool proto.Pool, heard chan<- proto.Control) (stop func()) {
	done := make(chan error, 1)
	go func() { done <- q.Listen(f.ctx, pool, func(c proto.Control) { heard <- c }) }() // ends with Close
	return func() {
		q.Close()
		if err := <-done; err != nil && !errors.Is(err, queue.ErrClosed) {
			f.t.Errorf("Listen: %v", err)
		}
	}
}

func (f *fleet) announce(a proto.AgentInfo, ttl time.Duration) {
	f.t.Helper()
	a.Origin, a.Stack = proto.OriginMeasured, stack
	if err := f.queue.Announce(f.ctx, a, ttl); err != nil {
		f.t.Fatal(err)
	}
}

// TestCancelTellsAgents: those that run a cancelled task hear it at once, and
// again at each audit for as long as they announce that they run it.
func TestCancelTellsAgents(t *testing.T) {
	f := newFleet(t)
	heard := f.told()
	c, stop := f.start()
	defer stop()
	id := f.submit(c, "[128]")
	d, err := f.queue.Next(f.ctx, stack.Pool(proto.OriginMeasured))
	if err != nil {
		t.Fatal(err)
	}
	task, err := d.Task()
	if err != nil {
		t.Fatal(err)
	}
	f.announce(proto.AgentInfo{ID: "busy", State: proto.AgentBusy, Task: task.ID}, time.Minute)
	f.announce(proto.AgentInfo{ID: "other", State: proto.AgentBusy, Task: "m-ffffffffffffffffffffffffffffffff-1"}, time.Minute)
	if _, err := c.Cancel(f.ctx, id); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		select {
		case said := <-heard:
			if !said.Stops(task) || !slices.Equal(said.Stop, []proto.TaskID{task.ID}) {
				t.Errorf("said %+v of task %s under fence %d", said, task.ID, task.Fence)
			}
		case <-f.ctx.Done():
			t.Fatal("nothing was said")
		}
	}
	later := task
	later.Fence += 100
	if (proto.Control{Stop: []proto.TaskID{task.ID}, Seen: task.Fence + 1}).Stops(later) {
		t.Error("a task that was issued later is stopped")
	}
	// The run had ended before it heard: its result is kept as late.
	if err := f.queue.Report(f.ctx, runOf(task, "busy")); err != nil {
		t.Fatal(err)
	}
	f.wait("the late result", func(v registry.View) bool {
		return v.Records[registry.Key{Origin: proto.OriginMeasured, Cell: task.CellID}].Late == 1
	})
	if r := f.settled(id); r.State != registry.SweepCancelled || r.Cells[0].LateResults != 1 || r.Cells[0].State != proto.CellCancelled {
		t.Errorf("%s, cell %+v", r.State, r.Cells[0])
	}
}

// TestOpenTasksAreNotStopped: who runs what is wanted hears nothing.
func TestOpenTasksAreNotStopped(t *testing.T) {
	f := newFleet(t)
	c, stop := f.start()
	f.submit(c, "[128, 256]")
	v := f.wait("open tasks", func(v registry.View) bool {
		for _, r := range v.Records {
			if len(r.Open) > 0 {
				return true
			}
		}
		return false
	})
	stop()
	var agents []proto.AgentInfo
	for _, r := range v.Records {
		for _, o := range r.Open {
			agents = append(agents, proto.AgentInfo{ID: "a", Origin: proto.OriginMeasured, Stack: stack, Task: o.Task.ID})
		}
	}
	if lost := wasted(v, append(agents, proto.AgentInfo{ID: "idle"})); len(agents) == 0 || len(lost) != 0 {
		t.Errorf("%d run open tasks, stopped: %v", len(agents), lost)
	}
}

func TestDrainTellsTheAgent(t *testing.T) {
	f := newFleet(t)
	heard := f.told()
	c, err := New(f.cfg, Deps{Registry: f.registry, Queue: f.queue, Traces: f.traces})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Drain(f.ctx, "gpu-1", time.Minute); !errors.Is(err, ErrUnknownAgent) {
		t.Errorf("an agent that is not there: %v", err)
	}
	f.announce(proto.AgentInfo{ID: "gpu-1", State: proto.AgentIdle}, time.Minute)
	was, err := c.Drain(f.ctx, "gpu-1", 90*time.Second)
	if err != nil || was.ID != "gpu-1" || was.State != proto.AgentIdle {
		t.Errorf("%+v, %v", was, err)
	}
	if said := <-heard; !said.Drains("gpu-1") || said.Drains("gpu-2") || said.DrainSeconds != 90 || len(said.Stop) > 0 {
		t.Errorf("said %+v", said)
	}
}

// TestAgentSeriesEndWithTheLease: a series lives as long as the announcement
// behind it, and only on the leader.
func TestAgentSeriesEndWithTheLease(t *testing.T) {
	f := newFleet(t)
	clock := memq.NewManual(time.Unix(1_000_000, 0))
	q, err := memq.New(memq.Config{Clock: clock})
	if err != nil {
		t.Fatal(err)
	}
	f.queue = q
	f.announce(proto.AgentInfo{ID: "gpu-1", State: proto.AgentBusy}, 15*time.Second)
	f.announce(proto.AgentInfo{ID: "gpu-2", State: "of a newer build"}, 30*time.Second)
	_, stop := f.start()
	series := func() string {
		families, err := f.metrics.Gather()
		if err != nil {
			t.Fatal(err)
		}
		var out []string
		for _, family := range families {
			if family.GetName() != "oomfleet_agent_info" {
				continue
			}
			for _, m := range family.GetMetric() {
				out = append(out, m.GetLabel()[0].GetValue()+" "+m.GetLabel()[4].GetValue())
			}
		}
		return strings.Join(out, ", ")
	}
	await := func(want string) {
		t.Helper()
		for series() != want {
			select {
			case <-time.After(time.Millisecond):
			case <-f.ctx.Done():
				t.Fatalf("series %q, want %q", series(), want)
			}
		}
	}
	await("gpu-1 busy, gpu-2 other")
	clock.Advance(16 * time.Second)
	await("gpu-2 other")
	clock.Advance(16 * time.Second)
	await("")
	f.announce(proto.AgentInfo{ID: "gpu-1", State: proto.AgentIdle}, time.Hour)
	await("gpu-1 idle")
	f.registry.lead(false)
	await("")
	stop()
}

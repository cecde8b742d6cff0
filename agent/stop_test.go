package agent_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/oomfleet/oomfleet/agent"
	"github.com/oomfleet/oomfleet/agent/probe"
	"github.com/oomfleet/oomfleet/proto"
	"github.com/oomfleet/oomfleet/queue"
	"github.com/oomfleet/oomfleet/queue/memq"
)

// TestProberFails: nothing was learnt, the registry is told so, and the agent
// waits longer and longer before it tries again.
func TestProberFails(t *testing.T) {
	inFleet(t, func(f *fleet) {
		const why = "the GPU has fallen off the bus: reset it"
		f.card.run = func(context.Context, proto.Task) (probe.Observation, error) {
			return probe.Observation{}, errors.New(why)
		}
		a := f.start(f.deps())
		const runs = 9
		for i := range runs {
			f.publish(f.task(i, proto.TaskProbe))
		}
		for range runs {
			if r := f.report(); r.Outcome != proto.OutcomeAgentFault || r.Why != why || r.Evidence.Fault != why {
				t.Errorf("outcome %s, why %q", r.Outcome, r.Why)
			}
			f.rest()
			if says := f.says(); says.State != proto.AgentQuarantined || says.Reason != why || says.Task != "" {
				t.Errorf("says %+v", says)
			}
		}
		f.lies(0)
		var pauses []time.Duration
		f.mu.Lock()
		for i := range f.started[1:] {
			pauses = append(pauses, f.started[i+1].Sub(f.started[i])/time.Second)
		}
		f.mu.Unlock()
		if want := []time.Duration{5, 10, 20, 40, 80, 160, 300, 300}; !slices.Equal(pauses, want) {
			t.Errorf("pauses of %d s, want %d", pauses, want)
		}
		f.card.set(func(c *card) { c.run = nil })
		f.publish(f.task(100, proto.TaskProbe))
		if r := f.report(); r.Outcome != proto.OutcomePass {
			t.Errorf("afterwards: %s", r.Outcome)
		}
		f.rest()
		if says := f.says(); says.State != proto.AgentIdle || says.Reason != "" {
			t.Errorf("afterwards it says %+v", says)
		}
		// A success makes the next pause short again.
		f.card.set(func(c *card) {
			c.run = func(context.Context, proto.Task) (probe.Observation, error) {
				return probe.Observation{}, errors.New(why)
			}
		})
		before := time.Now()
		f.publish(f.task(101, proto.TaskProbe), f.task(102, proto.TaskProbe))
		f.report()
		f.report()
		if waited := time.Since(before); waited != 5*time.Second {
			t.Errorf("waited %s", waited)
		}
		a.stop()
	})
}

// TestCardLost: without a card no work is taken, and what was taken is handed
// back, not reported: the cell has nothing to do with it.
func TestCardLost(t *testing.T) {
	inFleet(t, func(f *fleet) {
		a := f.start(f.deps())
		f.rest()
		lost := errors.New("the driver does not answer: load it")
		f.card.set(func(c *card) { c.describing = lost })
		task := f.task(1, proto.TaskProbe)
		f.publish(task)
		f.rest()
		if got := f.steps("retry", "ack", "report"); got != "retry" {
			t.Errorf("steps %s", got)
		}
		f.pass(10 * time.Minute)
		if says := f.says(); says.State != proto.AgentQuarantined || says.Reason != lost.Error() {
			t.Errorf("says %+v", says)
		}
		if got := f.steps("next"); strings.Count(got, "next") != 1 {
			t.Errorf("it asked for work %d times", strings.Count(got, "next"))
		}
		f.lies(1)
		f.card.set(func(c *card) { c.describing = nil })
		if r := f.report(); r.Task != task.ID || r.Outcome != proto.OutcomePass {
			t.Errorf("result %+v", r)
		}
		a.stop()
	})
}

func TestNoCardAtStart(t *testing.T) {
	inFleet(t, func(f *fleet) {
		f.card.describing = errors.New("no CUDA device: install a driver")
		if err := f.agent(f.deps()).Run(f.Context()); !errors.Is(err, f.card.describing) {
			t.Errorf("Run: %v", err)
		}
		f.card.describing, f.card.says.Card.UUID = nil, ""
		if err := f.agent(f.deps()).Run(f.Context()); err == nil || !strings.Contains(err.Error(), "names no card") {
			t.Errorf("Run: %v", err)
		}
		if agents, _ := f.queue.Agents(f.Context()); len(agents) != 0 {
			t.Errorf("announced: %+v", agents)
		}
	})
}

// TestStopInARun: the run is ended and its task is with others at once.
func TestStopInARun(t *testing.T) {
	inFleet(t, func(f *fleet) {
		f.card.run = func(ctx context.Context, task proto.Task) (probe.Observation, error) {
			<-ctx.Done()
			return probe.Observation{}, context.Cause(ctx)
		}
		task := f.task(1, proto.TaskProbe)
		a := f.start(f.deps())
		f.publish(task)
		f.pass(time.Minute)
		before := time.Now()
		a.stop()
		d, err := f.queue.Next(f.Context(), task.Pool())
		if err != nil {
			t.Fatal(err)
		}
		if took := time.Since(before); took != 0 {
			t.Errorf("another agent got the task after %s", took)
		}
		if got, err := d.Task(); err != nil || got.ID != task.ID {
			t.Errorf("got %s, %v", got.ID, err)
		}
		f.noReport()
		if agents, _ := f.queue.Agents(f.Context()); len(agents) != 0 {
			t.Errorf("still announced: %+v", agents)
		}
		if got := f.steps("ack", "retry"); got != "retry" {
			t.Errorf("steps %s", got)
		}
	})
}

// TestStopAsARunEnds: a run that came to its end just then is kept for the next
// agent if it taught something. What died with the agent taught nothing.
func TestStopAsARunEnds(t *testing.T) {
	for _, tt := range []struct {
		name string
		run  func(proto.Task) probe.Observation
		kept bool
	}{
		{"pass", passed, true},
		{"out of memory", out, true},
		{"interrupted", func(proto.Task) probe.Observation {
			return probe.Observation{Evidence: proto.Evidence{Exception: "KeyboardInterrupt", Phase: "forward", ExitCode: ptr(130)}}
		}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			inFleet(t, func(f *fleet) {
				f.card.run = func(ctx context.Context, task proto.Task) (probe.Observation, error) {
					<-ctx.Done()
					return tt.run(task), nil
				}
				task := f.task(1, proto.TaskProbe)
				a := f.start(f.deps())
				f.publish(task)
				f.rest()
				a.stop()
				f.noReport()
				f.lies(1)
				f.card.run = nil
				b := f.start(f.deps())
				r := f.report()
				if r.Task != task.ID {
					t.Errorf("result of %s", r.Task)
				}
				f.pass(2 * lease)
				f.lies(0)
				f.noReport()
				if ran := f.ran(); len(ran) == 1 != tt.kept {
					t.Errorf("ran %v", ran)
				}
				b.stop()
			})
		})
	}
}

// TestStopWhileDelivering: what could not be delivered is delivered by the next.
func TestStopWhileDelivering(t *testing.T) {
	inFleet(t, func(f *fleet) {
		f.failing(func(op string) error {
			if op == "report" {
				return queue.ErrFull
			}
			return nil
		})
		a := f.start(f.deps())
		f.publish(f.task(1, proto.TaskProbe))
		f.pass(10 * time.Minute)
		before := time.Now()
		a.stop()
		if took := time.Since(before); took != 0 {
			t.Errorf("it took %s to stop", took)
		}
		f.failing(nil)
		b := f.start(f.deps())
		f.report()
		f.pass(2 * lease)
		f.lies(0)
		if ran := f.ran(); len(ran) != 1 {
			t.Errorf("ran %v", ran)
		}
		b.stop()
	})
}

// TestQueueClosed: an agent without a queue can never go on.
func TestQueueClosed(t *testing.T) {
	for _, in := range []string{"idle", "run"} {
		t.Run(in, func(t *testing.T) {
			inFleet(t, func(f *fleet) {
				deps := f.deps()
				release := make(chan struct{})
				f.card.run = func(_ context.Context, task proto.Task) (probe.Observation, error) {
					<-release
					return passed(task), nil
				}
				a := f.start(deps)
				if in == "run" {
					f.publish(f.task(1, proto.TaskRecord))
				}
				f.rest()
				deps.Queue.(*watchedQueue).Close()
				close(release)
				if err := <-a.done; !errors.Is(err, queue.ErrClosed) {
					t.Errorf("Run: %v", err)
				}
				a.end()
				if want := map[string]int{"idle": 0, "run": 2}[in]; len(f.outbox()) != want {
					t.Errorf("outbox holds %v", f.outbox())
				}
			})
		})
	}
}

// TestLeaseNotRenewed: a queue that does not answer does not end the run.
func TestLeaseNotRenewed(t *testing.T) {
	inFleet(t, func(f *fleet) {
		f.card.run = func(_ context.Context, task proto.Task) (probe.Observation, error) {
			f.pass(20 * time.Second)
			return passed(task), nil
		}
		f.failing(func(op string) error {
			if op == "extend" {
				return errors.New("no answer")
			}
			return nil
		})
		deps := f.deps()
		deps.Metrics = f.reg
		a := f.start(deps)
		f.publish(f.task(1, proto.TaskProbe))
		f.report()
		f.rest()
		f.lies(0)
		if got := gather(t, f.reg)["oomfleet_agent_lease_failures_total"]; got != 2 {
			t.Errorf("%v lease failures, want 2", got)
		}
		a.stop()
	})
}

// TestLastWord: a renewal that follows it would hold a task that is with others
// by then.
func TestLastWord(t *testing.T) {
	inFleet(t, func(f *fleet) {
		f.card.run = func(_ context.Context, task proto.Task) (probe.Observation, error) {
			<-time.After(lease/4 - time.Second) // a renewal is due in one second
			return passed(task), nil
		}
		f.failing(func(op string) error {
			if op == "ack" {
				<-time.After(3 * time.Second)
			}
			return nil
		})
		a := f.start(f.deps())
		f.publish(f.task(1, proto.TaskProbe))
		f.pass(time.Minute)
		if got := f.steps("extend", "ack"); got != "ack" {
			t.Errorf("steps %s", got)
		}
		a.stop()
	})
}

// TestStartStop starts and stops agents in quick succession, in every phase:
// before the first announcement, idle, and in a run.
func TestStartStop(t *testing.T) {
	f := newFleet(t, memq.Config{})
	inRun := make(chan struct{})
	f.card.run = func(ctx context.Context, _ proto.Task) (probe.Observation, error) {
		inRun <- struct{}{}
		<-ctx.Done()
		return probe.Observation{}, ctx.Err()
	}
	task := f.task(1, proto.TaskProbe)
	for i := range 500 {
		a, err := agent.New(agent.Config{WorkDir: f.workDir}, f.deps())
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- a.Run(ctx) }()
		switch i % 3 {
		case 1:
			<-a.Ready()
		case 2:
			f.publish(task)
			<-inRun
		}
		cancel()
		if err := <-done; err != nil {
			t.Fatalf("round %d: %v", i, err)
		}
		if i%3 == 2 {
			if err := f.queue.Remove(t.Context(), task.Pool(), []proto.TaskID{task.ID}); err != nil {
				t.Fatal(err)
			}
		}
	}
	if agents, err := f.queue.Agents(t.Context()); err != nil || len(agents) != 0 {
		t.Errorf("%d agents are still announced, %v", len(agents), err)
	}
	f.noReport()
}

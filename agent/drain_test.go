package agent_test

import (
	"context"
	"testing"
	"time"

	"github.com/oomfleet/oomfleet/agent/probe"
	"github.com/oomfleet/oomfleet/proto"
)

// slow makes the card's runs take this long; a run that is ended says so.
func (f *fleet) slow(d time.Duration) {
	f.card.set(func(c *card) {
		c.run = func(ctx context.Context, task proto.Task) (probe.Observation, error) {
			timer := time.NewTimer(d)
			defer timer.Stop()
			select {
			case <-ctx.Done():
				return probe.Observation{}, context.Cause(ctx)
			case <-timer.C:
				return passed(task), nil
			}
		}
	})
}

func (f *fleet) tell(task proto.Task, c proto.Control) {
	f.Helper()
	if err := f.queue.Tell(f.Context(), task.Pool(), c); err != nil {
		f.Fatal(err)
	}
	f.rest()
}

func TestCancelEndsTheRun(t *testing.T) {
	inFleet(t, func(f *fleet) {
		f.slow(time.Hour)
		first, second := f.task(1, proto.TaskProbe), f.task(2, proto.TaskProbe)
		a := f.start(f.deps())
		f.publish(first, second)
		f.pass(time.Minute)
		before := time.Now()
		for name, c := range map[string]proto.Control{
			"another task":         {Stop: []proto.TaskID{second.ID}, Seen: 99},
			"an earlier log entry": {Stop: []proto.TaskID{first.ID}, Seen: first.Fence - 1},
			"nothing":              {Seen: 99},
		} {
			if f.tell(first, c); f.says().Task != first.ID {
				t.Errorf("%s ends the run", name)
			}
		}
		f.tell(first, proto.Control{Stop: []proto.TaskID{first.ID}, Seen: first.Fence})
		if says := f.says(); says.Task != second.ID || says.State != proto.AgentBusy {
			t.Errorf("it goes on with %q, %s", says.Task, says.State)
		}
		if took := time.Since(before); took != 0 {
			t.Errorf("the run took %s to end", took)
		}
		f.noReport() // it teaches nothing
		f.lies(1)    // the first is gone for good
		f.tell(second, proto.Control{Stop: []proto.TaskID{first.ID, second.ID}, Seen: 99})
		if says := f.says(); says.State != proto.AgentIdle || says.Reason != "" {
			t.Errorf("says %+v", says)
		}
		f.noReport()
		f.lies(0)
		a.stop()
	})
}

// TestCancelWhenItHadPassed: what a run found before it was ended is reported;
// the registry keeps it as late.
func TestCancelWhenItHadPassed(t *testing.T) {
	inFleet(t, func(f *fleet) {
		task := f.task(1, proto.TaskProbe)
		f.card.run = func(ctx context.Context, task proto.Task) (probe.Observation, error) {
			<-ctx.Done() // the last thing before its end
			return passed(task), nil
		}
		a := f.start(f.deps())
		f.publish(task)
		f.rest()
		f.tell(task, proto.Control{Stop: []proto.TaskID{task.ID}, Seen: 99})
		if r := f.report(); r.Task != task.ID || r.Outcome != proto.OutcomePass {
			t.Errorf("result %+v", r)
		}
		f.lies(0)
		a.stop()
	})
}

// TestDrain: the run goes on, no more is taken, and the agent ends by itself.
func TestDrain(t *testing.T) {
	for name, drain := range map[string]func(*fleet, *running, proto.Task){
		"by a coordinator": func(f *fleet, a *running, task proto.Task) {
			f.tell(task, proto.Control{Drain: []proto.AgentID{"somebody-else"}, DrainSeconds: 1})
			f.tell(task, proto.Control{Drain: []proto.AgentID{"gpu-4f2a"}})
		},
		"by its process": func(f *fleet, a *running, _ proto.Task) {
			a.Drain("asked to stop", time.Hour)
			a.Drain("asked again, and for longer", 2*time.Hour)
			f.rest()
		},
	} {
		t.Run(name, func(t *testing.T) {
			inFleet(t, func(f *fleet) {
				f.slow(5 * time.Minute)
				first, second := f.task(1, proto.TaskProbe), f.task(2, proto.TaskProbe)
				a := f.start(f.deps())
				f.publish(first, second)
				f.pass(time.Minute)
				drain(f, a, first)
				if says := f.says(); says.State != proto.AgentDraining || says.Task != first.ID {
					t.Errorf("says %+v", says)
				}
				before := time.Now()
				if err := <-a.done; err != nil {
					t.Errorf("Run: %v", err)
				}
				if took := time.Since(before); took != 4*time.Minute {
					t.Errorf("it ended after %s, the run had 4 minutes to go", took)
				}
				if r := f.report(); r.Task != first.ID || r.Outcome != proto.OutcomePass {
					t.Errorf("result %+v", r)
				}
				f.lies(1)
				if agents, _ := f.queue.Agents(f.Context()); len(agents) != 0 {
					t.Errorf("still announced: %+v", agents)
				}
			})
		})
	}
}

// TestDrainIdle: an agent without work ends at once, also in quarantine.
func TestDrainIdle(t *testing.T) {
	for name, fault := range map[string]error{"idle": nil, "in quarantine": context.DeadlineExceeded} {
		t.Run(name, func(t *testing.T) {
			inFleet(t, func(f *fleet) {
				a := f.start(f.deps())
				f.rest()
				f.card.set(func(c *card) { c.describing = fault })
				f.pass(2 * time.Minute)
				before := time.Now()
				a.Drain("asked to stop", time.Hour)
				if err := <-a.done; err != nil || time.Since(before) != 0 {
					t.Errorf("Run: %v after %s", err, time.Since(before))
				}
			})
		})
	}
}

// TestDrainIsBounded: a run that does not end in time is handed back.
func TestDrainIsBounded(t *testing.T) {
	inFleet(t, func(f *fleet) {
		f.slow(5 * time.Hour)
		task := f.task(1, proto.TaskProbe)
		a := f.start(f.deps())
		f.publish(task)
		f.pass(time.Minute)
		before := time.Now()
		a.Drain("an operator", time.Hour)
		f.rest()
		a.Drain("the machine goes down", 20*time.Second)
		if err := <-a.done; err != nil {
			t.Errorf("Run: %v", err)
		}
		if took := time.Since(before); took != 20*time.Second {
			t.Errorf("it ended after %s", took)
		}
		d, err := f.queue.Next(f.Context(), task.Pool())
		if err != nil {
			t.Fatal(err)
		}
		if got, err := d.Task(); err != nil || got.ID != task.ID || time.Since(before) != 20*time.Second {
			t.Errorf("got %s, %v, after %s", got.ID, err, time.Since(before))
		}
		f.noReport()
	})
}

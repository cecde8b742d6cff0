package agent_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/oomfleet/oomfleet/agent/probe"
	"github.com/oomfleet/oomfleet/proto"
)

// breaks is a run that the card breaks, and lost one that nothing was learnt of.
func breaks(context.Context, proto.Task) (probe.Observation, error) {
	return probe.Observation{Evidence: proto.Evidence{ExitCode: ptr(1), Phase: "start", Exception: "AcceleratorError",
		Message: "CUDA error: uncorrectable ECC error encountered"}}, nil
}

func lost(context.Context, proto.Task) (probe.Observation, error) {
	return probe.Observation{}, errors.New("the runner ended in the middle of a run")
}

// TestBrokenCardCostsOneAttempt: the card answers the driver's questions and
// breaks every run. After the first the agent takes nothing more, says why, and
// looks less and less often; when the card is well again it goes on.
func TestBrokenCardCostsOneAttempt(t *testing.T) {
	inFleet(t, func(f *fleet) {
		var checks []time.Time // the agent's goroutine writes it, and rests where it is read
		f.card.run, f.card.check = breaks, func(context.Context) error {
			checks = append(checks, time.Now())
			return errors.New("AcceleratorError: CUDA error: uncorrectable ECC error encountered")
		}
		tasks := []proto.Task{f.task(1, proto.TaskProbe), f.task(2, proto.TaskProbe), f.task(3, proto.TaskProbe)}
		a := f.start(f.deps())
		f.publish(tasks...)
		if r := f.report(); r.Outcome != proto.OutcomeAgentFault {
			t.Errorf("outcome %s, %s", r.Outcome, r.Why)
		}
		began := time.Now()
		f.pass(11 * time.Minute)
		if got := f.ran(); len(got) != 1 {
			t.Errorf("ran %v on a card that fails its check", got)
		}
		f.lies(2)
		f.noReport()
		says := f.says()
		if want := "the card fails its check: AcceleratorError: CUDA error: uncorrectable ECC error encountered"; says.State != proto.AgentQuarantined || says.Reason != want || says.Task != "" {
			t.Errorf("says %+v", says)
		}
		var pauses []time.Duration
		for _, at := range checks {
			pauses, began = append(pauses, at.Sub(began)/time.Second), at
		}
		if want := []time.Duration{5, 10, 20, 40, 80, 160, 300}; !slices.Equal(pauses, want) {
			t.Errorf("pauses of %d s, want %d", pauses, want)
		}
		f.card.set(func(c *card) { c.run, c.check = nil, nil })
		for range 2 {
			if r := f.report(); r.Outcome != proto.OutcomePass {
				t.Errorf("afterwards: %s, %s", r.Outcome, r.Why)
			}
		}
		f.rest()
		f.lies(0)
		if says := f.says(); says.State != proto.AgentIdle || says.Reason != "" {
			t.Errorf("afterwards it says %+v", says)
		}
		if got := f.steps("check"); len(checks) != 7 || got != "check check check check check check check check" {
			t.Errorf("%d checks failed, and %s", len(checks), got)
		}
		a.stop()
	})
}

// TestFaultBehindAPassedCheck: the card is well, so the task is to blame. Each
// such run counts, as any does, after a check of its own.
func TestFaultBehindAPassedCheck(t *testing.T) {
	inFleet(t, func(f *fleet) {
		f.card.run = lost
		a := f.start(f.deps())
		for i := range 3 {
			f.publish(f.task(i, proto.TaskProbe))
			if r := f.report(); r.Outcome != proto.OutcomeAgentFault {
				t.Errorf("outcome %s, %s", r.Outcome, r.Why)
			}
		}
		f.rest()
		if got, want := f.steps("check", "report"), "report check report check report"; got != want {
			t.Errorf("steps %s, want %s", got, want)
		}
		a.stop()
	})
}

// TestOnlyABrokenRunMakesSuspect: neither what else keeps an agent from working
// nor a run that teaches nothing is followed by a check, nor is the start.
func TestOnlyABrokenRunMakesSuspect(t *testing.T) {
	for name, c := range map[string]struct {
		prepare func(*fleet)
		want    string
	}{
		"a run that passes": {func(*fleet) {}, ""},
		"a crash": {func(f *fleet) {
			f.card.run = func(context.Context, proto.Task) (probe.Observation, error) {
				return probe.Observation{Evidence: proto.Evidence{Signal: "segmentation fault", Phase: "forward"}}, nil
			}
		}, ""},
		"a queue that takes no result": {func(f *fleet) {
			refused := 0
			f.failing(func(op string) error {
				if op == "report" && refused < 5 {
					refused++
					return errors.New("no stream")
				}
				return nil
			})
		}, ""},
		"a broken run": {func(f *fleet) { f.card.run = breaks }, "check"},
	} {
		t.Run(name, func(t *testing.T) {
			inFleet(t, func(f *fleet) {
				c.prepare(f)
				a := f.start(f.deps())
				f.publish(f.task(1, proto.TaskProbe))
				f.report()
				f.pass(10 * time.Minute)
				if got := f.steps("check"); got != c.want {
					t.Errorf("steps %q, want %q", got, c.want)
				}
				a.stop()
			})
		})
	}
	t.Run("a leftover", func(t *testing.T) {
		inFleet(t, func(f *fleet) {
			f.card.run = breaks
			f.failing(func(op string) error {
				if op == "report" {
					return errors.New("no stream")
				}
				return nil
			})
			task := f.task(1, proto.TaskProbe)
			a := f.start(f.deps())
			f.publish(task)
			f.pass(time.Minute)
			a.stop()
			if left := f.outbox(); len(left) == 0 {
				t.Fatal("nothing is left over")
			}
			f.failing(nil)
			again := f.start(f.deps())
			if r := f.report(); r.Task != task.ID || r.Outcome != proto.OutcomeAgentFault {
				t.Errorf("result %+v", r)
			}
			f.pass(10 * time.Minute)
			if got := f.steps("check"); got != "" {
				t.Errorf("steps %q", got)
			}
			again.stop()
		})
	})
}

// TestDrainInACheck: the check is ended, and the agent with it.
func TestDrainInACheck(t *testing.T) {
	inFleet(t, func(f *fleet) {
		f.card.run, f.card.check = breaks, func(ctx context.Context) error {
			<-ctx.Done()
			return context.Cause(ctx)
		}
		a := f.start(f.deps())
		f.publish(f.task(1, proto.TaskProbe), f.task(2, proto.TaskProbe))
		f.report()
		f.pass(time.Minute)
		if got := f.steps("check"); got != "check" {
			t.Errorf("steps %q", got)
		}
		before := time.Now()
		a.Drain("asked to stop", time.Hour)
		if err := <-a.done; err != nil || time.Since(before) != 0 {
			t.Errorf("Run: %v after %s", err, time.Since(before))
		}
		f.lies(1)
	})
}

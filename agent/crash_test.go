package agent_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/oomfleet/oomfleet/agent/probe"
	"github.com/oomfleet/oomfleet/allocator"
	"github.com/oomfleet/oomfleet/proto"
	"github.com/oomfleet/oomfleet/queue"
	"github.com/oomfleet/oomfleet/storage/trace"
)

// crash ends an agent as a power cut does: from now on nothing that it says is
// heard. Run notices and returns.
func (r *running) crash(deps *watchedQueue) {
	deps.Close()
	r.end()
	<-r.done
}

// TestCrash: an agent dies between two steps of a delivery. The next one on the
// same work folder brings the run home before it takes work, and the run is
// neither lost nor made again.
func TestCrash(t *testing.T) {
	for _, at := range []string{"store", "stored", "report", "ack"} {
		t.Run("at "+at, func(t *testing.T) {
			inFleet(t, func(f *fleet) {
				task := f.task(1, proto.TaskRecord)
				deps := f.deps()
				q := deps.Queue.(*watchedQueue)
				dead := false
				f.failing(func(op string) error {
					if op == at {
						dead = true
						q.Close()
					}
					if dead {
						return errors.New("crashed")
					}
					return nil
				})
				a := f.start(deps)
				f.publish(task)
				f.rest()
				a.crash(q)
				f.lies(1)
				f.failing(nil)
				f.mu.Lock()
				f.trail = nil
				f.mu.Unlock()

				b := f.start(f.deps())
				r := f.report()
				if r.Task != task.ID || r.Evidence.Trace == nil || r.Outcome != proto.OutcomePass {
					t.Errorf("result %+v", r)
				}
				f.rest()
				want := "store stored report next"
				if at == "ack" {
					want = "next" // it had been reported; the queue keeps one of each
				}
				if got := f.steps("store", "stored", "report", "next"); !strings.HasPrefix(got, want) {
					t.Errorf("steps %s, want %s first", got, want)
				}
				f.pass(2 * lease) // the task comes again
				f.lies(0)
				f.noReport()
				if ran := f.ran(); at != "ack" && len(ran) != 1 {
					t.Errorf("ran %v", ran)
				}
				if n := f.traces(); n != 1 {
					t.Errorf("%d traces are stored", n)
				}
				if len(f.outbox()) != 0 {
					t.Errorf("outbox holds %v", f.outbox())
				}
				b.stop()
			})
		})
	}
}

// TestAckFails: the result is home, so the task is not run again when it comes.
func TestAckFails(t *testing.T) {
	inFleet(t, func(f *fleet) {
		failures := 1
		f.failing(func(op string) error {
			if op == "ack" && failures > 0 {
				failures--
				return errors.New("no answer")
			}
			return nil
		})
		a := f.start(f.deps())
		task := f.task(1, proto.TaskProbe)
		f.publish(task)
		f.report()
		f.pass(2 * lease)
		f.lies(0)
		if ran := f.ran(); len(ran) != 1 {
			t.Errorf("ran %v", ran)
		}
		// The coordinator knows better: the result was lost and the task is
		// published again. That time it runs.
		f.publish(task)
		f.rest()
		f.lies(0)
		if ran := f.ran(); len(ran) != 2 {
			t.Errorf("ran %v", ran)
		}
		a.stop()
	})
}

// TestOutboxTidied: what a crash left half written goes, what cannot be read is
// put aside, and what is whole is delivered.
func TestOutboxTidied(t *testing.T) {
	inFleet(t, func(f *fleet) {
		// One whole parcel, made by an agent that never reaches the store.
		whole := f.task(1, proto.TaskRecord)
		deps := f.deps()
		f.failing(func(op string) error {
			if op == "store" {
				return errors.New("down")
			}
			return nil
		})
		a := f.start(deps)
		f.publish(whole)
		f.rest()
		a.crash(deps.Queue.(*watchedQueue))
		f.failing(nil)
		box := filepath.Join(f.workDir, "outbox")
		kept := f.outbox()
		if len(kept) != 2 {
			t.Fatalf("outbox holds %v", kept)
		}
		text, err := os.ReadFile(filepath.Join(box, string(whole.ID)+"-7.json"))
		if err != nil {
			t.Fatal(err)
		}
		for name, content := range map[string]string{
			".part-123":            "half",
			"s-orphan-1-7.parquet": "a trace whose result was never written",
			"s-broken-1-7.json":    `{"result": {"task"`,
			"s-notrace-1-7.json":   strings.ReplaceAll(string(text), string(whole.ID), "s-notrace-1"),
			"s-empty-1-7.json":     `{}`,
			"s-newer-1-7.json":     `{"result": {"task": "s-newer-1", "fence": 7, "protocol": 2, "agent": "gpu-4f2a"}}`,
			"s-other-1-7.json":     string(text),
		} {
			if err := os.WriteFile(filepath.Join(box, name), []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		b := f.start(f.deps())
		if r := f.report(); r.Task != whole.ID {
			t.Errorf("result of %s", r.Task)
		}
		f.rest()
		f.noReport()
		want := []string{"s-broken-1-7.json.bad", "s-empty-1-7.json.bad", "s-newer-1-7.json.bad", "s-notrace-1-7.json.bad", "s-other-1-7.json.bad"}
		if got := f.outbox(); !slices.Equal(got, want) {
			t.Errorf("outbox holds %v, want %v", got, want)
		}
		if s := f.says().State; s != proto.AgentIdle {
			t.Errorf("state %s", s)
		}
		b.stop()
	})
}

// TestLeftoversWait: a store that is still down when the agent comes back does
// not make it forget what lies in the outbox.
func TestLeftoversWait(t *testing.T) {
	inFleet(t, func(f *fleet) {
		f.failing(func(op string) error {
			if op == "store" {
				return trace.ErrRefused
			}
			return nil
		})
		deps := f.deps()
		a := f.start(deps)
		f.publish(f.task(1, proto.TaskRecord))
		f.rest()
		a.crash(deps.Queue.(*watchedQueue))

		b := f.start(f.deps())
		f.rest()
		if says := f.says(); says.State != proto.AgentQuarantined || !strings.Contains(says.Reason, "waits to be delivered") ||
			!strings.Contains(says.Reason, trace.ErrRefused.Error()) {
			t.Errorf("says %+v", says)
		}
		f.pass(time.Hour)
		f.failing(nil)
		if r := f.report(); r.Evidence.Trace == nil {
			t.Errorf("result %+v", r)
		}
		f.pass(2 * lease)
		f.lies(0)
		if ran := f.ran(); len(ran) != 1 {
			t.Errorf("ran %v", ran)
		}
		if s := f.says().State; s != proto.AgentIdle {
			t.Errorf("state %s", s)
		}
		b.stop()
	})
}

// TestNoDisk: without an outbox the run is delivered all the same.
func TestNoDisk(t *testing.T) {
	inFleet(t, func(f *fleet) {
		a := f.start(f.deps())
		box := filepath.Join(f.workDir, "outbox")
		if err := os.Remove(box); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(box, nil, 0o600); err != nil { // nothing can be written below a file
			t.Fatal(err)
		}
		f.publish(f.task(1, proto.TaskRecord))
		if r := f.report(); r.Outcome != proto.OutcomePass || r.Evidence.Trace == nil {
			t.Errorf("result %+v", r)
		}
		f.rest()
		f.lies(0)
		if s := f.says().State; s != proto.AgentIdle {
			t.Errorf("state %s", s)
		}
		a.stop()
	})
}

// TestTraceCannotBeWritten: trying to store it would never end.
func TestTraceCannotBeWritten(t *testing.T) {
	inFleet(t, func(f *fleet) {
		f.card.run = func(_ context.Context, task proto.Task) (probe.Observation, error) {
			seen := passed(task)
			seen.Events = append(seen.Events, allocator.Event{Action: allocator.Alloc, Size: -1})
			return seen, nil
		}
		a := f.start(f.deps())
		f.publish(f.task(1, proto.TaskRecord))
		r := f.report()
		if r.Outcome != proto.OutcomeAgentFault || !strings.Contains(r.Why, "size -1 is negative") || r.Evidence.Trace != nil {
			t.Errorf("result %+v", r)
		}
		f.rest()
		f.lies(0)
		if says := f.says(); says.State != proto.AgentQuarantined || says.Reason != r.Why {
			t.Errorf("says %+v", says)
		}
		a.stop()
		if len(f.outbox()) != 0 {
			t.Errorf("outbox holds %v", f.outbox())
		}
	})
}

// TestRefused: the store, or the queue, takes nothing for a while. The run waits,
// its lease is renewed, everyone can read why, and in the end it is home once.
func TestRefused(t *testing.T) {
	for _, tt := range []struct {
		op  string
		err error
	}{{"store", trace.ErrFull}, {"report", queue.ErrFull}} {
		t.Run(tt.op, func(t *testing.T) {
			inFleet(t, func(f *fleet) {
				f.failing(func(op string) error {
					if op == tt.op {
						return tt.err
					}
					return nil
				})
				task := f.task(1, proto.TaskRecord)
				a := f.start(f.deps())
				f.publish(task)
				f.rest()
				ctx, cancel := context.WithTimeout(f.Context(), time.Hour)
				defer cancel()
				if _, err := f.queue.Next(ctx, task.Pool()); !errors.Is(err, context.DeadlineExceeded) { // well over the lease
					t.Errorf("another agent got the task, %v", err)
				}
				says := f.says()
				want := "a finished run waits to be delivered: "
				if says.State != proto.AgentQuarantined || says.Task != task.ID || !strings.HasPrefix(says.Reason, want) ||
					!strings.Contains(says.Reason, tt.err.Error()) {
					t.Errorf("says %+v", says)
				}
				if len(f.outbox()) != 2 {
					t.Errorf("outbox holds %v", f.outbox())
				}
				f.noReport()
				f.failing(nil)
				r := f.report()
				if r.Task != task.ID || r.Evidence.Trace == nil {
					t.Errorf("result %+v", r)
				}
				f.rest()
				f.noReport()
				f.lies(0)
				if len(f.outbox()) != 0 || f.traces() != 1 {
					t.Errorf("outbox holds %v, %d traces are stored", f.outbox(), f.traces())
				}
				if says := f.says(); says.State != proto.AgentIdle || says.Reason != "" || says.Task != "" {
					t.Errorf("afterwards it says %+v", says)
				}
				a.stop()
				if ran := f.ran(); !reflect.DeepEqual(ran, []proto.TaskID{task.ID}) {
					t.Errorf("ran %v", ran)
				}
			})
		})
	}
}

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

	"github.com/prometheus/client_golang/prometheus"

	"github.com/oomfleet/oomfleet/agent"
	"github.com/oomfleet/oomfleet/agent/probe"
	"github.com/oomfleet/oomfleet/proto"
	"github.com/oomfleet/oomfleet/queue"
	"github.com/oomfleet/oomfleet/queue/memq"
)

func TestProbe(t *testing.T) {
	for _, tt := range []struct {
		name string
		run  func(proto.Task) probe.Observation
		want proto.Outcome
	}{
		{"pass", passed, proto.OutcomePass},
		{"out of memory", out, proto.OutcomeOOMQuota}, // a result, no fault of the agent's
	} {
		t.Run(tt.name, func(t *testing.T) {
			inFleet(t, func(f *fleet) {
				task := f.task(1, proto.TaskProbe)
				seen := tt.run(task)
				f.card.run = func(context.Context, proto.Task) (probe.Observation, error) { return seen, nil }
				a := f.start(f.deps())
				f.publish(task)
				got := f.report()
				want := proto.Result{Task: task.ID, Protocol: proto.Version, Fence: task.Fence, CellID: task.CellID, Origin: proto.OriginSimulated,
					Kind: task.Kind, Quota: task.Quota, Agent: "gpu-4f2a", Stack: f.card.says.Stack, Card: f.card.says.Card,
					Outcome: tt.want, Why: got.Why, Evidence: seen.Evidence}
				if !reflect.DeepEqual(got, want) || got.Why == "" {
					t.Errorf("got  %+v\nwant %+v", got, want)
				}
				f.rest()
				f.lies(0)
				if says := f.says(); says.State != proto.AgentIdle || says.Reason != "" || says.Task != "" {
					t.Errorf("after the run it says %+v", says)
				}
				a.stop()
			})
		})
	}
}

// TestRecording: a crash at any point must find the run either still in the
// queue or already further on, so the order is fixed.
func TestRecording(t *testing.T) {
	inFleet(t, func(f *fleet) {
		task := f.task(1, proto.TaskRecord)
		f.failing(func(op string) error {
			if kept := len(f.outbox()); (op == "store" || op == "report") && kept != 2 {
				t.Errorf("at %s %d files are in the outbox, want trace and result", op, kept)
			}
			return nil
		})
		a := f.start(f.deps())
		f.publish(task)
		r := f.report()
		f.rest()
		if got := f.steps("store", "stored", "report", "ack", "retry"); got != "store stored report ack" {
			t.Errorf("order: %s", got)
		}
		if len(f.outbox()) != 0 {
			t.Errorf("outbox holds %v", f.outbox())
		}
		if r.Outcome != proto.OutcomePass || r.Evidence.Trace == nil || r.Evidence.Trace.Events != int64(len(recording())) {
			t.Fatalf("result %+v", r)
		}
		events, meta, err := f.store.GetTrace(f.Context(), r.Evidence.Trace.Digest)
		if err != nil || !slices.Equal(events, recording()) {
			t.Errorf("stored %v, %v", events, err)
		}
		if meta.Cell.ID() != task.CellID || meta.Stack != f.card.says.Stack || meta.Origin != proto.OriginSimulated ||
			meta.PeakReserved != 3*proto.GiB || meta.ProcessPeak != 4*proto.GiB || meta.DeviceTotal != 140*proto.GiB ||
			meta.Settings["max_split_size"] != "0" {
			t.Errorf("meta %+v", meta)
		}
		a.stop()
	})
}

// TestProbeThatTeaches: a probe is watched when something is expected of it, and
// its trace is kept when it does otherwise.
func TestProbeThatTeaches(t *testing.T) {
	for _, tt := range []struct {
		name   string
		expect proto.Expectation
		run    func(proto.Task) probe.Observation
		peak   proto.Bytes // expected; the run's own is 3 GiB
		kept   bool
	}{
		{"expected pass", proto.ExpectPass, passed, 0, false},
		{"unexpected pass", proto.ExpectFail, passed, 0, true},
		{"expected fail", proto.ExpectFail, out, 0, false},
		{"expected fail, where it was expected", proto.ExpectFail, out, 3 * proto.GiB, false},
		{"expected fail, elsewhere", proto.ExpectFail, out, 2 * proto.GiB, true},
		{"unexpected fail", proto.ExpectPass, out, 0, true},
		{"nothing expected", "", out, 0, false},
		{"expected by another build", "maybe", passed, 0, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			inFleet(t, func(f *fleet) {
				task := f.task(1, proto.TaskProbe)
				task.Expect, task.ExpectPeak = tt.expect, tt.peak
				f.card.run = func(_ context.Context, task proto.Task) (probe.Observation, error) {
					seen := tt.run(task)
					peak := 3 * proto.GiB
					seen.Events, seen.Evidence.Meters.PeakAllocated = recording(), &peak
					return seen, nil
				}
				a := f.start(f.deps())
				f.publish(task)
				r := f.report()
				f.rest()
				if kept := r.Evidence.Trace != nil; kept != tt.kept {
					t.Fatalf("trace %+v, want one: %v", r.Evidence.Trace, tt.kept)
				}
				if tt.kept {
					if events, _, err := f.store.GetTrace(f.Context(), r.Evidence.Trace.Digest); err != nil || !slices.Equal(events, recording()) {
						t.Errorf("stored %v, %v", events, err)
					}
				}
				a.stop()
			})
		})
	}
}

func TestAnnouncement(t *testing.T) {
	inFleet(t, func(f *fleet) {
		release := make(chan struct{})
		f.card.run = func(_ context.Context, task proto.Task) (probe.Observation, error) {
			<-release
			return passed(task), nil
		}
		a := f.start(f.deps())
		<-a.Ready()
		f.rest()
		want := proto.AgentInfo{ID: "gpu-4f2a", Origin: proto.OriginSimulated, Stack: f.card.says.Stack, Card: f.card.says.Card, Host: "host",
			PID: 7, Version: "v1", QuotaKinds: f.card.says.QuotaKinds, State: proto.AgentIdle}
		got := f.says()
		if now := time.Now().UnixMilli(); now-got.SeenUnixMS > 10_000 {
			t.Errorf("seen at %d, now it is %d", got.SeenUnixMS, now)
		}
		got.SeenUnixMS = 0
		if !reflect.DeepEqual(got, want) {
			t.Errorf("got  %+v\nwant %+v", got, want)
		}
		task := f.task(1, proto.TaskProbe)
		f.publish(task)
		f.pass(10 * time.Minute) // the announcement is kept alive through a long run
		if says := f.says(); says.State != proto.AgentBusy || says.Task != task.ID {
			t.Errorf("in a run it says %+v", says)
		}
		f.lies(1)
		close(release)
		f.report()
		a.stop()
		if agents, err := f.queue.Agents(f.Context()); err != nil || len(agents) != 0 {
			t.Errorf("after its end %d agents are announced, %v", len(agents), err)
		}
		f.noReport()
	})
}

func TestQuotaKindNotEnforced(t *testing.T) {
	inFleet(t, func(f *fleet) {
		task := f.task(1, proto.TaskProbe)
		task.Cell.QuotaKind = proto.QuotaDevice
		task.CellID = task.Cell.ID()
		record := f.task(2, proto.TaskRecord)
		record.Cell.QuotaKind = proto.QuotaDevice
		record.CellID = record.Cell.ID()
		a := f.start(f.deps())
		f.publish(task, record)
		if r := f.report(); r.Outcome != proto.OutcomeUnsupported || !strings.Contains(r.Why, "device quota") {
			t.Errorf("outcome %s, why %q", r.Outcome, r.Why)
		}
		if r := f.report(); r.Outcome != proto.OutcomePass { // a recording has no quota to enforce
			t.Errorf("recording: %s, %q", r.Outcome, r.Why)
		}
		if ran := f.ran(); !slices.Equal(ran, []proto.TaskID{record.ID}) {
			t.Errorf("ran %v", ran)
		}
		f.rest()
		f.lies(0)
		if s := f.says().State; s != proto.AgentIdle {
			t.Errorf("state %s", s)
		}
		a.stop()
	})
}

// garbled is a delivery whose bytes are no task.
type garbled struct{ queue.Delivery }

func (garbled) Task() (proto.Task, error) { return proto.Task{}, errors.New("decode task: not JSON") }

func TestTaskDropped(t *testing.T) {
	inFleet(t, func(f *fleet) {
		foreign, broken, good := f.task(1, proto.TaskProbe), f.task(2, proto.TaskProbe), f.task(3, proto.TaskProbe)
		foreign.Protocol = proto.Version + 1
		deps := f.deps()
		deps.Queue.(*watchedQueue).alter = func(d queue.Delivery) queue.Delivery {
			if task, _ := d.Task(); task.ID == broken.ID {
				return garbled{d}
			}
			return d
		}
		a := f.start(deps)
		f.publish(foreign, broken, good)
		if r := f.report(); r.Task != good.ID {
			t.Errorf("report of %s", r.Task)
		}
		f.rest()
		f.lies(0)
		f.noReport()
		f.mu.Lock()
		drops := strings.Join(slices.DeleteFunc(slices.Clone(f.trail), func(op string) bool { return !strings.HasPrefix(op, "drop") }), "\n")
		f.mu.Unlock()
		if !strings.Contains(drops, "protocol 2, this build speaks 1") || !strings.Contains(drops, "not JSON") {
			t.Errorf("dropped for:\n%s", drops)
		}
		if ran := f.ran(); len(ran) != 1 {
			t.Errorf("ran %v", ran)
		}
		a.stop()
	})
}

// TestStackChangesUnderATask: what the agent was promised to and what it is now
// differ, so the task goes to someone else at once.
func TestStackChangesUnderATask(t *testing.T) {
	inFleet(t, func(f *fleet) {
		a := f.start(f.deps())
		f.rest()
		f.card.set(func(c *card) { c.says = described("GPU-4F2A", "999.1") })
		old := f.task(1, proto.TaskProbe)
		before := time.Now()
		f.publish(old)
		f.rest()
		if got := f.steps("ack", "retry", "report"); got != "retry" {
			t.Fatalf("steps %s", got)
		}
		d, err := f.queue.Next(f.Context(), old.Pool()) // another agent
		if err != nil || time.Since(before) > 0 {
			t.Fatalf("handed back after %s, %v", time.Since(before), err)
		}
		if err := d.Ack(f.Context()); err != nil {
			t.Fatal(err)
		}
		if says := f.says(); says.Stack.Driver != "999.1" || says.State != proto.AgentIdle || says.Task != "" {
			t.Errorf("says %+v", says)
		}
		renewed := f.task(2, proto.TaskProbe)
		renewed.Cell.Driver = "999.1"
		renewed.CellID = renewed.Cell.ID()
		f.publish(renewed)
		if r := f.report(); r.Task != renewed.ID || r.Stack.Driver != "999.1" || r.Outcome != proto.OutcomePass {
			t.Errorf("result %+v", r)
		}
		a.stop()
	})
}

// TestCardChangesWhileIdle: without a task the agent finds out by itself, and
// the old card does not stay on the list.
func TestCardChangesWhileIdle(t *testing.T) {
	inFleet(t, func(f *fleet) {
		a := f.start(f.deps())
		f.rest()
		f.card.set(func(c *card) { c.says = described("GPU-B", "999.1") })
		f.pass(2 * time.Minute)
		if says := f.says(); says.ID != "gpu-b" || says.Stack.Driver != "999.1" {
			t.Errorf("says %+v", says)
		}
		if got := f.steps("retire gpu-4f2a"); got != "retire gpu-4f2a" {
			t.Errorf("retired: %q", got)
		}
		a.stop()
		if got := f.steps("retire gpu-b"); got != "retire gpu-b" {
			t.Errorf("retired: %q", got)
		}
	})
}

func TestResultTooLarge(t *testing.T) {
	inFleetOf(t, memq.Config{Lease: lease, MaxMessage: 32 << 10}, func(f *fleet) {
		f.card.run = func(_ context.Context, task proto.Task) (probe.Observation, error) {
			seen := out(task)
			seen.Evidence.Traceback = strings.Repeat("t", 20<<10)
			seen.Evidence.StderrTail = strings.Repeat("e", 20<<10)
			seen.Evidence.Message += strings.Repeat("ü", 10<<10)
			return seen, nil
		}
		a := f.start(f.deps())
		f.publish(f.task(1, proto.TaskProbe))
		r := f.report()
		if r.Outcome != proto.OutcomeOOMQuota || r.Evidence.Traceback != "" || !strings.Contains(r.Evidence.StderrTail, "left out") ||
			!strings.HasPrefix(r.Evidence.Message, "CUDA out of memory. Tried to allocate 2.00 GiB") || strings.Contains(r.Evidence.Message, "\ufffd") {
			t.Errorf("result %+v", r)
		}
		f.rest()
		f.lies(0)
		a.stop()
	})
}

func TestMetrics(t *testing.T) {
	inFleet(t, func(f *fleet) {
		f.card.run = func(_ context.Context, task proto.Task) (probe.Observation, error) {
			if task.Kind == proto.TaskProbe {
				return out(task), nil
			}
			return passed(task), nil
		}
		deps := f.deps()
		deps.Metrics = f.reg
		refusals := 3
		f.failing(func(op string) error {
			if op == "report" && refusals > 0 {
				refusals--
				return queue.ErrFull
			}
			return nil
		})
		a := f.start(deps)
		f.publish(f.task(1, proto.TaskProbe), f.task(2, proto.TaskProbe), f.task(3, proto.TaskRecord))
		for range 3 {
			f.report()
		}
		f.rest()
		for name, want := range map[string]float64{
			"oomfleet_agent_runs_total probe oom_at_quota": 2, "oomfleet_agent_runs_total record pass": 1,
			"oomfleet_agent_run_seconds probe": 2, "oomfleet_agent_run_seconds record": 1, "oomfleet_agent_peak_reserved_bytes": 1,
			"oomfleet_agent_delivery_failures_total": 3, "oomfleet_agent_outbox_results": 0,
			"oomfleet_agent_faults_total": 0, "oomfleet_agent_lease_failures_total": 0,
		} {
			if got, ok := gather(t, f.reg)[name]; !ok || got != want {
				t.Errorf("%s is %v (there: %v), want %v", name, got, ok, want)
			}
		}
		a.stop()
		if _, err := agent.New(agent.Config{WorkDir: f.workDir}, deps); err == nil {
			t.Error("the same metrics were registered twice")
		}
	})
}

// gather reads metrics by name and label values; of a histogram the count.
func gather(t *testing.T, reg *prometheus.Registry) map[string]float64 {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			name := family.GetName()
			for _, l := range m.GetLabel() {
				name += " " + l.GetValue()
			}
			got[name] = m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	return got
}

func TestIDOf(t *testing.T) {
	for uuid, want := range map[string]proto.AgentID{
		"GPU-4c1b0e5e-AB12": "gpu-4c1b0e5e-ab12", "sim_0.1": "sim-0-1", "MIG-ü/1": "mig---1", "": "",
	} {
		if got := agent.IDOf(uuid); got != want {
			t.Errorf("IDOf(%q) = %q, want %q", uuid, got, want)
		}
	}
}

func TestNewRefuses(t *testing.T) {
	f := newFleet(t, memq.Config{})
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	good := agent.Config{WorkDir: f.workDir}
	for name, try := range map[string]func(*agent.Config, *agent.Deps){
		"work dir": func(c *agent.Config, _ *agent.Deps) { c.WorkDir = "" },
		"a file":   func(c *agent.Config, _ *agent.Deps) { c.WorkDir = file },
		"negative": func(c *agent.Config, _ *agent.Deps) { c.Pause = -1 },
		"queue":    func(_ *agent.Config, d *agent.Deps) { d.Queue = nil },
		"prober":   func(_ *agent.Config, d *agent.Deps) { d.Prober = nil },
		"traces":   func(_ *agent.Config, d *agent.Deps) { d.Traces = nil },
	} {
		cfg, deps := good, f.deps()
		try(&cfg, &deps)
		if _, err := agent.New(cfg, deps); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

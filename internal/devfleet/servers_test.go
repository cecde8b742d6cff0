package devfleet

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/oomfleet/oomfleet/coordinator/api"
	"github.com/oomfleet/oomfleet/proto"
	"github.com/oomfleet/oomfleet/queue/natsq"
)

// waitingReports are the reports that lie in the queue.
func (w *world) waitingReports() uint64 {
	w.t.Helper()
	return w.results().Msgs
}

// results is the state of the stream of reports.
func (w *world) results() jetstream.StreamState {
	w.t.Helper()
	who, err := nats.NkeyOptionFromSeed(w.keyFile("coordinator.nk"))
	if err != nil {
		w.t.Fatal(err)
	}
	nc, err := nats.Connect(w.conf.Queue.URL, who, nats.Timeout(patience))
	if err != nil {
		w.t.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		w.t.Fatal(err)
	}
	s, err := js.Stream(w.t.Context(), natsq.ResultsStream)
	if err != nil {
		w.t.Fatal(err)
	}
	return s.CachedInfo().State
}

// outbox lists the finished runs that an agent keeps on disk.
func (w *world) outbox(agent string) []string {
	w.t.Helper()
	names, err := filepath.Glob(filepath.Join(w.dir, agent, "outbox", "*.json"))
	if err != nil {
		w.t.Fatal(err)
	}
	return names
}

// metric is one sample of a process's /metrics, which must be parseable.
func metric(t *testing.T, address, name string) float64 {
	t.Helper()
	response, err := http.Get(address + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(response.Body)
	if err != nil {
		t.Fatalf("%s/metrics cannot be parsed: %v", address, err)
	}
	family := families[name]
	if family == nil {
		t.Fatalf("%s/metrics has no %s", address, name)
	}
	sum := 0.0
	for _, m := range family.Metric {
		sum += m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
	}
	return sum
}

// TestQueueKilled: the queue's server dies in the middle of a sweep, and agents
// finish runs that they cannot report.
func TestQueueKilled(t *testing.T) {
	t.Parallel()
	w := start(t, Config{})
	id := w.submit()
	w.midway(id)
	w.down("queue")
	w.gate.open()
	for _, name := range w.agents() {
		await(t, name+" keeps a finished run", func() bool { return len(w.outbox(name)) > 0 })
	}
	w.up("queue")
	report := w.finish(id)
	results := w.results()
	a := w.judge(report)
	// All that the queue ever took was committed, and came from nowhere else.
	if n := uint64(len(a.reports)); n != results.LastSeq || results.Msgs != 0 {
		t.Errorf("the queue took %d reports and still holds %d; %d were committed", results.LastSeq, results.Msgs, n)
	}
}

// TestQueueLosesItsDisk: the queue's server comes back with nothing. The registry
// is the record: what is open is published again.
func TestQueueLosesItsDisk(t *testing.T) {
	t.Parallel()
	w := start(t, Config{})
	id := w.submit()
	w.midway(id)
	w.down("queue")
	if err := os.RemoveAll(filepath.Join(w.dir, "queue")); err != nil {
		t.Fatal(err)
	}
	w.up("queue")
	report := w.finish(id)
	if n := metric(t, w.API(), "oomfleet_audit_republished_total"); n == 0 {
		t.Error("the audit has published nothing again")
	}
	w.judge(report)
}

// TestCoordinatorKilled: the only coordinator dies in the middle of a sweep, and
// reports pile up in the queue before it comes back.
func TestCoordinatorKilled(t *testing.T) {
	t.Parallel()
	w := start(t, Config{})
	id := w.submit()
	w.midway(id)
	w.down("coordinator-a")
	w.gate.open()
	await(t, "reports wait for a coordinator", func() bool { return w.waitingReports() >= 2 })
	w.up("coordinator-a")
	report := w.finish(id)
	results := w.results()
	a := w.judge(report)
	if n := uint64(len(a.reports)); n != results.LastSeq || results.Msgs != 0 {
		t.Errorf("the queue took %d reports and still holds %d; %d were committed", results.LastSeq, results.Msgs, n)
	}
}

// TestEverythingKilledAtOnce: the machine goes down in the middle of a sweep.
func TestEverythingKilledAtOnce(t *testing.T) {
	t.Parallel()
	w := start(t, Config{})
	id := w.submit()
	w.midway(id)
	for name := range w.procs {
		w.kill(name)
	}
	w.judge(w.finish(id))
}

// TestTraceStoreKilled: the trace store dies in the middle of a sweep, and agents
// finish recordings that they cannot store.
func TestTraceStoreKilled(t *testing.T) {
	t.Parallel()
	w := start(t, Config{})
	id := w.submit()
	w.running(w.cfg.Agents) // the first runs are recordings
	w.down("s3")
	w.gate.open()
	for _, name := range w.agents() {
		await(t, name+" keeps a finished run", func() bool { return len(w.outbox(name)) > 0 })
	}
	w.up("s3")
	report := w.finish(id)
	traces := ask[api.TraceList](w, "trace", "list", "--sweep", string(id)).Traces
	stored := map[proto.Digest]bool{}
	for _, e := range traces {
		stored[e.Ref.Digest] = true
	}
	if len(stored) == 0 {
		t.Error("there is no trace")
	}
	for _, c := range report.Cells {
		if c.Trace != nil && !stored[c.Trace.Digest] {
			t.Errorf("the trace of cell %s is not in the list", c.ID)
		}
	}
	folder := t.TempDir()
	for _, e := range traces {
		s := w.cli("trace", "get", string(e.Ref.Digest), "-o", filepath.Join(folder, string(e.Ref.Digest)))
		if s.code != 0 || !strings.Contains(s.out, "content matches its digest") {
			t.Errorf("trace %s: exit code %d: %s%s", e.Ref.Digest, s.code, s.out, s.errors)
		}
	}
	w.judge(report)
}

// TestLeaderKilled: of three coordinators the leader dies in the middle of a
// sweep and stays away.
func TestLeaderKilled(t *testing.T) {
	t.Parallel()
	w := start(t, Config{Coordinators: 3})
	id := w.submit()
	w.midway(id)
	leader := w.leader()
	w.down("coordinator-" + leader)
	report := w.finish(id)
	if now := w.leader(); now == leader {
		t.Errorf("%s is down and leads", now)
	}
	// Any remaining replica answers, and all answer the same once they have
	// applied it: a sweep is settled before its last fit is committed.
	want := len(undisturbedReport(t).Coefficients)
	await(t, "every remaining replica has all coefficients", func() bool {
		for _, c := range w.conf.Coordinators {
			if c.ID == leader {
				continue
			}
			list, err := w.client(c.API).Coefficients(t.Context(), nil)
			if err != nil || len(list.Coefficients) != want {
				return false
			}
		}
		return true
	})
	answers := map[string]bool{}
	var follower string
	for _, c := range w.conf.Coordinators {
		if c.ID == leader {
			continue
		}
		list := ask[api.CoefficientList](w, "coefficients", "get", "--server", c.API)
		if list.Role == "follower" {
			follower = c.API
		}
		answers[fmt.Sprintf("%+v", list.Coefficients)] = true
	}
	if len(answers) != 1 {
		t.Errorf("the remaining replicas have %d different answers", len(answers))
	}
	if follower == "" {
		t.Fatal("no remaining replica is a follower")
	}
	// A follower passes writes on.
	other := "axes.seq_len=192,320"
	for _, n := range []int{2, 0} { // new at first, known then
		s := w.cli("matrix", "submit", smallMatrix, "--origin", "simulated", "--set", other, "--set", "include=[]", "--set", "exclude=[]", "--set", "axes.batch=1",
			"--set", "axes.driver="+RecordedDriver, "--server", follower, "--json")
		if s.code != 0 {
			t.Fatalf("submit to a follower: exit code %d\n%s", s.code, s.errors)
		}
		if !strings.Contains(s.out, fmt.Sprintf(`"new": %d`, n)) {
			t.Errorf("submit to a follower said\n%s\nwant %d new cells", s.out, n)
		}
	}
	w.settleAll(follower)
	w.up("coordinator-" + leader)
	w.sameState()
	w.judge(report)
}

// leader is the id of the coordinator that leads now.
func (w *world) leader() string {
	w.t.Helper()
	var leader string
	await(w.t, "there is a leader", func() bool {
		status, err := w.client().Status(w.t.Context())
		leader = status.Leader
		return err == nil && leader != ""
	})
	return leader
}

// settleAll waits until no sweep is running.
func (w *world) settleAll(server string) {
	w.t.Helper()
	client := w.client(server)
	await(w.t, "all sweeps settle", func() bool {
		list, err := client.Sweeps(w.t.Context())
		for _, s := range list.Sweeps {
			if s.State == "running" {
				return false
			}
		}
		return err == nil
	})
}

// sameState waits until all coordinators have applied the same, and holds their
// states against each other.
func (w *world) sameState() {
	w.t.Helper()
	states := make([]api.Status, len(w.conf.Coordinators))
	await(w.t, "all coordinators have applied the same", func() bool {
		for i, c := range w.conf.Coordinators {
			var err error
			if states[i], err = w.client(c.API).Status(w.t.Context()); err != nil {
				return false
			}
		}
		for _, s := range states {
			if s.AppliedIndex != states[0].AppliedIndex {
				return false
			}
		}
		return true
	})
	for _, s := range states {
		if s.Hash == "" || s.Hash != states[0].Hash {
			w.t.Errorf("at entry %d coordinator %s has the state %q, %s has %q", s.AppliedIndex, s.ID, s.Hash, states[0].ID, states[0].Hash)
		}
	}
}

// TestDevKilled: `fleetctl dev` itself dies; nobody is left who could end its
// processes, so they end themselves.
func TestDevKilled(t *testing.T) {
	t.Parallel()
	program := binary(t)
	dev := begin(t, program, "dev", "--submit", smallMatrix, "--json")
	await(t, "the fleet is at work", func() bool {
		for _, p := range living(t, program) {
			if strings.HasSuffix(p.args, "internal simrun") {
				return true
			}
		}
		return false
	})
	if err := dev.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	dev.wait(t)
	gone(t, program)
}

// TestDevInterrupted: Ctrl-C in the middle of a sweep ends the fleet, cleans up,
// and is not taken for success.
func TestDevInterrupted(t *testing.T) {
	t.Parallel()
	program := binary(t)
	dev := begin(t, program, "dev", "--submit", smallMatrix, "--json")
	await(t, "the sweep is under way", func() bool { return strings.Contains(dev.errors(), "cells settled") })
	if err := dev.cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if code := dev.wait(t); code != 1 || dev.out.String() != "" || !strings.Contains(dev.errors(), "its fleet ends here too") {
		t.Errorf("exit code %d, stdout %q\n%s", code, dev.out.String(), dev.errors())
	}
	if left := living(t, program); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
	left, err := os.ReadDir(dev.temp)
	if err != nil || len(left) > 0 {
		t.Errorf("left in the temporary folder: %v (%v)", left, err)
	}
}

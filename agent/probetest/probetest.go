// Package probetest is the one suite that every prober passes: the simulated
// one in this repository's tests, the real GPU's where there is a card. It
// holds what an agent relies on, and refuses to know how a prober is built: the
// table says which cells to use and what is known of them.
//
// Start reading at Suite.
package probetest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/oomfleet/oomfleet/agent/probe"
	"github.com/oomfleet/oomfleet/allocator"
	"github.com/oomfleet/oomfleet/proto"
)

// Prober is what is tested.
type Prober interface {
	Describe(ctx context.Context) (probe.Description, error)
	Run(ctx context.Context, task proto.Task) (probe.Observation, error)
	Check(ctx context.Context) error
	Close() error
}

// Table says what is known of the prober's card.
type Table struct {
	// Cell is a cell with the allocator quota kind and default settings, whose
	// boundary is known: it passes there and fails one step below.
	Cell     proto.Cell
	Boundary proto.Bytes
	// Tiny is a quota that fails before the weights are loaded.
	Tiny proto.Bytes
	// BadEnv is an environment that the library itself rejects.
	BadEnv map[string]string
	// Hang, Crash and Fork are cells of programs that never end; die of
	// SIGSEGV; and start a child with a session of its own that ignores
	// SIGTERM, write "grandchild <pid>" to stderr and never end. Leave does as
	// Fork but ends well.
	Hang, Crash, Fork, Leave proto.Cell
	// TimeoutSeconds is enough for every run that ends, HangSeconds for Hang
	// and Fork to come to where they stay.
	TimeoutSeconds int
	HangSeconds    int
}

// suite is a table with a prober for one subtest.
type suite struct {
	Table
	description probe.Description
	prober      Prober
	runs        int
}

// Suite runs every test, each on a prober of its own that newProber starts.
func Suite(t *testing.T, table Table, newProber func(*testing.T) Prober) {
	for name, test := range map[string]func(*testing.T, *suite){
		"describes itself":                           describes,
		"passes without a quota":                     passes,
		"is refused at a tiny quota":                 refused,
		"passes at the boundary, fails a step below": boundaryPair,
		"records a trace that replays":               records,
		"rejects a bad environment":                  rejects,
		"ends everything after the timeout":          timesOut,
		"ends everything when cancelled":             cancelled,
		"ends what a run leaves behind":              leaves,
		"survives a crash":                           crashes,
		"runs are independent":                       independent,
		"passes its check":                           checks,
		"refuses after close":                        closed,
	} {
		t.Run(name, func(t *testing.T) {
			p := newProber(t)
			t.Cleanup(func() {
				if err := p.Close(); err != nil {
					t.Errorf("close: %v", err)
				}
			})
			d, err := p.Describe(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			test(t, &suite{Table: table, description: d, prober: p})
		})
	}
}

// task is a probe of a cell, or a recording when quota is 0.
func (s *suite) task(cell proto.Cell, quota proto.Bytes) proto.Task {
	s.runs++
	task := proto.Task{ID: proto.TaskID("s-suite-" + strconv.Itoa(s.runs)), Protocol: proto.Version, Fence: 1, Attempt: 1,
		Kind: proto.TaskProbe, Origin: s.description.Origin(), CellID: cell.ID(), Cell: cell, Quota: quota, TimeoutSeconds: s.TimeoutSeconds}
	if quota == 0 {
		task.Kind = proto.TaskRecord
	}
	return task
}

func (s *suite) run(t *testing.T, task proto.Task) probe.Observation {
	t.Helper()
	o, err := s.prober.Run(t.Context(), task)
	if err != nil {
		t.Fatalf("run %s: %v", task.ID, err)
	}
	return o
}

// pass checks that a run ended well.
func (s *suite) pass(t *testing.T, o probe.Observation) {
	t.Helper()
	e := o.Evidence
	if e.ExitCode == nil || *e.ExitCode != 0 || e.Phase != "done" || e.OutputFinite == nil || !*e.OutputFinite || e.Exception != "" || e.TimedOut {
		t.Fatalf("the run did not pass: %+v", e)
	}
	if e.Seconds <= 0 {
		t.Errorf("seconds %v", e.Seconds)
	}
}

// oom checks that the allocator refused.
func (s *suite) oom(t *testing.T, o probe.Observation) {
	t.Helper()
	e := o.Evidence
	if !strings.Contains(e.Exception, "OutOfMemoryError") || !strings.Contains(e.Message, "Tried to allocate") || e.ExitCode == nil || *e.ExitCode == 0 {
		t.Fatalf("the run was not refused: %+v", e)
	}
	if e.Meters.NumOOMs == nil || *e.Meters.NumOOMs == 0 {
		t.Errorf("the allocator's counter of refusals is %v", e.Meters.NumOOMs)
	}
}

func describes(t *testing.T, s *suite) {
	d := s.description
	if d.Stack.GPU == "" || d.Stack.Driver == "" || d.Stack.Torch == "" || d.Stack.CUDA == "" || d.Card.UUID == "" || d.Card.Total <= 0 || len(d.QuotaKinds) == 0 {
		t.Errorf("description %+v", d)
	}
	if d.Stack.GPU != s.Cell.GPU || d.Stack.Driver != s.Cell.Driver {
		t.Errorf("the table is for %s on %s, the prober runs on %s, %s", s.Cell.GPU, s.Cell.Driver, d.Stack.GPU, d.Stack.Driver)
	}
	again, err := s.prober.Describe(t.Context())
	if err != nil || !again.Equal(d) {
		t.Errorf("described again: %+v, %v", again, err)
	}
}

func passes(t *testing.T, s *suite) {
	o := s.run(t, s.task(s.Cell, s.description.Card.Total))
	s.pass(t, o)
	m := o.Evidence.Meters
	for name, v := range map[string]*proto.Bytes{"peak allocated": m.PeakAllocated, "peak reserved": m.PeakReserved, "loaded allocated": m.LoadedAllocated,
		"loaded reserved": m.LoadedReserved, "weights": m.Weights, "process peak": m.ProcessPeak, "context": m.Context} {
		if v == nil || *v <= 0 {
			t.Errorf("%s is not known: %v", name, m.Missing)
		}
	}
	if t.Failed() {
		return
	}
	if *m.PeakReserved < *m.PeakAllocated || *m.ProcessPeak < *m.PeakReserved || *m.PeakAllocated < *m.LoadedAllocated {
		t.Errorf("meters are out of order: %v allocated, %v reserved, %v process", *m.PeakAllocated, *m.PeakReserved, *m.ProcessPeak)
	}
	if len(o.Events) != 0 {
		t.Errorf("a probe brought %d events", len(o.Events))
	}
	if len(o.Evidence.Settings) == 0 || len(o.Evidence.Dtypes) == 0 {
		t.Errorf("settings %v, dtypes %v", o.Evidence.Settings, o.Evidence.Dtypes)
	}
}

func refused(t *testing.T, s *suite) {
	o := s.run(t, s.task(s.Cell, s.Tiny))
	s.oom(t, o)
	if *o.Evidence.Meters.PeakReserved > s.Tiny {
		t.Errorf("%v reserved under a quota of %v", *o.Evidence.Meters.PeakReserved, s.Tiny)
	}
	if !strings.Contains(o.Evidence.Message, "allowed") {
		t.Errorf("the text does not name the cap: %s", o.Evidence.Message)
	}
}

func boundaryPair(t *testing.T, s *suite) {
	at := s.run(t, s.task(s.Cell, s.Boundary))
	s.pass(t, at)
	if *at.Evidence.Meters.PeakReserved > s.Boundary {
		t.Errorf("%v reserved under a quota of %v", *at.Evidence.Meters.PeakReserved, s.Boundary)
	}
	s.oom(t, s.run(t, s.task(s.Cell, s.Boundary-s.Cell.Step)))
}

func records(t *testing.T, s *suite) {
	o := s.run(t, s.task(s.Cell, 0))
	s.pass(t, o)
	if o.Evidence.TraceTruncated || len(o.Events) == 0 {
		t.Fatalf("%d events, truncated %v", len(o.Events), o.Evidence.TraceTruncated)
	}
	settings, err := allocator.SettingsFromEnv(s.Cell.Env)
	if err != nil {
		t.Fatal(err)
	}
	check, err := allocator.SelfCheck(o.Events, settings)
	if err != nil || check.Mismatches != 0 {
		t.Fatalf("self-check %+v, %v", check, err)
	}
	result, err := allocator.Replay(o.Events, settings, allocator.Limit{})
	if err != nil || proto.Bytes(result.PeakReserved) != *o.Evidence.Meters.PeakReserved || proto.Bytes(result.PeakAllocated) != *o.Evidence.Meters.PeakAllocated {
		t.Errorf("replay %+v (%v), meters %v reserved, %v allocated", result, err, *o.Evidence.Meters.PeakReserved, *o.Evidence.Meters.PeakAllocated)
	}
	for quota, oom := range map[proto.Bytes]bool{s.Boundary: false, s.Boundary - s.Cell.Step: true} {
		if r, err := allocator.Replay(o.Events, settings, allocator.Limit{Cap: int64(quota)}); err != nil || r.OOM != oom {
			t.Errorf("replayed at %v: oom %v, %v", quota, r.OOM, err)
		}
	}
}

func rejects(t *testing.T, s *suite) {
	cell := s.Cell
	cell.Env = s.BadEnv
	o := s.run(t, s.task(cell, s.Boundary))
	if !o.BadCell || o.Evidence.Exception == "" || o.Evidence.Message == "" || o.Evidence.Phase != "start" {
		t.Errorf("bad cell %v, %+v", o.BadCell, o.Evidence)
	}
	s.pass(t, s.run(t, s.task(s.Cell, s.Boundary)))
}

func timesOut(t *testing.T, s *suite) {
	for name, cell := range map[string]proto.Cell{"hang": s.Hang, "fork": s.Fork} {
		task := s.task(cell, s.Boundary)
		task.TimeoutSeconds = s.HangSeconds
		o := s.run(t, task)
		if !o.Evidence.TimedOut || o.Evidence.Signal != "killed" || o.Evidence.ExitCode != nil {
			t.Errorf("%s: %+v", name, o.Evidence)
		}
		if name == "fork" {
			mustBeGone(t, grandchildOf(t, o.Evidence.StderrTail))
		}
	}
	s.pass(t, s.run(t, s.task(s.Cell, s.Boundary)))
}

func cancelled(t *testing.T, s *suite) {
	stop := errors.New("stopped by the suite")
	ctx, cancel := context.WithCancelCause(t.Context())
	// The run never ends by itself, so whenever this fires it is under way or
	// about to begin; either way Run returns with the cause.
	timer := time.AfterFunc(500*time.Millisecond, func() { cancel(stop) })
	defer timer.Stop()
	if _, err := s.prober.Run(ctx, s.task(s.Fork, s.Boundary)); !errors.Is(err, stop) {
		t.Errorf("got %v, want the cause of the cancellation", err)
	}
	s.pass(t, s.run(t, s.task(s.Cell, s.Boundary)))
}

func leaves(t *testing.T, s *suite) {
	o := s.run(t, s.task(s.Leave, s.Boundary))
	s.pass(t, o)
	mustBeGone(t, grandchildOf(t, o.Evidence.StderrTail))
}

func crashes(t *testing.T, s *suite) {
	o := s.run(t, s.task(s.Crash, s.Boundary))
	if o.Evidence.Signal != "segmentation fault" || o.Evidence.ExitCode != nil || o.Evidence.OutputFinite != nil {
		t.Errorf("%+v", o.Evidence)
	}
	s.pass(t, s.run(t, s.task(s.Cell, s.Boundary)))
}

// independent: a refusal does not poison the run behind it, nor does a quota.
func independent(t *testing.T, s *suite) {
	first := s.run(t, s.task(s.Cell, 0))
	s.pass(t, first)
	s.oom(t, s.run(t, s.task(s.Cell, s.Tiny)))
	second := s.run(t, s.task(s.Cell, 0))
	s.pass(t, second)
	a, b := first.Evidence.Meters, second.Evidence.Meters
	if *a.PeakReserved != *b.PeakReserved || *a.PeakAllocated != *b.PeakAllocated || len(first.Events) != len(second.Events) {
		t.Errorf("peaks %v and %v, %d and %d events", *a.PeakReserved, *b.PeakReserved, len(first.Events), len(second.Events))
	}
}

// checks: a card that is well passes, also when a run has just crashed on it,
// and a check poisons no run behind it.
func checks(t *testing.T, s *suite) {
	check := func() {
		t.Helper()
		if err := s.prober.Check(t.Context()); err != nil {
			t.Errorf("the check fails: %v", err)
		}
	}
	check()
	before := s.run(t, s.task(s.Cell, s.Boundary))
	s.pass(t, before)
	s.run(t, s.task(s.Crash, s.Boundary))
	check()
	check()
	after := s.run(t, s.task(s.Cell, s.Boundary))
	s.pass(t, after)
	if a, b := before.Evidence.Meters.PeakReserved, after.Evidence.Meters.PeakReserved; *a != *b {
		t.Errorf("%v reserved before a check, %v behind it", *a, *b)
	}
	stop := errors.New("stopped by the suite")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(stop)
	if err := s.prober.Check(ctx); !errors.Is(err, stop) {
		t.Errorf("got %v, want the cause of the cancellation", err)
	}
	check()
}

func closed(t *testing.T, s *suite) {
	if err := s.prober.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.prober.Run(t.Context(), s.task(s.Cell, s.Boundary)); err == nil {
		t.Error("a closed prober runs")
	}
	if err := s.prober.Check(t.Context()); err == nil {
		t.Error("a closed prober checks")
	}
}

func grandchildOf(t *testing.T, stderr string) int {
	t.Helper()
	for lines := bufio.NewScanner(strings.NewReader(stderr)); lines.Scan(); {
		if number, ok := strings.CutPrefix(lines.Text(), "grandchild "); ok {
			pid, err := strconv.Atoi(number)
			if err != nil {
				t.Fatal(err)
			}
			return pid
		}
	}
	t.Fatalf("the run named no grandchild: %q", stderr)
	return 0
}

// mustBeGone takes a process that has ended and only waits to be reaped, which
// holds nothing any more, for gone.
func mustBeGone(t *testing.T, pid int) {
	t.Helper()
	if err := syscall.Kill(pid, 0); errors.Is(err, syscall.ESRCH) {
		return
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
		return
	}
	// The state is the first field behind the name, which is in parentheses.
	if _, rest, _ := strings.Cut(string(stat), ") "); err != nil || !strings.HasPrefix(rest, "Z") && !strings.HasPrefix(rest, "X") {
		t.Errorf("process %d is there when Run has returned: %q, %v", pid, stat, err)
	}
}

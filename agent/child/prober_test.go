package child

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/oomfleet/oomfleet/agent/probe"
	"github.com/oomfleet/oomfleet/allocator"
	"github.com/oomfleet/oomfleet/proto"
)

func TestDescribe(t *testing.T) {
	p := newTestProber(t, "hello", nil)
	got, err := p.Describe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := probe.Description{
		Stack:      proto.Stack{GPU: "NVIDIA H200", Driver: "580.159.04", CUDA: "13.0", Torch: "2.11.0+cu130", Python: "none"},
		Card:       proto.Card{UUID: "SIM-0", Total: 150109880320},
		Simulated:  true,
		QuotaKinds: []proto.QuotaKind{proto.QuotaAllocator, proto.QuotaDevice},
	}
	if !got.Equal(want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// Each broken runner is told in one sentence that says what to do.
func TestBrokenRunnersAreFaults(t *testing.T) {
	for name, c := range map[string]struct {
		how     string
		command []string
		want    []string
	}{
		"exits at once":     {how: "exit", want: []string{"ended before it said hello", "status 3", "ImportError: libfoo.so", "by hand"}},
		"says nothing":      {how: "silent", want: []string{"said nothing for 1s"}},
		"talks garbage":     {how: "garbage", want: []string{"broke the protocol", `\x7fELF`}},
		"says why itself":   {how: "fault", want: []string{"python cannot import torch: install it there"}},
		"another protocol":  {how: "protocol", want: []string{"speaks protocol 99"}},
		"no meter":          {how: "real", want: []string{"needs a meter"}},
		"missing command":   {command: []string{"/no/such/python3"}, want: []string{"/no/such/python3 could not be started", "--python"}},
		"command not in $P": {command: []string{"python99"}, want: []string{"python99", "not found", "--python"}},
	} {
		t.Run(name, func(t *testing.T) {
			p := newTestProber(t, c.how, func(cfg *Config) {
				if c.how == "silent" {
					cfg.Timing.Hello = time.Second
				}
				if c.command != nil {
					cfg.Command = c.command
				}
			})
			_, err := p.Describe(t.Context())
			for _, want := range c.want {
				if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
					t.Errorf("got %v, want one line with %q", err, want)
				}
			}
		})
	}
}

func TestPythonIsNamedWhenMissing(t *testing.T) {
	if _, err := PythonCommand("python99", t.TempDir()); err == nil || !strings.Contains(err.Error(), "python99 not found: install it") {
		t.Errorf("got %v", err)
	}
	folder := t.TempDir()
	command, err := PythonCommand("sh", folder)
	if err != nil || command[2] != filepath.Join(folder, "runner.py") {
		t.Errorf("got %q, %v", command, err)
	}
}

func TestRunIsEvidence(t *testing.T) {
	p := newTestProber(t, "hello", nil)
	for name, check := range map[string]func(*testing.T, probe.Observation){
		"pass": func(t *testing.T, o probe.Observation) {
			e := o.Evidence
			if e.ExitCode == nil || *e.ExitCode != 0 || e.Phase != "done" || e.OutputFinite == nil || !*e.OutputFinite || e.Seconds != 1.5 {
				t.Errorf("got %+v", e)
			}
			if *e.Meters.Weights != proto.GiB || *e.Meters.NumAllocRetries != 2 {
				t.Errorf("meters %+v", e.Meters)
			}
		},
		"raise": func(t *testing.T, o probe.Observation) {
			e := o.Evidence
			if *e.ExitCode != 1 || e.Exception != "ValueError" || e.Message != "no\x00" || !o.BadCell || e.Phase != "forward" || e.Settings["a"] != "b" {
				t.Errorf("got %+v", o)
			}
		},
		"crash": func(t *testing.T, o probe.Observation) {
			if o.Evidence.ExitCode != nil || o.Evidence.Signal != "killed" || o.Evidence.Phase != "load" {
				t.Errorf("got %+v", o.Evidence)
			}
		},
		"flood": func(t *testing.T, o probe.Observation) {
			tail := o.Evidence.StderrTail
			if !strings.HasSuffix(tail, "x\nthe end\\x07\\xff\n") || len(tail) > tailSize+16 || len(tail) < tailSize {
				t.Errorf("%d bytes of tail, ending %q", len(tail), tail[max(0, len(tail)-40):])
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			o, err := p.Run(t.Context(), taskOf(name))
			if err != nil {
				t.Fatal(err)
			}
			check(t, o)
		})
	}
	t.Run("the tail is of this run only", func(t *testing.T) {
		o, err := p.Run(t.Context(), taskOf("pass"))
		if err != nil || o.Evidence.StderrTail != "" {
			t.Errorf("got tail %q, %v", o.Evidence.StderrTail, err)
		}
	})
	if _, err := oomKills(); err != nil {
		t.Errorf("the control group's counter: %v", err)
	}
}

func TestRecordingBringsItsTrace(t *testing.T) {
	p := newTestProber(t, "hello", nil)
	task := taskOf("pass")
	task.Kind, task.Quota = proto.TaskRecord, 0
	o, err := p.Run(t.Context(), task)
	if err != nil {
		t.Fatal(err)
	}
	if len(o.Events) != 6 || o.Events[4] != (allocator.Event{Action: allocator.SegmentAlloc, Addr: 2, Size: 2, TimeUS: 5}) ||
		o.Events[5] != (allocator.Event{Action: allocator.Alloc, Addr: 1 << 63, Size: 1, TimeUS: 6}) {
		t.Errorf("got %+v", o.Events)
	}
}

func TestProbeIsWatchedWhereSomethingIsExpected(t *testing.T) {
	p := newTestProber(t, "hello", nil)
	for expect, events := range map[proto.Expectation]int{"": 0, proto.ExpectFail: 6} {
		task := taskOf("pass")
		task.Expect = expect
		if o, err := p.Run(t.Context(), task); err != nil || len(o.Events) != events {
			t.Errorf("expected to %q: %d events, %v; want %d", expect, len(o.Events), err, events)
		}
	}
}

// After each of these the runner is another, and the next run is well.
func TestTroubleIsAFaultAndTheNextRunIsWell(t *testing.T) {
	for name, want := range map[string]string{
		"garbage":      "broke the protocol",
		"wrong-run":    `event for run "another"`,
		"die":          "ended in the middle of a run: it ended with status 5, last words: MemoryError: out of luck",
		"never-starts": "started no process within 1s",
		"quota-fault":  "another process holds memory",
	} {
		t.Run(name, func(t *testing.T) {
			p := newTestProber(t, "hello", func(cfg *Config) {
				if name == "never-starts" {
					cfg.Timing.Start = time.Second
				}
			})
			if _, err := p.Run(t.Context(), taskOf(name)); err == nil || !strings.Contains(err.Error(), want) {
				t.Fatalf("got error %v, want %q", err, want)
			}
			if name == "never-starts" {
				return // the fresh runner's start may take a second too
			}
			if o, err := p.Run(t.Context(), taskOf("pass")); err != nil || *o.Evidence.ExitCode != 0 {
				t.Errorf("the next run: %+v, %v", o.Evidence, err)
			}
		})
	}
}

// TestRunnerTakesNoRequest: one that says hello and then reads nothing does not
// keep the agent, however long the request.
func TestRunnerTakesNoRequest(t *testing.T) {
	p := newTestProber(t, "deaf", func(cfg *Config) { cfg.Timing.Start = time.Second })
	task := taskOf("pass")
	task.Cell.Env = map[string]string{"LONG": strings.Repeat("x", 1<<20)} // more than a pipe holds
	if _, err := p.Run(t.Context(), task); err == nil || !strings.Contains(err.Error(), "took no request within 1s") {
		t.Errorf("got error %v", err)
	}
}

// A run out of time, or cancelled, is killed with a grandchild that ignores
// SIGTERM, leads its own session and has the run's pipes open.
func TestNothingSurvivesTheEndOfARun(t *testing.T) {
	for name, c := range map[string]struct {
		workload string
		cancel   bool
		runner   bool // whether the warm runner lives on
	}{
		"timeout":                    {workload: "hang", runner: true},
		"timeout, deaf to kill":      {workload: "deaf"},
		"cancelled":                  {workload: "hang", cancel: true},
		"ended, but left its child":  {workload: "leave", runner: true},
		"killed guard, orphaned run": {workload: "hang"},
	} {
		t.Run(name, func(t *testing.T) {
			path, read := pidFIFO(t)
			p := newTestProber(t, "hello", func(cfg *Config) {
				cfg.Extra = []string{pidsName + "=" + path}
				if c.workload == "deaf" {
					cfg.Timing.Kill = 200 * time.Millisecond
				}
			})
			task := taskOf(c.workload)
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			stop := errors.New("stopped by the test")
			killGuard := strings.HasPrefix(name, "killed guard")
			if !c.cancel && !killGuard && c.workload != "leave" {
				task.TimeoutSeconds = 1
			}
			type result struct {
				o   probe.Observation
				err error
			}
			done := make(chan result)
			go func() {
				o, err := p.Run(ctx, task)
				done <- result{o, err}
			}()
			fds := map[string]int{}
			pids := read(3)
			for role, pid := range pids {
				if fd, err := unix.PidfdOpen(pid, 0); err == nil { // gone already is as good
					fds[role] = fd
					defer unix.Close(fd)
				}
			}
			switch {
			case c.cancel:
				cancel(stop)
			case killGuard:
				guard, err := readProcess(pids["runner"])
				if err != nil {
					t.Fatal(err)
				}
				syscall.Kill(guard.parent, syscall.SIGKILL)
			}
			got := <-done
			switch {
			case c.cancel && !errors.Is(got.err, stop):
				t.Errorf("error %v, want the cause of the cancellation", got.err)
			case killGuard && (got.err == nil || !strings.Contains(got.err.Error(), "its guard was killed")):
				t.Errorf("error %v", got.err)
			case task.TimeoutSeconds == 1 && (got.err != nil || !got.o.Evidence.TimedOut || got.o.Evidence.Signal != "killed"):
				t.Errorf("evidence %+v, error %v", got.o.Evidence, got.err)
			}
			for role, fd := range fds {
				if role == "runner" && c.runner {
					continue
				}
				if n, _ := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0); n != 1 && !killGuard {
					t.Errorf("%s is alive when Run has returned", role)
				}
				mustDie(t, role, fd)
			}
			if c.runner {
				if err := unix.Kill(pids["runner"], 0); err != nil {
					t.Errorf("the warm runner is gone: %v", err)
				}
			}
		})
	}
}

func TestStrayVariablesStayBehind(t *testing.T) {
	t.Setenv("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "secret")
	t.Setenv("HF_HOME", "/models")
	p := newTestProber(t, "hello", func(cfg *Config) { cfg.Environ = os.Environ() })
	o, err := p.Run(t.Context(), taskOf("env"))
	if err != nil {
		t.Fatal(err)
	}
	env := o.Evidence.StderrTail
	if strings.Contains(env, "PYTORCH") || strings.Contains(env, "secret") || !strings.Contains(env, "HF_HOME=/models\n") {
		t.Errorf("the runner's environment:\n%s", env)
	}
}

func TestClosedAndCancelled(t *testing.T) {
	p := newTestProber(t, "hello", nil)
	if _, err := p.Describe(t.Context()); err != nil {
		t.Fatal(err)
	}
	runnerPID := p.tree.hello.PID
	fd := openPID(t, runnerPID)
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	mustDie(t, "runner", fd)
	if _, err := p.Describe(t.Context()); !errors.Is(err, ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	q := newTestProber(t, "silent", nil)
	if _, err := q.Describe(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

func TestRunnerThatEndsBetweenRunsIsReplaced(t *testing.T) {
	p := newTestProber(t, "hello", nil)
	if _, err := p.Describe(t.Context()); err != nil {
		t.Fatal(err)
	}
	first := p.tree.hello.PID
	fd := openPID(t, first)
	syscall.Kill(first, syscall.SIGKILL)
	mustDie(t, "runner", fd)
	<-p.tree.ended
	if _, err := p.Run(t.Context(), taskOf("pass")); err != nil {
		t.Fatal(err)
	}
	if p.tree.hello.PID == first {
		t.Error("the same runner again")
	}
}

func TestConfigNamesEverythingMissing(t *testing.T) {
	_, err := New(Config{})
	for _, want := range []string{"guard", "runner", "logger"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q in it", err, want)
		}
	}
}

func TestPrintable(t *testing.T) {
	for raw, want := range map[string]string{
		"GPU \x00 has\n\ttab": "GPU \\x00 has\n\ttab",
		"\x1b[31mred":         "\\x1b[31mred",
		"caf\xc3\xa9 \xff":    "café \\xff",
	} {
		if got := printable([]byte(raw)); got != want {
			t.Errorf("%q: got %q, want %q", raw, got, want)
		}
	}
}

func TestOOMKillCounter(t *testing.T) {
	for name, c := range map[string]struct {
		membership string
		files      map[string]string
		want       int64
		fails      bool
	}{
		"version 2":              {"0::/agent.service\n", map[string]string{"agent.service/memory.events": "low 0\noom 4\noom_kill 3\n"}, 3, false},
		"version 2, container":   {"0::/\n", map[string]string{"memory.events": "oom_kill 2\n"}, 2, false},
		"version 1":              {"4:memory:/a\n0::/\n", map[string]string{"memory/a/memory.oom_control": "under_oom 0\noom_kill 9\n"}, 9, false},
		"version 1, own mount":   {"4:cpu,memory:/host/path\n", map[string]string{"memory/memory.oom_control": "oom_kill 1\n"}, 1, false},
		"no memory controller":   {"0::/\n", nil, 0, true},
		"kernel without a count": {"4:memory:/a\n", map[string]string{"memory/a/memory.oom_control": "under_oom 0\n"}, 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			membership := filepath.Join(root, "membership")
			files := map[string]string{"membership": c.membership}
			for f, text := range c.files {
				files[f] = text
			}
			for f, text := range files {
				if err := os.MkdirAll(filepath.Dir(filepath.Join(root, f)), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(filepath.Join(root, f), []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			got, err := oomKillsUnder(membership, root)
			if got != c.want || (err != nil) != c.fails {
				t.Errorf("got %d, %v", got, err)
			}
		})
	}
}

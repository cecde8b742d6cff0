package devfleet

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/oomfleet/oomfleet/coordinator"
	"github.com/oomfleet/oomfleet/coordinator/api"
	"github.com/oomfleet/oomfleet/proto"
)

// simulatedRuns are the processes of runs that are under way.
func (w *world) simulatedRuns() int {
	runs := 0
	for _, p := range living(w.t, w.program) {
		if strings.HasSuffix(p.args, "internal simrun") {
			runs++
		}
	}
	return runs
}

// states are those of the announced agents, as one word each.
func (w *world) states() string {
	w.t.Helper()
	var out []string
	for _, a := range ask[api.AgentList](w, "agents", "list").Agents {
		out = append(out, string(a.State))
	}
	return strings.Join(out, " ")
}

// TestLifecycle: runs of a cancelled sweep are ended although nothing else would
// end them, an agent is drained, and one is asked to end by SIGTERM.
func TestLifecycle(t *testing.T) {
	t.Parallel()
	w := start(t, Config{})
	id := w.submit()
	w.running(w.cfg.Agents)
	t.Run("cancel", func(t *testing.T) {
		began := time.Now()
		if s := ask[api.Cancelled](w, "matrix", "cancel", string(id)); s.Closed == 0 {
			t.Error("no task was taken back")
		}
		await(t, "the runs end", func() bool { return w.simulatedRuns() == 0 })
		t.Logf("%d runs, held for ever, were gone %s after the cancel began", w.cfg.Agents, time.Since(began).Round(time.Millisecond))
		await(t, "the agents are idle", func() bool { return w.states() == "idle idle" })
		r := ask[proto.Report](w, "matrix", "status", string(id))
		if r.State != "cancelled" || r.Counts.Cancelled != r.Counts.Total {
			t.Errorf("%s with %+v", r.State, r.Counts)
		}
	})
	t.Run("drain", func(t *testing.T) {
		w.submit()
		w.running(w.cfg.Agents)
		victim := ask[api.AgentList](w, "agents", "list").Agents[0]
		got := ask[struct {
			Agent     proto.AgentID `json:"agent"`
			Task      proto.TaskID  `json:"task"`
			Restarted bool          `json:"restarted"`
			Seconds   float64       `json:"seconds"`
		}](w, "agents", "drain", string(victim.ID), "--within", "2s")
		if got.Task == "" || got.Seconds < 1 || got.Seconds > 60 {
			t.Errorf("drained as %+v", got)
		}
		await(t, "its process ends", func() bool { return syscall.Kill(victim.PID, 0) != nil })
		// Its task was handed back, not lost: the supervisor's new agent runs it.
		w.running(w.cfg.Agents)
		if s := w.cli("agents", "drain", "nobody"); s.code != 2 || !strings.Contains(s.errors, "no such agent") {
			t.Errorf("exit code %d: %s", s.code, s.errors)
		}
	})
	t.Run("sigterm", func(t *testing.T) {
		// As the first agent's supervisor does, but as a service of its own.
		w.down(agentName(0))
		service := w.agentSpec(0)
		args := slices.DeleteFunc(service.args(""), func(arg string) bool { return arg == "--child" })
		cmd := exec.Command(w.program, append(args, "--drain-time", "2s")...)
		cmd.Env = append(os.Environ(), service.env...)
		log := newLines()
		cmd.Stderr = log
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		defer cmd.Process.Kill()
		await(t, "it is in a run", func() bool { return len(below(living(t, w.program), cmd.Process.Pid)) >= 3 })
		began := time.Now()
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		await(t, "it announces that it drains", func() bool { return strings.Contains(w.states(), "draining") })
		err := cmd.Wait()
		if took := time.Since(began); err != nil || took < 2*time.Second || took > time.Minute {
			t.Errorf("it ended after %s: %v\n%s", took, err, log)
		}
		if text := log.String(); !strings.Contains(text, "draining") || !strings.Contains(text, "handed back") {
			t.Errorf("it does not say what it did:\n%s", text)
		}
	})
	t.Run("gc", func(t *testing.T) {
		got := ask[coordinator.Collection](w, "trace", "gc", "--dry-run")
		if !got.DryRun || got.Removed != 0 || got.Found != 0 || got.Index == 0 {
			t.Errorf("%+v", got)
		}
		if s := w.cli("trace", "gc", "--keep", "1h"); s.code != 2 || !strings.Contains(s.errors, "24h") {
			t.Errorf("exit code %d: %s", s.code, s.errors)
		}
	})
}

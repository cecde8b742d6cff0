package devfleet

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/oomfleet/oomfleet/proto"
)

// TestAgentKilledInAProbe: an agent is killed while its probe has forked a child
// that leads a session of its own, holds memory and ignores SIGTERM.
func TestAgentKilledInAProbe(t *testing.T) {
	t.Parallel()
	hanging := filepath.Join(t.TempDir(), "runs-hang-while-this-is-here")
	if err := os.WriteFile(hanging, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	w := start(t, Config{AgentArgs: []string{"--sim-arg", "--fault=fork=" + hanging}})
	id := w.submit()
	await(t, "each agent's probe has a child that ignores SIGTERM", func() bool { return len(stubborn(w)) == w.cfg.Agents })
	if err := os.Remove(hanging); err != nil {
		t.Fatal(err)
	}
	for _, name := range w.agents() {
		pid, err := w.Signal(name, 0)
		if err != nil {
			t.Fatal(err)
		}
		tree := below(living(t, w.program), pid)
		if len(tree) < 4 { // guard, runner, run, its child
			t.Fatalf("below %s there are only %v", name, tree)
		}
		w.kill(name)
		await(t, "the whole tree of "+name+" is dead", func() bool {
			for _, p := range tree {
				for _, alive := range living(t, w.program) {
					if alive.pid == p.pid {
						return false
					}
				}
			}
			return true
		})
	}
	report := w.finish(id)
	for _, name := range w.agents() {
		if n := w.Starts(name); n != 2 {
			t.Errorf("%s was started %d times", name, n)
		}
	}
	w.judge(report)
}

// stubborn are the processes that the fault has forked, once they ignore SIGTERM.
func stubborn(w *world) []proc {
	const sigterm = 1 << (syscall.SIGTERM - 1)
	var found []proc
	for _, p := range living(w.t, w.program) {
		if !strings.HasSuffix(p.args, " grandchild") {
			continue
		}
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.pid))
		if err != nil {
			continue // it ended meanwhile
		}
		_, rest, _ := strings.Cut(string(status), "SigIgn:\t")
		text, _, _ := strings.Cut(rest, "\n")
		ignored, err := strconv.ParseUint(text, 16, 64)
		if err != nil {
			w.t.Fatal(err)
		}
		if ignored&sigterm != 0 {
			found = append(found, p)
		}
	}
	return found
}

// judge ends the fleet's coordinators and holds what they have committed against
// the report, against itself, and against a fleet where nothing was killed.
func (w *world) judge(r proto.Report) *autopsy {
	w.t.Helper()
	return w.judgeAgainst(undisturbedReport(w.t), r)
}

// judgeAgainst is judge with the report of another fleet where nothing was killed.
func (w *world) judgeAgainst(calm, r proto.Report) *autopsy {
	w.t.Helper()
	if why := differ(calm, r); why != "" {
		w.t.Errorf("the sweep came to something else than an undisturbed one: %s", why)
	}
	var first *autopsy
	for _, c := range w.conf.Coordinators {
		w.down("coordinator-" + c.ID)
	}
	for _, c := range w.conf.Coordinators {
		a := open(w.t, c.DataDir)
		a.addsUp(w.t, r)
		if first == nil {
			first = a
		}
	}
	return first
}

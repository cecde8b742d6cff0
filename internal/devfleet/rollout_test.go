package devfleet

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/oomfleet/oomfleet/coordinator"
	"github.com/oomfleet/oomfleet/coordinator/api"
	"github.com/oomfleet/oomfleet/coordinator/diff"
	"github.com/oomfleet/oomfleet/internal/config"
	"github.com/oomfleet/oomfleet/proto"
)

// The rollout of these tests: the recorded driver, the same under another name,
// and one whose context holds 40 MiB more.
const (
	nightlyMatrix = "../../deploy/examples/nightly.yaml"
	nightlyCells  = 5
	renamedDriver = "585.10-synthetic"
	heavierDriver = "590.10-synthetic"
)

func rolloutDrivers() []config.SimulatedDriver {
	return []config.SimulatedDriver{{Driver: RecordedDriver}, {Driver: renamedDriver}, {Driver: heavierDriver, ContextOffset: "40MiB"}}
}

// onlyFirst takes the agents of the drivers to come down, and waits until the
// fleet has forgotten them.
func (w *world) onlyFirst() {
	w.t.Helper()
	w.down("agent-1", "agent-2")
	await(w.t, "only the first agent is announced", func() bool {
		list, err := w.client().Agents(w.t.Context())
		return err == nil && len(list.Agents) == 1
	})
}

// verdictOf waits until the sweep that a driver has triggered is judged.
func (w *world) verdictOf(driver string) (s proto.SweepVerdict, id proto.MatrixID) {
	w.t.Helper()
	await(w.t, "the sweep of driver "+driver+" is judged", func() bool {
		list, err := w.client().Sweeps(w.t.Context())
		if err != nil {
			return false
		}
		for _, sweep := range list.Sweeps {
			r := sweep.Rollout
			if r != nil && r.Trigger != nil && r.Trigger.Stack != nil && r.Trigger.Stack.Driver == driver && r.Verdict != nil {
				s, id = *r.Verdict, sweep.Matrix.ID
			}
		}
		return id != ""
	})
	return s, id
}

// TestRollout is a driver's rollout, from the standing order to the verdict: an
// agent with another driver joins a fleet, and nobody does anything.
func TestRollout(t *testing.T) {
	w := start(t, Config{Agents: 3, Drivers: rolloutDrivers()})
	w.onlyFirst()
	first := ask[coordinator.SubmitReply](w, "matrix", "submit", nightlyMatrix, "--origin", "simulated").Matrix.ID
	if r := w.finish(first); r.Counts.Certified != nightlyCells || r.Counts.Total != nightlyCells || r.Rollout == nil || r.Rollout.Policy == nil {
		t.Fatalf("the standing order came to %+v", r.Counts)
	}
	w.up("agent-1")
	same, renamed := w.verdictOf(renamedDriver)
	if same.Verdict != proto.VerdictSame || same.Summary != "same" || same.Base != first || same.Same != nightlyCells {
		t.Errorf("an identical driver under another name: %+v", same)
	}
	w.up("agent-2")
	changed, heavier := w.verdictOf(heavierDriver)
	if changed.Verdict != proto.VerdictChanged || changed.Summary != "changed: context +40 MiB" || changed.Base != renamed || changed.From.Driver != renamedDriver {
		t.Errorf("a driver with 40 MiB more context: %+v", changed)
	}
	sub := func(name string, test func(t *testing.T, w *world)) {
		t.Run(name, func(t *testing.T) {
			mine := *w
			mine.t = t
			test(t, &mine)
		})
	}
	sub("cells as by hand", func(t *testing.T, w *world) {
		for driver, id := range map[string]proto.MatrixID{renamedDriver: renamed, heavierDriver: heavier} {
			byHand := ask[coordinator.SubmitReply](w, "matrix", "submit", nightlyMatrix, "--origin", "simulated", "--set", "axes.driver="+driver)
			if byHand.Matrix.ID != id || byHand.Settled != nightlyCells || byHand.New != 0 {
				t.Errorf("driver %s by hand is %+v, by itself it was %s", driver, byHand, id)
			}
		}
	})
	sub("list and status", func(t *testing.T, w *world) {
		if s := w.cli("matrix", "list"); s.code != 0 || strings.Count(s.out, "standing order") != 1 || strings.Count(s.out, "new driver 5") != 2 ||
			!strings.Contains(s.out, "changed: context +40 MiB") {
			t.Errorf("exit code %d\n%s%s", s.code, s.out, s.errors)
		}
		s := w.cli("matrix", "status", string(heavier))
		for _, want := range []string{"started by itself: agent ", "announced driver " + heavierDriver, "verdict: changed: context +40 MiB (1 cell same, 4 changed", "fleetctl matrix diff " + string(renamed)} {
			if s.code != 0 || !strings.Contains(s.out, want) {
				t.Errorf("exit code %d, no %q in\n%s", s.code, want, s.out)
			}
		}
	})
	sub("diff", func(t *testing.T, w *world) { rolloutDiff(t, w, first, renamed, heavier) })
	sub("metrics and log", func(t *testing.T, w *world) {
		if have := families(t, w.API()); !have["oomfleet_sweeps_compared"] || !have["oomfleet_rollouts_total"] || !have["oomfleet_comparisons_total"] {
			t.Error("the coordinator does not serve the metrics of rollouts")
		}
		log := w.logs()["coordinator-a"]
		for _, want := range []string{"new stack, its sweep starts by itself", "sweep compared with the one before", `summary="changed: context +40 MiB"`} {
			if !strings.Contains(log, want) {
				t.Errorf("the log does not say %q", want)
			}
		}
	})
	sub("leaders come and go", func(t *testing.T, w *world) {
		before := len(ask[api.SweepList](w, "matrix", "list").Sweeps)
		w.kill("coordinator-a")
		await(t, "the coordinator leads again", func() bool {
			return strings.Count(w.logs()["coordinator-a"], "msg=leading") >= 2
		})
		w.down("agent-1")
		w.up("agent-1")
		await(t, "the coordinator answers", func() bool { _, err := w.client().Sweeps(t.Context()); return err == nil })
		if after := ask[api.SweepList](w, "matrix", "list"); len(after.Sweeps) != before {
			t.Errorf("there were %d sweeps, and now there are %d", before, len(after.Sweeps))
		}
	})
}

func rolloutDiff(t *testing.T, w *world, first, renamed, heavier proto.MatrixID) {
	s := w.cli("matrix", "diff", string(renamed), string(heavier), "--json")
	doc := decode[diff.Document](t, s.out)
	if s.code != 3 || doc.Verdict != proto.VerdictChanged || doc.Summary != "changed: context +40 MiB" || doc.Counts != (diff.Counts{Same: 1, Changed: 4}) ||
		doc.Basis.Origin != proto.OriginSimulated || doc.After.Driver != heavierDriver || doc.After.Torch == "" {
		t.Errorf("exit code %d, %s %+v %+v", s.code, doc.Summary, doc.Counts, doc.Basis)
	}
	// Four lengths are recorded and predict the fifth, of which only the boundary is known.
	for _, c := range doc.Cells {
		i := slices.IndexFunc(c.Measures, func(m diff.Measure) bool { return m.Name == "boundary" })
		if i < 0 || c.Measures[i].Diff != 0 || c.Job == nil || !c.Job.FitsOldQuota || c.Job.NeedAfter-c.Job.NeedBefore != 40*proto.MiB {
			t.Errorf("%s: an allocator quota does not see the context, the card does: %+v %+v", c.Name(), c.Measures, c.Job)
		}
	}
	if s := w.cli("matrix", "diff", string(first), string(renamed)); s.code != 0 || !strings.HasPrefix(s.out, "same\n") {
		t.Errorf("exit code %d: %s%s", s.code, s.out, s.errors)
	}
	if s := w.cli("matrix", "diff", string(renamed), string(heavier), "--margin", "64MiB"); s.code != 0 || !strings.HasPrefix(s.out, "same\n") {
		t.Errorf("40 MiB where 64 do not matter: exit code %d: %s%s", s.code, s.out, s.errors)
	}
	// The API comes to the same.
	answer, err := w.client().CompareSweeps(t.Context(), map[string][]string{"after": {string(heavier)}})
	if err != nil {
		t.Fatal(err)
	}
	a, errA := json.Marshal(answer.Document)
	b, errB := json.Marshal(doc)
	if errA != nil || errB != nil || string(a) != string(b) {
		t.Errorf("the API says\n%s\nand the command\n%s", a, b)
	}
	for _, args := range [][]string{
		{"no-such-sweep", string(heavier)},
		{string(renamed), string(renamed)},
		{string(renamed), string(heavier), "--margin", "-1MiB"},
		{string(renamed), string(heavier), "--driver", "1.2"},
		{string(renamed)},
	} {
		if s := w.cli(append([]string{"matrix", "diff"}, args...)...); s.code != 2 || s.out != "" {
			t.Errorf("%v: exit code %d, %s", args, s.code, s.out)
		} else {
			sentence(t, s.errors, "")
		}
	}
	again := w.cli("matrix", "diff", string(renamed), string(heavier), "--repeat")
	if again.code != 3 || !strings.Contains(again.errors, "no cell needs more recordings") {
		t.Errorf("exit code %d: %s", again.code, again.errors)
	}
}

package devfleet

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/oomfleet/oomfleet/coordinator"
	"github.com/oomfleet/oomfleet/coordinator/api"
	"github.com/oomfleet/oomfleet/proto"
)

func asProblem(err error, p **api.Problem) bool { return errors.As(err, p) }

// TestCommands runs every command of an operator against one fleet.
func TestCommands(t *testing.T) {
	t.Parallel()
	w := start(t, Config{})
	w.gate.open()
	id := w.submit()
	report := w.finish(id)
	sub := func(name string, test func(t *testing.T, w *world)) {
		t.Run(name, func(t *testing.T) {
			mine := *w
			mine.t = t
			test(t, &mine)
		})
	}
	sub("submit again", func(t *testing.T, w *world) {
		again := ask[coordinator.SubmitReply](w, "matrix", "submit", smallMatrix, "--origin", "simulated")
		if again.Matrix.ID != id || again.New != 0 || again.Known != 0 || again.Settled != smallCells {
			t.Errorf("the same matrix again gave %+v", again)
		}
		if list := ask[api.SweepList](w, "matrix", "list"); len(list.Sweeps) != 1 {
			t.Errorf("there are %d sweeps", len(list.Sweeps))
		}
		now := ask[proto.Report](w, "matrix", "status", string(id))
		if why := differ(now, report); why != "" || now.Counts != report.Counts {
			t.Errorf("the sweep changed: %s", why)
		}
	})
	sub("matrix list", func(t *testing.T, w *world) {
		list := ask[api.SweepList](w, "matrix", "list")
		s := list.Sweeps[0]
		if s.Matrix.ID != id || s.State != "settled" || s.Counts != report.Counts || s.Origin != proto.OriginSimulated {
			t.Errorf("the list says %+v", s)
		}
		if plain := w.cli("matrix", "list"); plain.code != 0 || !strings.Contains(plain.out, string(id)) {
			t.Errorf("exit code %d: %s%s", plain.code, plain.out, plain.errors)
		}
	})
	sub("unknown sweep", func(t *testing.T, w *world) {
		for _, verb := range []string{"status", "cancel"} {
			s := w.cli("matrix", verb, "no-such-sweep")
			if s.code != 2 {
				t.Errorf("%s: exit code %d", verb, s.code)
			}
			sentence(t, s.errors, "matrix list shows them")
		}
	})
	sub("agents list", func(t *testing.T, w *world) {
		drivers := map[string]bool{}
		for _, a := range ask[api.AgentList](w, "agents", "list").Agents {
			drivers[a.Stack.Driver] = true
			if a.Origin != proto.OriginSimulated || a.Stack.GPU != "NVIDIA H200" || a.ID == "" || a.PID == 0 {
				t.Errorf("there is an agent %+v", a)
			}
		}
		if len(drivers) != 2 {
			t.Errorf("agents are there for the drivers %v", drivers)
		}
	})
	sub("traces", tracesAreWhole)
	sub("quota recommend", quotaRecommend)
	sub("metrics", metricsAreServed)
	sub("cancel", func(t *testing.T, w *world) { cancelMidway(t, w) })
}

// tracesAreWhole fetches every trace, and replays them: a trace's own boundary is
// what its cell came to.
func tracesAreWhole(t *testing.T, w *world) {
	list := ask[api.TraceList](w, "trace", "list").Traces
	if len(list) == 0 {
		t.Fatal("there is no trace")
	}
	known := map[proto.CellID]proto.Bytes{}
	for _, c := range undisturbedReport(t).Cells {
		known[c.ID] = c.Boundary.Boundary
	}
	for _, e := range list {
		file := filepath.Join(t.TempDir(), "trace.parquet")
		if s := w.cli("trace", "get", string(e.Ref.Digest), "-o", file); s.code != 0 {
			t.Fatalf("exit code %d: %s", s.code, s.errors)
		}
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if sum := sha256.Sum256(content); hex.EncodeToString(sum[:]) != string(e.Ref.Digest) || len(content) != int(e.Ref.Size) {
			t.Error("the file is not the trace that was asked for")
		}
		boundary := known[e.CellID]
		for quota, outcome := range map[proto.Bytes]string{boundary: "ok", boundary - e.Cell.Step: "oom"} {
			s := w.cli("trace", "replay", file, "--cap", fmt.Sprint(int64(quota)), "--json")
			var d struct {
				Outcome string `json:"outcome"`
				Wrong   int    `json:"selfcheck_mismatches"`
			}
			if err := json.Unmarshal([]byte(s.out), &d); err != nil || s.code != 0 || d.Outcome != outcome || d.Wrong != 0 {
				t.Errorf("replay of %s at %d: exit code %d, %s%s; want %s", e.Cell, int64(quota), s.code, s.out, s.errors, outcome)
			}
		}
	}
}

func quotaRecommend(t *testing.T, w *world) {
	known := ask[api.Recommendation](w, "quota", "recommend", "--seq-len", "384", "--origin", "simulated", "--driver", RecordedDriver)
	if known.Basis != "boundary" || known.Survive != 11_549_016_064 || known.NoRetry == nil || *known.NoRetry < known.Survive || known.Origin != proto.OriginSimulated {
		t.Errorf("a cell that was certified: %+v", known)
	}
	other := ask[api.Recommendation](w, "quota", "recommend", "--seq-len", "300", "--origin", "simulated", "--driver", RecordedDriver)
	if other.Survive <= 0 || other.Quota < other.Survive || len(other.Evidence) == 0 || other.Extrapolated || other.Basis == "boundary" {
		t.Errorf("a length between those that were: %+v", other)
	}
	for _, args := range [][]string{
		{"--seq-len", "384"},                                                       // measured: there is nothing
		{"--seq-len", "384", "--origin", "simulated"},                              // which driver?
		{"--seq-len", "3000", "--origin", "simulated", "--driver", RecordedDriver}, // beyond the domain
	} {
		s := w.cli(append([]string{"quota", "recommend"}, args...)...)
		if s.code != 2 || s.out != "" {
			t.Errorf("%v: exit code %d, %s", args, s.code, s.out)
		}
		sentence(t, s.errors, "")
	}
}

// families reads all metrics of a process.
func families(t *testing.T, address string) map[string]bool {
	t.Helper()
	response, err := http.Get(address + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	all, err := parser.TextToMetricFamilies(response.Body)
	if err != nil {
		t.Fatalf("%s/metrics cannot be parsed: %v", address, err)
	}
	names := map[string]bool{}
	for name := range all {
		names[name] = true
	}
	return names
}

func metricsAreServed(t *testing.T, w *world) {
	have := families(t, w.API())
	for _, name := range []string{"oomfleet_cells", "oomfleet_tasks_open", "oomfleet_tasks_issued_total", "oomfleet_results_total", "oomfleet_results_late_total",
		"oomfleet_applied_index", "oomfleet_leader", "oomfleet_replays_total", "oomfleet_audit_republished_total", "process_cpu_seconds_total", "go_goroutines"} {
		if !have[name] {
			t.Errorf("the coordinator does not serve %s", name)
		}
	}
	served := regexp.MustCompile(`msg="metrics served".* address=(\S+)`)
	for _, name := range w.agents() {
		found := served.FindStringSubmatch(w.logs()[name])
		if found == nil {
			t.Fatalf("%s does not log where it serves its metrics", name)
		}
		have := families(t, "http://"+found[1])
		for _, family := range []string{"oomfleet_agent_runs_total", "oomfleet_agent_faults_total", "oomfleet_agent_lease_failures_total",
			"oomfleet_agent_delivery_failures_total", "oomfleet_agent_outbox_results", "process_cpu_seconds_total"} {
			if !have[family] {
				t.Errorf("%s does not serve %s", name, family)
			}
		}
	}
}

// cancelMidway cancels a sweep while runs of it are under way: its numbers add
// up, and what was not cancelled is left alone.
func cancelMidway(t *testing.T, w *world) {
	w.gate.close()
	lengths := []string{"--set", "axes.seq_len=192,320", "--set", "axes.batch=1", "--set", "include=[]", "--set", "exclude=[]"}
	reply := ask[coordinator.SubmitReply](w, append([]string{"matrix", "submit", smallMatrix, "--origin", "simulated"}, lengths...)...)
	if reply.New != 4 {
		t.Fatalf("the matrix has %d new cells", reply.New)
	}
	w.running(w.cfg.Agents)
	s := ask[api.Cancelled](w, "matrix", "cancel", string(reply.Matrix.ID))
	if s.Closed == 0 {
		t.Error("no task was taken back")
	}
	// The runs that were under way are ended, though the gate is closed.
	await(t, "the runs end", func() bool { return w.simulatedRuns() == 0 })
	w.gate.open()
	report := ask[proto.Report](w, "matrix", "status", string(reply.Matrix.ID), "--wait")
	if c := report.Counts; report.State != "cancelled" || c.Total != 4 || c.Cancelled != 4 || c.Settled() != c.Total {
		t.Errorf("the cancelled sweep is %s with %+v", report.State, c)
	}
	// Cancelling again changes nothing, submitting again starts anew.
	if again := ask[api.Cancelled](w, "matrix", "cancel", string(reply.Matrix.ID)); again.Closed != 0 {
		t.Errorf("cancelling twice took %d tasks back", again.Closed)
	}
	anew := ask[coordinator.SubmitReply](w, append([]string{"matrix", "submit", smallMatrix, "--origin", "simulated"}, lengths...)...)
	if done := ask[proto.Report](w, "matrix", "status", string(anew.Matrix.ID), "--wait"); done.Counts.Certified != 4 {
		t.Errorf("submitted again it came to %+v", done.Counts)
	}
}

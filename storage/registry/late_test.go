package registry_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/oomfleet/oomfleet/proto"
	"github.com/oomfleet/oomfleet/storage/registry"
)

// TestLateResultsAreKept: what comes for a cancelled task stays with its cell,
// marked and bounded, and changes nothing else.
func TestLateResultsAreKept(t *testing.T) {
	cell := proto.Cell{Workload: proto.Workload{Name: "w"}, GPU: "g", Driver: "d", SeqLen: 1, Batch: 1, Env: map[string]string{}, QuotaKind: proto.QuotaAllocator, Step: proto.DefaultStep}
	key := registry.Key{Origin: proto.OriginMeasured, Cell: cell.ID()}
	m, index := registry.New(), uint64(0)
	apply := func(c registry.Command) registry.Reply {
		t.Helper()
		index++
		c.Version = 1
		return m.Apply(index, time.Unix(int64(index), 0), c)
	}
	apply(registry.Command{AddSweep: &registry.AddSweep{ID: "s", Origin: key.Origin, Source: "x", Search: proto.Search{Strategy: proto.StrategyPredict, Certify: proto.CertifyEdges}, Cells: []proto.Cell{cell}}})
	issued := apply(registry.Command{Issue: &registry.Issue{Seen: index, Requests: []registry.IssueRequest{{Key: key, Kind: proto.TaskRecord, TimeoutSeconds: 1}}}}).Issued
	if len(issued) != 1 {
		t.Fatal("no task was issued")
	}
	task := issued[0]
	apply(registry.Command{CancelSweep: &registry.CancelSweep{ID: "s"}})
	before := m.View().Records[key]
	result := func(agent int) registry.Command {
		return registry.Command{TakeResult: &registry.TakeResult{Result: proto.Result{Task: task.ID, Protocol: proto.Version, Fence: task.Fence, CellID: task.CellID, Origin: task.Origin,
			Kind: task.Kind, Agent: proto.AgentID(fmt.Sprintf("gpu-%d", agent)), Outcome: proto.OutcomePass, Evidence: proto.Evidence{Trace: &proto.TraceRef{Digest: "d"}}}}}
	}
	for range 3 {
		if r := apply(result(1)); r.Accepted || !strings.Contains(r.Refused, "late") {
			t.Errorf("%+v", r)
		}
	}
	rec := m.View().Records[key]
	if rec.Late != 3 || len(rec.LateRuns) != 1 || rec.LateRuns[0].Task != task.ID || rec.LateRuns[0].Trace == nil || rec.LateRuns[0].Why == "" {
		t.Errorf("kept %+v", rec.Lateness)
	}
	if len(rec.Runs) != 0 || rec.LastIndex != before.LastIndex || rec.Settled.State != proto.CellCancelled {
		t.Errorf("it counts: %+v", rec)
	}
	for agent := range 3 * registry.LateLimit {
		apply(result(agent))
	}
	if rec := m.View().Records[key]; rec.Late != 3+3*registry.LateLimit || len(rec.LateRuns) != registry.LateLimit || rec.LateRuns[registry.LateLimit-1].Agent != "gpu-47" {
		t.Errorf("%d late, %d kept", rec.Late, len(rec.LateRuns))
	}
}

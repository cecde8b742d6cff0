package proto_test

import (
	"encoding/json"
	"testing"

	"github.com/oomfleet/oomfleet/internal/wiretest"
	"github.com/oomfleet/oomfleet/proto"
)

var _ = wiretest.Flag()

// words are members of the closed sets.
func words() wiretest.Words {
	w := wiretest.Words{}
	wiretest.Word(w, proto.OutcomeOOMQuota)
	wiretest.Word(w, proto.TaskProbe)
	wiretest.Word(w, proto.OriginSimulated)
	wiretest.Word(w, proto.QuotaAllocator)
	wiretest.Word(w, proto.StrategyPredict)
	wiretest.Word(w, proto.CertifyEdges)
	wiretest.Word(w, proto.CellCertified)
	wiretest.Word(w, proto.AgentBusy)
	wiretest.Word(w, proto.TriggerNewStack)
	wiretest.Word(w, proto.VerdictSame)
	wiretest.Word(w, proto.ExpectPass)
	return w
}

// TestWire: what agents and coordinators of other versions say and hear.
func TestWire(t *testing.T) {
	wiretest.Check(t, []wiretest.Document{
		wiretest.Lenient[proto.Task]("task.json", words()),
		wiretest.Lenient[proto.Result]("result.json", words()),
		wiretest.Lenient[proto.AgentInfo]("presence.json", words()),
		wiretest.Lenient[proto.Control]("control.json", words()),
		wiretest.Lenient[proto.Report]("report.json", words()),
		wiretest.Lenient[proto.Coefficients]("coefficients.json", words()),
	})
}

// TestWordsOfAVersionToCome: what an old build does with members of its closed
// sets that it does not know.
func TestWordsOfAVersionToCome(t *testing.T) {
	cell := proto.Cell{Workload: proto.Workload{Name: "esmfold"}, GPU: "NVIDIA H200", Driver: "580.1", SeqLen: 128, Batch: 1,
		Env: map[string]string{}, QuotaKind: proto.QuotaAllocator, Step: proto.DefaultStep}
	good := proto.Task{ID: "m-1-1", Protocol: proto.Version, Fence: 7, Kind: proto.TaskProbe, Origin: proto.OriginMeasured, CellID: cell.ID(),
		Cell: cell, Quota: proto.GiB, TimeoutSeconds: 600}
	if err := good.Validate(); err != nil {
		t.Fatal(err)
	}
	for name, spoil := range map[string]func(*proto.Task){
		"protocol":   func(t *proto.Task) { t.Protocol = proto.Version + 1 },
		"kind":       func(t *proto.Task) { t.Kind = "profile" },
		"quota kind": func(t *proto.Task) { t.Cell.QuotaKind = "slice"; t.CellID = t.Cell.ID() },
	} {
		task := good
		if spoil(&task); task.Validate() == nil {
			t.Errorf("a task with another %s would be run as if it were known", name)
		}
	}
	var r proto.Result
	if err := json.Unmarshal([]byte(`{"task":"m-1-1","outcome":"of_a_version_to_come"}`), &r); err != nil || r.Outcome.Known() {
		t.Errorf("%+v, %v", r, err)
	}
	var a proto.AgentInfo
	if err := json.Unmarshal([]byte(`{"id":"gpu-1","state":"of_a_version_to_come","quota_kinds":["slice"]}`), &a); err != nil || a.ID != "gpu-1" {
		t.Errorf("%+v, %v", a, err)
	}
}

package registry_test

import (
	"bytes"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/oomfleet/oomfleet/internal/wiretest"
	"github.com/oomfleet/oomfleet/proto"
	"github.com/oomfleet/oomfleet/storage/registry"
)

var _ = wiretest.Flag()

func wireWords() wiretest.Words {
	w := wiretest.Words{}
	wiretest.Word(w, proto.OutcomeOOMQuota)
	wiretest.Word(w, proto.TaskProbe)
	wiretest.Word(w, proto.OriginSimulated)
	wiretest.Word(w, proto.QuotaAllocator)
	wiretest.Word(w, proto.CellCertified)
	return w
}

// snake is a field's name as its file's.
func snake(name string) string {
	var b strings.Builder
	for i, r := range name {
		if i > 0 && r >= 'A' && r <= 'Z' {
			b.WriteByte('_')
		}
		b.WriteRune(r)
	}
	return strings.ToLower(b.String())
}

// TestWireCommands: the log's entries, one of each order with every field set.
// Both sides are strict: what today's build writes of version 1 a build of
// version 1 reads, field for field.
func TestWireCommands(t *testing.T) {
	full := wiretest.Full[registry.Command](wireWords())
	all := reflect.ValueOf(full)
	var documents []wiretest.Document
	for i := range all.NumField() {
		if all.Type().Field(i).Name == "Version" {
			continue
		}
		var c registry.Command
		c.Version = 1
		reflect.ValueOf(&c).Elem().Field(i).Set(all.Field(i))
		text, err := registry.EncodeCommand(c)
		if err != nil {
			t.Fatal(err)
		}
		documents = append(documents, wiretest.Document{Name: "command_" + snake(all.Type().Field(i).Name) + ".json", Full: text, Strict: true,
			Again: func(text []byte) ([]byte, error) {
				c, err := registry.DecodeCommand(bytes.TrimSpace(text))
				if err != nil {
					return nil, err
				}
				return registry.EncodeCommand(c)
			}})
	}
	wiretest.Check(t, documents)
}

// wireView has one of everything that a snapshot holds.
func wireView() registry.View {
	w := wireWords()
	sweep, record, program := wiretest.Full[registry.Sweep](w), wiretest.Full[registry.Record](w), wiretest.Full[registry.Program](w)
	set, member, settled := wiretest.Full[registry.CoefficientSet](w), wiretest.Full[registry.Member](w), wiretest.Full[registry.Settlement](w)
	return registry.View{AppliedIndex: 99, AppliedTime: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Late: 3, Restored: 7,
		Sweeps: map[proto.MatrixID]*registry.Sweep{sweep.ID: &sweep}, Records: map[registry.Key]*registry.Record{record.Key: &record},
		Coefficients: map[registry.GroupKey]*registry.CoefficientSet{set.Key: &set}, History: map[registry.GroupKey][]*registry.CoefficientSet{set.Key: {&set}},
		Settlements: map[registry.Key][]*registry.Settlement{record.Key: {&settled}}, Programs: map[registry.FamilyKey]*registry.Program{program.Family: &program},
		Members: map[string]registry.Member{member.ID: member}}
}

// TestWireSnapshot: snapshots and backups of every version are read, and come
// out of today's build as they went in.
func TestWireSnapshot(t *testing.T) {
	var snapshot, backup bytes.Buffer
	v := wireView()
	if err := v.WriteSnapshot(&snapshot); err != nil {
		t.Fatal(err)
	}
	if err := v.WriteBackup(&backup); err != nil {
		t.Fatal(err)
	}
	versions := wiretest.Versions(t)
	newest := versions[len(versions)-1]
	for name, today := range map[string]*bytes.Buffer{"snapshot.jsonl": &snapshot, "backup.jsonl": &backup} {
		t.Run(name, func(t *testing.T) {
			wiretest.Golden(t, filepath.Join(newest, name), today.Bytes())
			for _, folder := range versions {
				text, err := os.ReadFile(filepath.Join(folder, name))
				if err != nil {
					t.Fatal(err)
				}
				view, err := registry.ReadBackup(bytes.NewReader(text))
				if err != nil {
					t.Fatalf("%s: %v", folder, err)
				}
				var again bytes.Buffer
				if err := view.WriteSnapshot(&again); err != nil || folder == newest && !bytes.Equal(again.Bytes(), text) {
					t.Errorf("%s: %v, written again as\n%s", folder, err, again.Bytes())
				}
			}
		})
	}
}

// TestWireHistory: today's build makes of a log of every version the state that
// the build of that version made. Two builds in one cluster would else diverge.
func TestWireHistory(t *testing.T) {
	for _, folder := range wiretest.Versions(t) {
		log, err := os.ReadFile(filepath.Join(folder, "history.jsonl"))
		if err != nil && !wiretest.Rewriting() {
			t.Fatal(err)
		}
		if wiretest.Rewriting() {
			log = history(t)
			wiretest.Golden(t, filepath.Join(folder, "history.jsonl"), log)
		}
		m := registry.New()
		for i, line := range bytes.Split(bytes.TrimSpace(log), []byte("\n")) {
			c, err := registry.DecodeCommand(line)
			if err != nil {
				t.Fatalf("%s: entry %d: %v", folder, i+1, err)
			}
			if reply := m.Apply(uint64(i+1), time.Unix(int64(1000+i), 0), c); !reply.Accepted {
				t.Errorf("%s: entry %d changes nothing: %s", folder, i+1, reply.Refused)
			}
		}
		var state bytes.Buffer
		if err := m.Snapshot(&state); err != nil {
			t.Fatal(err)
		}
		wiretest.Golden(t, filepath.Join(folder, "history_state.jsonl"), state.Bytes())
	}
}

// history is a log with one of most orders, all of which change something.
func history(t *testing.T) []byte {
	t.Helper()
	cell := proto.Cell{Workload: proto.Workload{Name: "esmfold"}, GPU: "NVIDIA H200", Driver: "580.1", SeqLen: 128, Batch: 1,
		Env: map[string]string{}, QuotaKind: proto.QuotaAllocator, Step: proto.DefaultStep}
	other := cell
	other.SeqLen = 256
	key := registry.Key{Origin: proto.OriginSimulated, Cell: cell.ID()}
	stack := proto.Stack{GPU: cell.GPU, Driver: cell.Driver, Torch: "2.11.0"}
	digest := proto.Digest(strings.Repeat("ab", 32))
	peak, process := 3*proto.GiB, 4*proto.GiB
	result := proto.Result{Task: proto.TaskID("s-" + string(cell.ID()) + "-1"), Protocol: proto.Version, Fence: 3, CellID: cell.ID(), Origin: key.Origin, Kind: proto.TaskRecord,
		Agent: "gpu-1", Stack: stack, Outcome: proto.OutcomePass, Evidence: proto.Evidence{Seconds: 1.5, Trace: &proto.TraceRef{Digest: digest, Size: 9, Events: 2},
			Meters: proto.Meters{PeakAllocated: &peak, PeakReserved: &peak, ProcessPeak: &process}}}
	boundary := proto.Boundary{Boundary: peak, LowestPass: peak, NoRetry: peak, BandsKnown: true, FailBands: []proto.Band{}}
	search := proto.Search{Strategy: proto.StrategyPredict, Certify: proto.CertifyNone}
	group := proto.Group{Workload: cell.Workload, GPU: cell.GPU, Driver: cell.Driver, Torch: "2.11.0", Env: map[string]string{}}
	model := proto.Coefficients{Group: group, QuotaKind: cell.QuotaKind, Origin: proto.OriginImported, Target: "reserved", Terms: []proto.Term{{Name: "weights", Value: 1, Unit: "bytes"}}}
	var log bytes.Buffer
	for _, c := range []registry.Command{
		{SetMember: &registry.SetMember{Member: registry.Member{ID: "a", API: "http://a:1", CommandVersion: 1}}},
		{AddSweep: &registry.AddSweep{ID: "wire-1", Name: "wire", Origin: key.Origin, Search: search, Source: "x", Cells: []proto.Cell{cell, other}}},
		{Issue: &registry.Issue{Seen: 2, Requests: []registry.IssueRequest{{Key: key, Kind: proto.TaskRecord, TimeoutSeconds: 60}}}},
		{TakeResult: &registry.TakeResult{Result: result}},
		{SetPrediction: &registry.SetPrediction{Key: key, Prediction: proto.Prediction{Boundary: boundary, Trace: digest, PeakReserved: peak}}},
		{SetProgram: &registry.SetProgram{Family: registry.FamilyOf(key.Origin, cell), Inputs: []proto.Digest{digest}, Refused: "too few", NeedMore: true}},
		{Settle: &registry.Settle{Key: key, Runs: 1, Settlement: registry.Settlement{State: proto.CellPredicted, Boundary: boundary}}},
		{SetCoefficients: &registry.SetCoefficients{Key: registry.KeyOf(model), Models: []proto.Coefficients{model}, Evidence: []proto.TaskID{}}},
		{CancelSweep: &registry.CancelSweep{ID: "wire-1"}},
		{AddSweep: &registry.AddSweep{ID: "wire-2", Name: "wire", Origin: key.Origin, Search: proto.Search{Strategy: proto.StrategyPredict, Certify: proto.CertifyEdges}, Source: "x", Cells: []proto.Cell{cell}}},
	} {
		c.Version = 1
		text, err := registry.EncodeCommand(c)
		if err != nil {
			t.Fatal(err)
		}
		log.Write(append(text, '\n'))
	}
	return log.Bytes()
}

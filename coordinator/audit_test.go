package coordinator

import (
	"slices"
	"testing"

	"github.com/oomfleet/oomfleet/proto"
	"github.com/oomfleet/oomfleet/storage/registry"
)

func TestCompare(t *testing.T) {
	cell := proto.Cell{GPU: gpu, Driver: driver, SeqLen: 64}
	key := registry.Key{Origin: proto.OriginSimulated, Cell: cell.ID()}
	id := func(n string) proto.TaskID { return proto.TaskID("s-" + string(cell.ID()) + "-" + n) }
	rec := &registry.Record{Key: key, Cell: cell}
	for _, n := range []string{"4", "3"} {
		rec.Open = append(rec.Open, registry.OpenTask{Task: proto.Task{ID: id(n)}})
	}
	v := registry.View{Records: map[registry.Key]*registry.Record{key: rec}}
	measured := proto.TaskID("m-" + string(cell.ID()) + "-1") // the same cell, another origin

	missing, stale, foreign := compare(v, map[proto.TaskID]bool{id("1"): true, id("2"): true, measured: true, "nonsense": true})
	if len(missing) != 2 || missing[0].ID != id("3") || missing[1].ID != id("4") {
		t.Errorf("missing %v", missing)
	}
	pool := proto.PoolOf(proto.OriginSimulated, gpu, driver)
	if len(stale) != 1 || !slices.Equal(stale[pool], []proto.TaskID{id("1"), id("2")}) {
		t.Errorf("stale %v", stale)
	}
	if foreign != 2 {
		t.Errorf("%d foreign tasks, want 2", foreign)
	}
	if missing, stale, _ := compare(v, map[proto.TaskID]bool{id("3"): true, id("4"): true}); len(missing)+len(stale) != 0 {
		t.Errorf("missing %v, stale %v where registry and queue agree", missing, stale)
	}
}

// TestAuditWaitsForReports: a task that was reported and acked is not in the
// queue, and not closed in the registry before its report is taken. It must not
// be run again.
func TestAuditWaitsForReports(t *testing.T) {
	f := newFleet(t)
	c, task := issueOne(t, f)
	d, err := f.queue.Next(f.ctx, task.Pool())
	if err != nil {
		t.Fatal(err)
	}
	if err := f.honest(f.ctx, d, "a"); err != nil {
		t.Fatal(err)
	}
	duty := newDuty(c)
	audit := func(republished float64) {
		t.Helper()
		if err := duty.audit(f.ctx); err != nil {
			t.Fatal(err)
		}
		f.counted(map[string]float64{"oomfleet_audit_republished_total": republished})
	}
	audit(0)
	report, err := f.queue.NextReport(f.ctx)
	if err != nil {
		t.Fatal(err)
	}
	audit(0)
	if err := report.Ack(f.ctx); err != nil { // acked and not committed: only now it is lost
		t.Fatal(err)
	}
	audit(1)
	audit(1)
}

// TestAuditRemoves: a task that is closed in the registry leaves the queue.
func TestAuditRemoves(t *testing.T) {
	f := newFleet(t)
	c, task := issueOne(t, f)
	if _, err := c.propose(f.ctx, registry.Command{TakeResult: &registry.TakeResult{Result: runOf(task, "a")}}); err != nil {
		t.Fatal(err)
	}
	if err := newDuty(c).audit(f.ctx); err != nil {
		t.Fatal(err)
	}
	if waiting, err := f.queue.Waiting(f.ctx); err != nil || len(waiting) != 0 {
		t.Errorf("waiting %v, %v", waiting, err)
	}
	f.counted(map[string]float64{"oomfleet_audit_removed_total": 1})
}

package natsq_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/oomfleet/oomfleet/internal/natsserver"
	"github.com/oomfleet/oomfleet/proto"
	"github.com/oomfleet/oomfleet/queue/natsq"
)

// TestRemoveMany: a whole pool goes at once, others and what comes later stay;
// and where a pool keeps some, exactly those.
func TestRemoveMany(t *testing.T) {
	q := open(t, natsq.Config{URL: server(t, natsserver.Config{}), MaxTasks: 100_000})
	ctx := within(t, patience)
	publish := func(driver string, from, to int) (tasks []proto.TaskID) {
		t.Helper()
		var batch []proto.Task
		for i := from; i < to; i++ {
			task := proto.Task{ID: proto.TaskID(fmt.Sprintf("m-%s%d-1", driver, i)), Protocol: proto.Version, Fence: 1, Kind: proto.TaskRecord, Origin: proto.OriginMeasured,
				CellID: proto.CellID(fmt.Sprint(driver, i)), Cell: proto.Cell{GPU: "x", Driver: driver, SeqLen: i + 1, Batch: 1}, TimeoutSeconds: 1}
			batch, tasks = append(batch, task), append(tasks, task.ID)
			if len(batch) == 500 || i == to-1 {
				if _, err := q.Publish(ctx, batch); err != nil {
					t.Fatal(err)
				}
				batch = nil
			}
		}
		return tasks
	}
	waiting := func() []proto.TaskID {
		t.Helper()
		ids, err := q.Waiting(ctx)
		if err != nil {
			t.Fatal(err)
		}
		return slices.Sorted(maps.Keys(ids))
	}
	other := publish("b", 0, 3)
	many := publish("a", 0, 10_000)
	begin := time.Now()
	if err := q.Remove(ctx, proto.PoolOf(proto.OriginMeasured, "x", "a"), many); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d tasks removed in %s", len(many), time.Since(begin))
	if left := waiting(); !slices.Equal(left, other) {
		t.Fatalf("%d are left, want %v", len(left), other)
	}
	again := publish("a", 0, 200)
	if err := q.Remove(ctx, proto.PoolOf(proto.OriginMeasured, "x", "a"), append(slices.Clone(again[:150]), "m-unknown-1")); err != nil {
		t.Fatal(err)
	}
	if left, want := waiting(), slices.Sorted(slices.Values(append(slices.Clone(again[150:]), other...))); !slices.Equal(left, want) {
		t.Errorf("%d are left, want %d", len(left), len(want))
	}
}

package natsq_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/oomfleet/oomfleet/internal/natsserver"
	"github.com/oomfleet/oomfleet/proto"
	"github.com/oomfleet/oomfleet/queue"
	"github.com/oomfleet/oomfleet/queue/natsq"
	"github.com/oomfleet/oomfleet/queue/queuetest"
)

// TestMoreThanOnePage: the server lists 100,000 subjects at a time, and Waiting
// must see the rest too. The tasks go in as atomic batches, synced.
func TestMoreThanOnePage(t *testing.T) {
	ctx := within(t, 3*patience) // a hundred thousand tasks
	url := server(t, natsserver.Config{})
	q := open(t, natsq.Config{URL: url, MaxTasks: 200_000})
	const count = 100_500
	task := queuetest.NewTask("1", 1, 7)
	tasks := make([]proto.Task, count)
	for i := range tasks {
		tasks[i] = task
		tasks[i].ID = proto.TaskID(fmt.Sprintf("s-%s-%d", task.CellID, i))
	}
	began := time.Now()
	for rest := tasks; len(rest) > 0; { // again, where a busy server took too long for one batch
		n, err := q.Publish(ctx, rest)
		if rest = rest[n:]; err != nil && ctx.Err() != nil {
			t.Fatalf("Publish: %d are left, %v", len(rest), err)
		}
	}
	t.Logf("%.0f tasks/s", count/time.Since(began).Seconds())
	ids, err := q.Waiting(ctx)
	if err != nil || len(ids) != count {
		t.Fatalf("Waiting: %d, %v, want %d", len(ids), err, count)
	}
	for _, i := range []int{0, 99_999, 100_000, count - 1} {
		if !ids[tasks[i].ID] {
			t.Errorf("task %d is not among them", i)
		}
	}
	began = time.Now()
	if n, err := q.Publish(ctx, tasks[:2000]); err != nil || n != 2000 {
		t.Fatalf("Publish again: %d, %v", n, err)
	}
	t.Logf("2000 known tasks again in %s", time.Since(began).Round(time.Millisecond))
	if st, err := q.Stats(ctx); err != nil || st.Tasks != count {
		t.Fatalf("Stats: %+v, %v, want %d tasks", st, err, count)
	}
}

// TestPayloadLimit, at the server's own default: what just fits travels,
// one byte more is refused with the limit's name and without a retry.
func TestPayloadLimit(t *testing.T) {
	ctx := within(t, patience)
	q := open(t, natsq.Config{URL: server(t, natsserver.Config{})})
	r := queuetest.NewResult(queuetest.NewTask("1", 1, 7), "agent-1")
	fits := func(size int) error {
		tail := make([]byte, size)
		for i := range tail {
			tail[i] = 'x'
		}
		r.Fence++ // not the same report again
		r.Evidence.StderrTail = string(tail)
		return q.Report(ctx, r)
	}
	least, most := 1<<19, 1<<20
	for most-least > 1 {
		mid := (least + most) / 2
		switch err := fits(mid); {
		case err == nil:
			least = mid
		case errors.Is(err, queue.ErrTooLarge):
			most = mid
		default:
			t.Fatal(err)
		}
	}
	if least < 1<<20-4096 {
		t.Errorf("the largest tail is %d bytes, far below the limit of %d", least, 1<<20)
	}
}

func TestStats(t *testing.T) {
	ctx := within(t, patience)
	q := open(t, natsq.Config{URL: server(t, natsserver.Config{}), MaxTasks: 500})
	tasks := queuetest.Tasks("1", 5)
	if _, err := q.Publish(ctx, tasks); err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		d, err := q.Next(ctx, tasks[0].Pool())
		if err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			if err := d.Retry(ctx, time.Hour); err != nil {
				t.Fatal(err)
			}
		}
		if err := q.Report(ctx, queuetest.NewResult(tasks[i], "agent-1")); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := q.NextReport(ctx); err != nil {
		t.Fatal(err)
	}
	got, err := q.Stats(ctx)
	want := natsq.Stats{Tasks: 5, MaxTasks: 500, AckPending: 3, MaxAckPending: 500, Reports: 3, ReportsPending: 1}
	if err != nil || got != want {
		t.Fatalf("Stats: %+v, %v, want %+v", got, err, want)
	}
}

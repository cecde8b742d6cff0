package natsq_test

import (
	"regexp"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/oomfleet/oomfleet/internal/natsserver"
	"github.com/oomfleet/oomfleet/proto"
	"github.com/oomfleet/oomfleet/queue/natsq"
	"github.com/oomfleet/oomfleet/queue/queuetest"
)

// TestSubjectsHoldNoValues: whatever a driver, a card or a variable is called, a
// task lies under four plain tokens, comes to the agents of its stack, and so
// does its result.
func TestSubjectsHoldNoValues(t *testing.T) {
	ctx := within(t, patience)
	url := server(t, natsserver.Config{})
	q := open(t, natsq.Config{URL: url})
	for i, odd := range []string{"580.105.08", "a b", "tab\there", "*", ">", "oomfleet.task.>", "ümläut", "", "x\ny"} {
		task := queuetest.NewTask(odd, i, proto.Fence(7+i))
		task.Cell.GPU, task.Cell.Env = "NVIDIA "+odd, map[string]string{"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True," + odd}
		task.CellID = task.Cell.ID()
		if n, err := q.Publish(ctx, []proto.Task{task}); err != nil || n != 1 {
			t.Fatalf("%q: %d, %v", odd, n, err)
		}
		d, err := q.Next(ctx, task.Pool())
		if err != nil {
			t.Fatalf("%q: %v", odd, err)
		}
		if got, err := d.Task(); err != nil || got.ID != task.ID || got.Cell.Driver != odd {
			t.Errorf("%q came as %+v, %v", odd, got, err)
		}
		if err := q.Report(ctx, queuetest.NewResult(task, "agent-1")); err != nil {
			t.Errorf("report of %q: %v", odd, err)
		}
	}
	plain := regexp.MustCompile(`^oomfleet\.(task|result)\.[a-z0-9]+\.[a-z0-9-]+$`)
	for _, name := range []string{natsq.TasksStream, natsq.ResultsStream} {
		stream, err := operator(t, url).Stream(ctx, name)
		if err != nil {
			t.Fatal(err)
		}
		info, err := stream.Info(ctx, jetstream.WithSubjectFilter(">"))
		if err != nil {
			t.Fatal(err)
		}
		if len(info.State.Subjects) == 0 {
			t.Errorf("%s is empty", name)
		}
		for subject := range info.State.Subjects {
			if !plain.MatchString(subject) {
				t.Errorf("%s holds %q", name, subject)
			}
		}
	}
}

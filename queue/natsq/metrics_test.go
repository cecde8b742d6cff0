package natsq_test

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/oomfleet/oomfleet/internal/natsserver"
	"github.com/oomfleet/oomfleet/queue/natsq"
	"github.com/oomfleet/oomfleet/queue/queuetest"
)

// TestQueueMetrics: a coordinator's own credential reads how full the queue is,
// the bound of unacked tasks with it; without a server there are no numbers
// rather than zeros.
func TestQueueMetrics(t *testing.T) {
	ctx := within(t, patience)
	g := guarded(t, natsserver.Config{}, map[string]natsq.Grant{"agent": {}})
	cfg := g.as("coordinator")
	cfg.MaxTasks = 500
	q := open(t, cfg)
	reg := prometheus.NewRegistry()
	if err := reg.Register(q.Collector()); err != nil {
		t.Fatal(err)
	}
	read := func() map[string]float64 {
		t.Helper()
		families, err := reg.Gather()
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]float64{}
		for _, f := range families {
			if len(f.GetMetric()) != 1 || len(f.GetMetric()[0].GetLabel()) != 0 {
				t.Errorf("%s has %d series", f.GetName(), len(f.GetMetric()))
			}
			got[f.GetName()] = f.GetMetric()[0].GetGauge().GetValue()
		}
		return got
	}
	tasks := queuetest.Tasks("1", 5)
	if _, err := q.Publish(ctx, tasks); err != nil {
		t.Fatal(err)
	}
	if _, err := q.Next(ctx, tasks[0].Pool()); err != nil {
		t.Fatal(err)
	}
	if err := q.Report(ctx, queuetest.NewResult(tasks[0], "agent-1")); err != nil {
		t.Fatal(err)
	}
	got := read()
	for len(got) == 0 && ctx.Err() == nil { // a busy server may be late for one reading
		got = read()
	}
	for name, want := range map[string]float64{"tasks": 5, "tasks_max": 500, "tasks_unacked": 1, "pool_unacked_max": 500, "reports": 1, "reports_unacked": 0} {
		if value, ok := got["oomfleet_queue_"+name]; !ok || value != want {
			t.Errorf("%s is %v (there: %v), want %v", name, value, ok, want)
		}
	}
	if err := q.Close(); err != nil {
		t.Fatal(err)
	}
	if got := read(); len(got) != 0 {
		t.Errorf("without a connection: %v", got)
	}
}

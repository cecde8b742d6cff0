package main

import (
	"context"
	"errors"
	"maps"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/oomfleet/oomfleet/queue/natsq"
)

// TestQueueMetrics: six numbers, the bound of unacked tasks among them; without an
// answer of the server there are none rather than zeros, and that is what is said.
func TestQueueMetrics(t *testing.T) {
	answer := error(nil)
	reg := prometheus.NewRegistry()
	err := reg.Register(newFullness(t.Context(), func(ctx context.Context) (natsq.Stats, error) {
		if _, bounded := ctx.Deadline(); !bounded {
			t.Error("a scrape may wait for ever")
		}
		return natsq.Stats{Tasks: 5, MaxTasks: 500, AckPending: 3, MaxAckPending: 400, Reports: 2}, answer
	}))
	if err != nil {
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
	want := map[string]float64{"oomfleet_queue_tasks": 5, "oomfleet_queue_tasks_max": 500, "oomfleet_queue_tasks_unacked": 3,
		"oomfleet_queue_pool_unacked_max": 400, "oomfleet_queue_reports": 2, "oomfleet_queue_reports_unacked": 0, "oomfleet_queue_answers": 1}
	if got := read(); !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	answer = errors.New("no server")
	if got := read(); !maps.Equal(got, map[string]float64{"oomfleet_queue_answers": 0}) {
		t.Errorf("without an answer: %v", got)
	}
}

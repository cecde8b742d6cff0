package natsq

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// scrapeLimit bounds what a scrape waits for the server.
const scrapeLimit = 2 * time.Second

// Collector returns how full the queue is as gauges, which ask the server when
// they are read. Without an answer they are absent, and never 0.
func (q *Queue) Collector() prometheus.Collector {
	desc := func(name, help string) *prometheus.Desc {
		return prometheus.NewDesc("oomfleet_queue_"+name, help, nil, nil)
	}
	return fullness{queue: q, gauges: []gauge{
		{desc("tasks", "Tasks in the queue, delivered or not."), func(s Stats) int64 { return s.Tasks }},
		{desc("tasks_max", "Tasks that the queue takes; more wait in the registry."), func(s Stats) int64 { return s.MaxTasks }},
		{desc("tasks_unacked", "Tasks in the queue that an agent has, or that wait for a retry."), func(s Stats) int64 { return s.AckPending }},
		{desc("pool_unacked_max", "Tasks of one pool that may be unacked; at that many its agents get none. The smallest of all pools, 0 without one."),
			func(s Stats) int64 { return s.MaxAckPending }},
		{desc("reports", "Results that no leader has taken in for good."), func(s Stats) int64 { return s.Reports }},
		{desc("reports_unacked", "Results that are in the leader's hands."), func(s Stats) int64 { return s.ReportsPending }},
	}}
}

type fullness struct {
	queue  *Queue
	gauges []gauge
}

type gauge struct {
	desc  *prometheus.Desc
	value func(Stats) int64
}

// Describe implements prometheus.Collector.
func (f fullness) Describe(to chan<- *prometheus.Desc) {
	for _, g := range f.gauges {
		to <- g.desc
	}
}

// Collect implements prometheus.Collector.
func (f fullness) Collect(to chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), scrapeLimit)
	defer cancel()
	stats, err := f.queue.Stats(ctx)
	if err != nil {
		f.queue.cfg.Log.Debug("queue metrics are left out", "error", err)
		return
	}
	for _, g := range f.gauges {
		to <- prometheus.MustNewConstMetric(g.desc, prometheus.GaugeValue, float64(g.value(stats)))
	}
}

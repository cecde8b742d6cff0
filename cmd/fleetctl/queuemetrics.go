package main

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/oomfleet/oomfleet/queue/natsq"
)

// scrapeLimit bounds what a scrape waits for the queue's server.
const scrapeLimit = 2 * time.Second

// fullness are gauges of how full the queue is, which are asked for when they are
// read. Without an answer they are absent, and never 0, but for the one that says
// whether there was an answer.
type fullness struct {
	stats   func() (natsq.Stats, error)
	answers *prometheus.Desc
	gauges  []queueGauge
}

type queueGauge struct {
	desc  *prometheus.Desc
	value func(natsq.Stats) int64
}

// newFullness returns the gauges of a queue; they are absent once ctx has ended.
func newFullness(ctx context.Context, stats func(context.Context) (natsq.Stats, error)) fullness {
	desc := func(name, help string) *prometheus.Desc {
		return prometheus.NewDesc("oomfleet_queue_"+name, help, nil, nil)
	}
	ask := func() (natsq.Stats, error) {
		ctx, cancel := context.WithTimeout(ctx, scrapeLimit)
		defer cancel()
		return stats(ctx)
	}
	return fullness{ask, desc("answers", "1 if the queue's server answered this coordinator just now, 0 if not."), []queueGauge{
		{desc("tasks", "Tasks in the queue, delivered or not."), func(s natsq.Stats) int64 { return s.Tasks }},
		{desc("tasks_max", "Tasks that the queue takes; more wait in the registry."), func(s natsq.Stats) int64 { return s.MaxTasks }},
		{desc("tasks_unacked", "Tasks in the queue that an agent has, or that wait for a retry."), func(s natsq.Stats) int64 { return s.AckPending }},
		{desc("pool_unacked_max", "Tasks of one pool that may be unacked; at that many its agents get none. The smallest of all pools, 0 without one."),
			func(s natsq.Stats) int64 { return s.MaxAckPending }},
		{desc("reports", "Results that no leader has taken in for good."), func(s natsq.Stats) int64 { return s.Reports }},
		{desc("reports_unacked", "Results that are in the leader's hands."), func(s natsq.Stats) int64 { return s.ReportsPending }},
	}}
}

// Describe implements prometheus.Collector.
func (f fullness) Describe(to chan<- *prometheus.Desc) {
	to <- f.answers
	for _, g := range f.gauges {
		to <- g.desc
	}
}

// Collect implements prometheus.Collector.
func (f fullness) Collect(to chan<- prometheus.Metric) {
	stats, err := f.stats()
	if err != nil {
		to <- prometheus.MustNewConstMetric(f.answers, prometheus.GaugeValue, 0)
		return
	}
	to <- prometheus.MustNewConstMetric(f.answers, prometheus.GaugeValue, 1)
	for _, g := range f.gauges {
		to <- prometheus.MustNewConstMetric(g.desc, prometheus.GaugeValue, float64(g.value(stats)))
	}
}

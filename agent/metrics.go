package agent

import (
	"errors"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/oomfleet/oomfleet/proto"
)

// metrics are an agent's numbers. Labels come from closed sets.
type metrics struct {
	runs             *prometheus.CounterVec
	seconds          *prometheus.HistogramVec
	peak             prometheus.Histogram
	faults           prometheus.Counter
	leaseFailures    prometheus.Counter
	deliveryFailures prometheus.Counter
	cancelled        prometheus.Counter
	outbox           prometheus.Gauge
}

// newMetrics makes and registers the metrics; a nil registerer keeps them to
// the agent.
func newMetrics(reg prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		runs: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "oomfleet_agent_runs_total",
			Help: "Runs that ended, by kind and outcome."}, []string{"kind", "outcome"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "oomfleet_agent_run_seconds",
			Help: "Seconds that a run occupied the card.", Buckets: []float64{1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 14400}}, []string{"kind"}),
		peak: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "oomfleet_agent_peak_reserved_bytes",
			Help: "Peak reserved bytes of recordings.", Buckets: prometheus.ExponentialBuckets(1<<30, 2, 9)}),
		faults: prometheus.NewCounter(prometheus.CounterOpts{Name: "oomfleet_agent_faults_total",
			Help: "Times the agent put itself into quarantine."}),
		leaseFailures: prometheus.NewCounter(prometheus.CounterOpts{Name: "oomfleet_agent_lease_failures_total",
			Help: "Lease renewals that the queue did not take."}),
		deliveryFailures: prometheus.NewCounter(prometheus.CounterOpts{Name: "oomfleet_agent_delivery_failures_total",
			Help: "Attempts to deliver a finished run that failed."}),
		cancelled: prometheus.NewCounter(prometheus.CounterOpts{Name: "oomfleet_agent_runs_cancelled_total",
			Help: "Runs that were ended because their task was cancelled."}),
		outbox: prometheus.NewGauge(prometheus.GaugeOpts{Name: "oomfleet_agent_outbox_results",
			Help: "Finished runs that wait on disk to be delivered."}),
	}
	if reg == nil {
		return m, nil
	}
	var errs []error
	for _, c := range []prometheus.Collector{m.runs, m.seconds, m.peak, m.faults, m.leaseFailures, m.deliveryFailures, m.cancelled, m.outbox} {
		errs = append(errs, reg.Register(c))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("register the agent's metrics: %w", err)
	}
	return m, nil
}

func (m *metrics) finished(task proto.Task, r proto.Result) {
	m.runs.WithLabelValues(string(task.Kind), string(r.Outcome)).Inc()
	if s := r.Evidence.Seconds; s > 0 {
		m.seconds.WithLabelValues(string(task.Kind)).Observe(s)
	}
	if p := r.Evidence.Meters.PeakReserved; p != nil && task.Kind == proto.TaskRecord {
		m.peak.Observe(float64(*p))
	}
}

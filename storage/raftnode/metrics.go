package raftnode

import (
	"errors"
	"fmt"
	"time"

	"github.com/oomfleet/oomfleet/storage/registry"
	"github.com/prometheus/client_golang/prometheus"
)

// metrics are the node's numbers. The gauges are read when they are asked for.
type metrics struct {
	registerer prometheus.Registerer // nil for none
	node       *Node
	gauges     map[*prometheus.Desc]func(Stats) float64
	proposals  *prometheus.HistogramVec
}

func newMetrics(n *Node) (*metrics, error) {
	m := &metrics{registerer: n.cfg.Registerer, node: n, gauges: map[*prometheus.Desc]func(Stats) float64{}}
	gauge := func(name, help string, value func(Stats) float64) {
		m.gauges[prometheus.NewDesc("oomfleet_raft_"+name, help, nil, nil)] = value
	}
	gauge("leader", "1 while this node leads.", func(s Stats) float64 {
		if s.Leading {
			return 1
		}
		return 0
	})
	gauge("term", "Current term.", func(s Stats) float64 { return float64(s.Term) })
	gauge("applied_index", "Last entry applied to the registry.", func(s Stats) float64 { return float64(s.AppliedIndex) })
	gauge("commit_index", "Last entry known to be committed.", func(s Stats) float64 { return float64(s.CommitIndex) })
	gauge("snapshot_index", "Last entry in a snapshot.", func(s Stats) float64 { return float64(s.SnapshotIndex) })
	gauge("log_bytes", "Size of the log on disk.", func(s Stats) float64 { return float64(s.LogBytes) })
	gauge("snapshot_bytes", "Size of the snapshots on disk.", func(s Stats) float64 { return float64(s.SnapshotBytes) })
	gauge("unwritable", "1 while this node goes on without what it could not write beside its log, most likely on a full disk; cluster status says what.",
		func(s Stats) float64 {
			if s.Trouble != "" {
				return 1
			}
			return 0
		})
	gauge("members", "Members of the cluster.", func(s Stats) float64 { return float64(len(s.Servers)) })
	gauge("members_silent", "Members that do not answer this leader, or this node where it knows no leader; 0 on followers.", func(s Stats) float64 { return float64(s.Group.Silent) })
	gauge("states_differing", "Members whose state differs from this leader's at the same entry: an alarm above 0.",
		func(s Stats) float64 { return float64(s.Group.Differing) })
	gauge("states_compared", "States that this node has compared with its own while it led.", func(s Stats) float64 { return float64(s.Group.Compared) })
	gauge("members_promoted", "Members that this node has given a vote.", func(s Stats) float64 { return float64(s.Group.Promoted) })
	gauge("members_removed", "Dead members that this node has removed.", func(s Stats) float64 { return float64(s.Group.Removed) })
	m.proposals = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "oomfleet_raft_propose_seconds",
		Help:    "Time of a proposal, by result: ok, not_leader, uncertain or error.",
		Buckets: prometheus.ExponentialBuckets(0.0005, 4, 8),
	}, []string{"result"})
	if m.registerer == nil {
		return m, nil
	}
	if err := m.registerer.Register(m); err != nil {
		return nil, fmt.Errorf("register metrics of raft: %w", err)
	}
	return m, nil
}

func (m *metrics) unregister() {
	if m != nil && m.registerer != nil {
		m.registerer.Unregister(m)
	}
}

func (m *metrics) observe(took time.Duration, err error) {
	result := "error"
	switch {
	case err == nil:
		result = "ok"
	case errors.Is(err, registry.ErrNotLeader):
		result = "not_leader"
	case errors.Is(err, registry.ErrUncertain):
		result = "uncertain"
	}
	m.proposals.WithLabelValues(result).Observe(took.Seconds())
}

// Describe lists the metrics.
func (m *metrics) Describe(to chan<- *prometheus.Desc) {
	for desc := range m.gauges {
		to <- desc
	}
	m.proposals.Describe(to)
}

// Collect reads them.
func (m *metrics) Collect(to chan<- prometheus.Metric) {
	stats := m.node.Stats()
	for desc, value := range m.gauges {
		to <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value(stats))
	}
	m.proposals.Collect(to)
}

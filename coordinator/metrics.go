package coordinator

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/oomfleet/oomfleet/proto"
	"github.com/oomfleet/oomfleet/storage/trace"
)

// What became of a replay, a build and a fit: the values of their labels.
const (
	buildMade       = "made"
	buildNeedMore   = "need_more"
	buildRefused    = "refused"
	buildFailed     = "failed"
	replayPredicted = "predicted"
	replayRefused   = "refused"
	replayFailed    = "failed"
	fitCommitted    = "committed"
	fitRefused      = "refused"
	rolloutQueued   = "queued"
	rolloutHeld     = "held_back"
	rolloutRefused  = "refused"
	collectDone     = "done"
	collectDry      = "dry_run"
	collectRefused  = "refused"
	collectFailed   = "failed"
)

// metrics are what this node counts itself; the rest is read off its replica
// whenever it is asked (replica).
type metrics struct {
	issued  *prometheus.CounterVec
	results *prometheus.CounterVec
	refusedReports
	replays       *prometheus.CounterVec
	replaySeconds prometheus.Histogram
	builds        *prometheus.CounterVec
	fits          *prometheus.CounterVec
	queueCounts
	rollouts    *prometheus.CounterVec
	comparisons *prometheus.CounterVec
	panics      *panics
	collecting
}

// queueCounts are what the leader did about the queue.
type queueCounts struct {
	republished, removed, stopped prometheus.Counter
	held                          prometheus.Gauge
}

// collecting counts what became of the trace store's garbage.
type collecting struct {
	collections, removedObjects *prometheus.CounterVec
	removedBytes                prometheus.Counter
}

// refusedReports count the results that changed nothing.
type refusedReports struct {
	late, unreadable, foreign prometheus.Counter
}

// newMetrics builds the metrics and registers them; nil registers nowhere.
func newMetrics(to prometheus.Registerer, reg Registry, agents func() []proto.AgentInfo, trouble *troubles) (*metrics, error) {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Namespace: "oomfleet", Name: name, Help: help})
	}
	vec := func(name, help, label string, values ...string) *prometheus.CounterVec {
		v := prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "oomfleet", Name: name, Help: help}, []string{label})
		for _, value := range values { // the set is closed: all series exist from the start
			v.WithLabelValues(value)
		}
		return v
	}
	var outcomes []string
	for _, o := range proto.Outcomes() {
		outcomes = append(outcomes, string(o))
	}
	var kinds []string
	for _, k := range trace.ObjectKinds() {
		kinds = append(kinds, string(k))
	}
	m := &metrics{
		issued: vec("tasks_issued_total", "Tasks issued by this node as the leader, by kind.", "kind",
			string(proto.TaskRecord), string(proto.TaskProbe)),
		results: vec("results_total", "Results accepted by this node as the leader, by outcome.", "outcome", outcomes...),
		refusedReports: refusedReports{
			late:       counter("results_late_total", "Results that matched no open task: doubled, cancelled, or under an old fence."),
			unreadable: counter("reports_dropped_total", "Reports that could not be decoded or were larger than the registry takes."),
			foreign:    counter("results_foreign_total", "Results whose sender may not speak for that agent, or is of another stack than the task."),
		},
		replays: vec("replays_total", "Recordings and programs replayed by this node, by what came of it.", "result",
			replayPredicted, replayRefused, replayFailed),
		replaySeconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Namespace: "oomfleet", Name: "replay_seconds", Help: "Time to read and sweep one recording or program.",
			Buckets: []float64{0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300}, NativeHistogramBucketFactor: 1.1,
		}),
		builds: vec("builds_total", "Families whose program was looked for in their recordings by this node, by what came of it.", "result",
			buildMade, buildNeedMore, buildRefused, buildFailed),
		fits: vec("fits_total", "Groups fitted by this node, by what came of it.", "result", fitCommitted, fitRefused),
		queueCounts: queueCounts{
			republished: counter("audit_republished_total", "Open tasks that were not in the queue and that the audit published again."),
			removed:     counter("audit_removed_total", "Closed tasks that the audit took out of the queue."),
			stopped:     counter("tasks_stopped_total", "Tasks that agents were told not to run any more, as they were cancelled."),
			held: prometheus.NewGauge(prometheus.GaugeOpts{Namespace: "oomfleet", Name: "tasks_held",
				Help: "Open tasks that this node as the leader keeps out of the queue until more of their pool's are done."}),
		},
		rollouts: vec("rollouts_total", "Stacks that a standing order had not covered, by what this node did as the leader.", "result",
			rolloutQueued, rolloutHeld, rolloutRefused),
		comparisons: vec("comparisons_total", "Sweeps compared with the one that they replace by this node as the leader, by verdict.", "verdict",
			verdictLabels()...),
		panics: &panics{CounterVec: vec("job_panics_total", "Pieces of the leader's work that panicked and were given up: a mistake of the program, worth a report.", "job",
			pieces()...)},
		collecting: collecting{
			collections: vec("collections_total", "Looks for garbage in the trace store by this node as the leader, by what came of it.", "result",
				collectDone, collectDry, collectRefused, collectFailed),
			removedObjects: vec("collected_objects_total", "Objects that this node removed from the trace store, by kind.", "kind", kinds...),
			removedBytes:   counter("collected_bytes_total", "Bytes that this node removed from the trace store."),
		},
	}
	if to == nil {
		return m, nil
	}
	for _, c := range []prometheus.Collector{
		m.issued, m.results, m.late, m.unreadable, m.foreign, m.replays, m.replaySeconds, m.builds, m.fits, m.republished, m.removed, m.stopped, m.held, m.rollouts, m.comparisons, m.panics, m.collections, m.removedObjects, m.removedBytes, newReplica(reg), newPresent(agents), trouble,
	} {
		if err := to.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// replica reads gauges off the node's replica when they are collected, so that
// they are true on every node and after every restart.
type replica struct {
	registry                             Registry
	cells, open, index, leader, verdicts *prometheus.Desc
}

func newReplica(reg Registry) *replica {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("oomfleet_"+name, help, labels, nil)
	}
	return &replica{
		registry: reg,
		cells:    desc("cells", "Cells in the registry, by origin and state.", "origin", "state"),
		open:     desc("tasks_open", "Tasks that were issued and have no result yet, by origin.", "origin"),
		index:    desc("applied_index", "Raft index up to which this node has applied the log."),
		leader:   desc("leader", "1 while this node leads, else 0."),
		verdicts: desc("sweeps_compared", "Sweeps that were compared with the one that they replace, by origin and verdict.", "origin", "verdict"),
	}
}

// Describe implements prometheus.Collector.
func (r *replica) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{r.cells, r.open, r.index, r.leader, r.verdicts} {
		to <- d
	}
}

// Collect implements prometheus.Collector.
func (r *replica) Collect(to chan<- prometheus.Metric) {
	v := r.registry.View()
	type series struct {
		origin proto.Origin
		state  proto.CellState
	}
	cells := make(map[series]int)
	open := make(map[proto.Origin]int)
	for _, rec := range v.Records {
		cells[series{rec.Key.Origin, rec.State()}]++
		open[rec.Key.Origin] += len(rec.Open)
	}
	gauge := func(d *prometheus.Desc, value float64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
	}
	for s, n := range cells {
		gauge(r.cells, float64(n), string(s.origin), string(s.state))
	}
	for origin, n := range open {
		gauge(r.open, float64(n), string(origin))
	}
	for s, n := range countVerdicts(v) {
		gauge(r.verdicts, float64(n), string(s.origin), s.verdict)
	}
	gauge(r.index, float64(v.AppliedIndex))
	leading := 0.0
	if yes, _ := r.registry.Leadership(); yes {
		leading = 1
	}
	gauge(r.leader, leading)
}

// present shows the agents that the leader's last audit found announced: when
// an announcement ends, so do its series. Followers show none.
type present struct {
	agents       func() []proto.AgentInfo
	info, states *prometheus.Desc
}

func newPresent(agents func() []proto.AgentInfo) *present {
	return &present{agents,
		prometheus.NewDesc("oomfleet_agent_info", "1 for each agent that is announced, by its card, stack and state; on the leader.",
			[]string{"agent", "origin", "gpu", "driver", "state"}, nil),
		prometheus.NewDesc("oomfleet_agents", "Agents that are announced, by origin and state; on the leader.", []string{"origin", "state"}, nil)}
}

// Describe implements prometheus.Collector.
func (p *present) Describe(to chan<- *prometheus.Desc) {
	to <- p.info
	to <- p.states
}

// Collect implements prometheus.Collector.
func (p *present) Collect(to chan<- prometheus.Metric) {
	type series struct {
		origin proto.Origin
		state  proto.AgentState
	}
	counts := make(map[series]int)
	for _, a := range p.agents() {
		a.State = knownState(a.State)
		counts[series{a.Origin, a.State}]++
		to <- prometheus.MustNewConstMetric(p.info, prometheus.GaugeValue, 1, string(a.ID), string(a.Origin), a.Stack.GPU, a.Stack.Driver, string(a.State))
	}
	for s, n := range counts {
		to <- prometheus.MustNewConstMetric(p.states, prometheus.GaugeValue, float64(n), string(s.origin), string(s.state))
	}
}

// knownState keeps the set of a label's values closed.
func knownState(s proto.AgentState) proto.AgentState {
	switch s {
	case proto.AgentIdle, proto.AgentBusy, proto.AgentQuarantined, proto.AgentDraining:
		return s
	}
	return "other" // of a newer build
}

package registry

import (
	"slices"
	"time"

	"github.com/oomfleet/oomfleet/proto"
)

// LateLimit is how many late results of a cell are kept; all are counted.
const LateLimit = 16

// Lateness is what came for a cell without a matching open task: doubled
// deliveries, results of cancelled tasks, results under an old fence. None of it
// is evidence for anything.
type Lateness struct {
	// Late counts all of them.
	Late int `json:"late,omitempty"`
	// LateRuns are the newest, in log order, without those that only repeat a
	// run which was taken.
	LateRuns []LateRun `json:"late_runs,omitempty"`
}

// LateRun is one result that came too late, and why it was none any more.
type LateRun struct {
	Task        proto.TaskID    `json:"task"`
	Fence       proto.Fence     `json:"fence"`
	Kind        proto.TaskKind  `json:"kind"`
	Quota       proto.Bytes     `json:"quota_bytes,omitempty"`
	Outcome     proto.Outcome   `json:"outcome"`
	Agent       proto.AgentID   `json:"agent"`
	Why         string          `json:"why"`
	Trace       *proto.TraceRef `json:"trace,omitempty"`
	AppliedTime time.Time       `json:"applied_time"`
	Index       uint64          `json:"index"`
}

// lateLocked keeps a late result with its record. LastIndex stays: doubled
// deliveries must not make a plan stale.
func (m *Machine) lateLocked(record *Record, r proto.Result, why string) {
	next := *record
	next.Late++
	repeated := slices.ContainsFunc(record.Runs, func(run Run) bool { return run.Task == r.Task && run.Agent == r.Agent }) ||
		slices.ContainsFunc(record.LateRuns, func(l LateRun) bool { return l.Task == r.Task && l.Fence == r.Fence && l.Agent == r.Agent })
	if !repeated {
		late := append(slices.Clip(record.LateRuns), LateRun{Task: r.Task, Fence: r.Fence, Kind: r.Kind, Quota: r.Quota, Outcome: r.Outcome,
			Agent: r.Agent, Why: why, Trace: r.Evidence.Trace, AppliedTime: m.appliedTime, Index: m.appliedIndex})
		next.LateRuns = slices.Clone(late[max(0, len(late)-LateLimit):])
	}
	m.records.put(next.Key, &next)
}

package registry

import (
	"fmt"
	"slices"

	"github.com/oomfleet/oomfleet/proto"
)

func (m *Machine) issueLocked(cmd *Issue) Reply {
	for _, request := range cmd.Requests {
		if why := refuseRequest(request); why != "" {
			return Reply{Refused: why}
		}
	}
	var reply Reply
	for _, request := range cmd.Requests {
		record := m.records.m[request.Key]
		// A record changed by this same entry is one that got a task already.
		if record == nil || !issuable(record, request) || record.LastIndex > cmd.Seen && record.LastIndex != m.appliedIndex ||
			slices.ContainsFunc(record.Open, func(o OpenTask) bool { return o.Task.Kind == request.Kind && o.Task.Quota == request.Quota }) {
			continue
		}
		task := newTask(record, request, proto.Fence(m.appliedIndex))
		m.updateLocked(record, func(r *Record) {
			r.NextRun++
			r.Open = append(slices.Clip(r.Open), OpenTask{Task: task, Issued: m.appliedTime})
		})
		reply.Issued = append(reply.Issued, task)
	}
	reply.Accepted = len(reply.Issued) > 0
	return reply
}

// refuseRequest names a request that no agent could carry out; leaving it out
// would make the plan ask for it again for ever.
func refuseRequest(r IssueRequest) string {
	switch {
	case r.Repeat && r.Kind != proto.TaskRecord:
		return fmt.Sprintf("request for cell %s: only a recording is repeated", r.Key.Cell)
	case r.Expect != "" && (r.Kind != proto.TaskProbe || r.Expect != proto.ExpectPass && r.Expect != proto.ExpectFail):
		return fmt.Sprintf("request for cell %s: a %s that is expected to %q", r.Key.Cell, r.Kind, string(r.Expect))
	case r.TimeoutSeconds <= 0:
		return fmt.Sprintf("request for cell %s has no timeout", r.Key.Cell)
	case r.Kind == proto.TaskRecord && r.Quota == 0, r.Kind == proto.TaskProbe && r.Quota > 0:
		return ""
	}
	return fmt.Sprintf("request for cell %s: kind %q with a quota of %d bytes", r.Key.Cell, r.Kind, int64(r.Quota))
}

func newTask(record *Record, request IssueRequest, fence proto.Fence) proto.Task {
	attempt := 1
	for _, run := range record.Runs {
		if run.Kind == request.Kind && run.Quota == request.Quota {
			attempt++
		}
	}
	return proto.Task{
		ID:       taskID(record.Key, record.NextRun),
		Protocol: proto.Version, Fence: fence, Attempt: attempt,
		Kind: request.Kind, Origin: record.Key.Origin, CellID: record.Key.Cell, Cell: record.Cell,
		Quota: request.Quota, TimeoutSeconds: request.TimeoutSeconds, Expect: request.Expect, ExpectPeak: request.ExpectPeak,
	}
}

// taskID is <m|s>-<cell id>-<running number>.
func taskID(key Key, number int) proto.TaskID {
	return proto.TaskID(fmt.Sprintf("%s%s-%d", originPrefix(key.Origin), key.Cell, number))
}

// originPrefix begins the ids of an origin's tasks; imported numbers have none.
func originPrefix(o proto.Origin) string {
	switch o {
	case proto.OriginMeasured:
		return "m-"
	case proto.OriginSimulated:
		return "s-"
	case proto.OriginImported:
		return ""
	}
	panic(fmt.Sprintf("registry: origin %q has no task prefix", string(o)))
}

func (m *Machine) takeResultLocked(cmd *TakeResult) Reply {
	result := cmd.Result
	record := m.records.m[Key{Origin: result.Origin, Cell: result.CellID}]
	if record == nil {
		m.late++
		return Reply{Refused: fmt.Sprintf("there is no %s cell %q", result.Origin, result.CellID)}
	}
	at, why := matchOpen(record, result)
	if why != "" {
		m.lateLocked(record, result, why)
		return Reply{Refused: why}
	}
	m.updateLocked(record, func(r *Record) {
		r.Open = slices.Delete(slices.Clone(r.Open), at, at+1)
		if len(r.Open) == 0 {
			r.Open = nil
		}
		r.Runs = append(slices.Clip(r.Runs), Run{
			Task: result.Task, Kind: result.Kind, Quota: result.Quota, Outcome: result.Outcome, Why: result.Why,
			Agent: result.Agent, Stack: result.Stack, Card: result.Card, Meters: result.Evidence.Meters,
			Seconds: result.Evidence.Seconds, Trace: result.Evidence.Trace, AppliedTime: m.appliedTime, Index: m.appliedIndex,
		})
	})
	return Reply{Accepted: true}
}

// matchOpen finds the open task that a result answers, or says why there is
// none. Task and fence name it; the rest must agree, or the sender mixed up two
// runs. The set of outcomes is part of the command version: a build with a new
// outcome must raise it, since this one refuses what it does not know.
func matchOpen(record *Record, result proto.Result) (at int, why string) {
	at = slices.IndexFunc(record.Open, func(o OpenTask) bool { return o.Task.ID == result.Task && o.Task.Fence == result.Fence })
	if at < 0 {
		return at, fmt.Sprintf("late: no open task %s under fence %d", result.Task, result.Fence)
	}
	task := record.Open[at].Task
	switch {
	case result.Protocol != task.Protocol:
		return at, fmt.Sprintf("task %s speaks protocol %d, the result %d", task.ID, task.Protocol, result.Protocol)
	case result.Kind != task.Kind || result.Quota != task.Quota:
		return at, fmt.Sprintf("task %s is a %s at %d bytes, the result a %s at %d", task.ID, task.Kind, int64(task.Quota), result.Kind, int64(result.Quota))
	case !result.Outcome.Known():
		return at, fmt.Sprintf("task %s: outcome %q is unknown", task.ID, result.Outcome)
	}
	return at, ""
}

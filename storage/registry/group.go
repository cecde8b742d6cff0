package registry

import (
	"encoding/json"
	"fmt"

	"github.com/oomfleet/oomfleet/proto"
)

// Recording is the first uncapped recording of r that passed: its peaks and its
// stack are the cell's. It is nil until there is one.
func (r *Record) Recording() *Run {
	for i := range r.Runs {
		run := &r.Runs[i]
		if run.Kind == proto.TaskRecord && run.Quota == 0 && run.Outcome.Verdict() == proto.VerdictPass {
			return run
		}
	}
	return nil
}

// Group is what the record's numbers may be fitted together with. The versions
// of CUDA and torch come from its recording, from the first run that decided
// anything where a prediction spared it the recording, and are empty until then.
func (r *Record) Group() proto.Group {
	group := proto.Group{Workload: r.Cell.Workload, GPU: r.Cell.GPU, Driver: r.Cell.Driver, ChunkSize: r.Cell.ChunkSize, Env: r.Cell.Env}
	if stack := r.stack(); stack != nil {
		group.CUDA, group.Torch = stack.CUDA, stack.Torch
	}
	return group
}

// stack is what the record's numbers were measured on; nil until something was.
func (r *Record) stack() *proto.Stack {
	if recording := r.Recording(); recording != nil {
		return &recording.Stack
	}
	for i := range r.Runs {
		switch r.Runs[i].Outcome.Verdict() {
		case proto.VerdictPass, proto.VerdictFail:
			return &r.Runs[i].Stack
		}
	}
	return nil
}

// GroupOf is the key of the coefficients that r belongs to.
func GroupOf(r *Record) GroupKey {
	return groupKey(r.Key.Origin, r.Cell.QuotaKind, r.Group())
}

// AwaitedGroupOf is GroupOf without the versions of CUDA and torch: it is known
// before anything was run, so it tells which cells a group still waits for.
func AwaitedGroupOf(r *Record) GroupKey {
	group := r.Group()
	group.CUDA, group.Torch = "", ""
	return groupKey(r.Key.Origin, r.Cell.QuotaKind, group)
}

// KeyOf is the key of the set that coefficients belong to.
func KeyOf(c proto.Coefficients) GroupKey { return groupKey(c.Origin, c.QuotaKind, c.Group) }

// groupKey is the key for coefficients of a group.
func groupKey(origin proto.Origin, kind proto.QuotaKind, group proto.Group) GroupKey {
	if group.Env == nil {
		group.Env = map[string]string{}
	}
	return GroupKey{Origin: origin, QuotaKind: kind, Group: canonical(group)}
}

// canonical is plain data as JSON: encoding/json sorts map keys, so equal
// values give equal text.
func canonical(value any) string {
	text, err := json.Marshal(value)
	if err != nil {
		panic(fmt.Sprintf("registry: plain data always marshals once it came through the log: %v", err))
	}
	return string(text)
}

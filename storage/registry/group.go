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
// of CUDA and torch come from its recording and are empty until there is one.
func (r *Record) Group() proto.Group {
	group := proto.Group{Workload: r.Cell.Workload, GPU: r.Cell.GPU, Driver: r.Cell.Driver, ChunkSize: r.Cell.ChunkSize, Env: r.Cell.Env}
	if recording := r.Recording(); recording != nil {
		group.CUDA, group.Torch = recording.Stack.CUDA, recording.Stack.Torch
	}
	return group
}

// GroupOf is the key of the coefficients that r belongs to.
func GroupOf(r *Record) GroupKey {
	return groupKey(r.Key.Origin, r.Cell.QuotaKind, r.Group())
}

// FamilyOf is GroupOf without the versions of CUDA and torch: it is known before
// anything was run, so it tells which cells a group still waits for.
func FamilyOf(r *Record) GroupKey {
	group := r.Group()
	group.CUDA, group.Torch = "", ""
	return groupKey(r.Key.Origin, r.Cell.QuotaKind, group)
}

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

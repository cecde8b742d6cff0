package fleetsim

import (
	"fmt"
	"time"

	"github.com/oomfleet/oomfleet/agent/outcome"
	"github.com/oomfleet/oomfleet/allocator"
	"github.com/oomfleet/oomfleet/proto"
	"github.com/oomfleet/oomfleet/storage/registry"
)

// finish is a run's evidence and what the real classifier makes of it.
func (a *agent) finish(task proto.Task, took time.Duration) *parcel {
	stack := a.stack
	if a.wrong > a.now {
		stack.Driver = "570.0-other"
		a.check.disturb(task, "wrong driver")
	}
	p := &parcel{}
	e := a.observe(task, p)
	e.Seconds = took.Seconds()
	p.result = proto.Result{Task: task.ID, Protocol: proto.Version, Fence: task.Fence, CellID: task.CellID, Origin: task.Origin, Kind: task.Kind,
		Quota: task.Quota, Agent: a.id, Stack: stack, Card: a.card(), Evidence: e}
	p.result.Outcome, p.result.Why = outcome.Classify(outcome.Run{Task: task, Stack: stack, Evidence: e})
	if a.cfg.mutation == believed && p.result.Outcome == proto.OutcomeCrowded {
		p.result.Outcome = proto.OutcomeOOMQuota
	}
	if p.result.Outcome.Verdict() != proto.VerdictPass {
		p.events = nil
	}
	return p
}

// observe is what a run shows, with what comes in between.
func (a *agent) observe(task proto.Task, p *parcel) proto.Evidence {
	if a.lost > a.now {
		a.check.disturb(task, "card lost")
		return proto.Evidence{Fault: "the card is lost: reset it", Phase: "start"}
	}
	if a.trouble.hits(a.now, FaultRun, 70) {
		e := one(a.dice.of("run fault"),
			proto.Evidence{Signal: "segmentation fault", Phase: "forward"},
			proto.Evidence{TimedOut: true, Phase: "forward"},
			proto.Evidence{Signal: "killed", HostOOMKills: 1, Phase: "load"},
			proto.Evidence{Exception: "RuntimeError", Message: "CUDA error: out of memory", Phase: "forward"})
		// What runs out outside the allocator is believed when a second run says
		// the same, so it comes once at most.
		once := aim{task.CellID, task.Kind, task.Quota}
		if e.Exception == "" || !a.check.outside[once] {
			a.check.outside[once] = a.check.outside[once] || e.Exception != ""
			a.check.disturb(task, "run fault")
			return e
		}
	}
	t := a.town.truths[registry.Key{Origin: task.Origin, Cell: task.CellID}]
	var seen func(allocator.Event)
	if task.Kind == proto.TaskRecord {
		seen = func(e allocator.Event) { p.events = append(p.events, e) }
	}
	result := t.run(task.Quota, a.dice.of("way").IntN(orders), seen)
	if a.trouble.hits(a.now, FaultNeighbour, 80) {
		a.check.disturb(task, "neighbour")
		if a.dice.chance("neighbour refuses", 70) {
			return t.refusedByNeighbour(result)
		}
		e := t.evidence(task, result)
		e.Neighbours, e.NeighbourMoved = 1, 2*proto.GiB
		return e
	}
	return t.evidence(task, result)
}

// evidence is that of a run which nobody disturbed.
func (t *truth) evidence(task proto.Task, result allocator.ReplayResult) proto.Evidence {
	e := proto.Evidence{Phase: "forward", Meters: t.metersOf(result)}
	if !result.OOM {
		finite, code := true, 0
		e.Phase, e.OutputFinite, e.ExitCode = "done", &finite, &code
		return e
	}
	e.Exception = "OutOfMemoryError"
	limit, free := task.Quota, cardTotal-t.beside-proto.Bytes(result.Reserved)
	if task.Cell.QuotaKind != proto.QuotaAllocator && task.Quota > 0 {
		limit, free = 0, max(0, task.Quota-t.beside-proto.Bytes(result.Reserved))
	}
	e.Message = t.refusal(result, free, limit)
	return e
}

// refusedByNeighbour is a run that another process left no room on the card.
func (t *truth) refusedByNeighbour(result allocator.ReplayResult) proto.Evidence {
	result.Reserved, result.Allocated = result.PeakReserved/2, min(result.Allocated, result.PeakReserved/2)
	result.Tried = 64 << 20
	return proto.Evidence{Phase: "forward", Exception: "OutOfMemoryError", Message: t.refusal(result, 2*proto.MiB, 0), Meters: t.metersOf(result),
		Neighbours: 1, NeighbourMoved: 30 * proto.GiB}
}

// refusal is an out-of-memory text of torch's form.
func (t *truth) refusal(result allocator.ReplayResult, free, allowed proto.Bytes) string {
	mib := func(b proto.Bytes) string { return fmt.Sprintf("%.2f MiB", float64(b)/float64(proto.MiB)) }
	reserved, allocated := proto.Bytes(result.Reserved), proto.Bytes(result.Allocated)
	text := fmt.Sprintf("CUDA out of memory. Tried to allocate %s. GPU 0 has a total capacity of 40.00 GiB of which %s is free. "+
		"Including non-PyTorch memory, this process has %s memory in use. ", mib(proto.Bytes(result.Tried)), mib(free), mib(reserved+t.beside))
	if allowed > 0 {
		text += mib(allowed) + " allowed; "
	}
	return text + fmt.Sprintf("Of the allocated memory %s is allocated by PyTorch, and %s is reserved by PyTorch but unallocated.",
		mib(allocated), mib(reserved-allocated))
}

func (t *truth) metersOf(result allocator.ReplayResult) proto.Meters {
	peak, reserved := proto.Bytes(result.PeakAllocated), proto.Bytes(result.PeakReserved)
	process, total, context := reserved+t.beside, cardTotal, t.beside
	retries := int64(result.Retries)
	return proto.Meters{PeakAllocated: &peak, PeakReserved: &reserved, ProcessPeak: &process, Context: &context, DeviceTotal: &total, NumAllocRetries: &retries}
}

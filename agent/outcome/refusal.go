package outcome

import (
	"fmt"
	"strings"

	"github.com/oomfleet/oomfleet/proto"
)

// classifyRefusal judges an out-of-memory, in an undisturbed run, by the quota
// that the run was under.
func (run Run) classifyRefusal(r Reading, text string) (proto.Outcome, string) {
	switch r.Kind {
	case KindNoSize, KindNCCL, KindXLA, KindTF:
		return proto.OutcomeOOMOutside, "out of memory outside the caching allocator, to be confirmed: " + text
	case KindMaybe:
		return proto.OutcomeOOMOutside, "an error that may hide an out-of-memory, to be confirmed: " + text
	case KindHostSpill:
		return proto.OutcomeUnsupported, "the driver moves GPU memory to the host here (more was allocated than the card has), so no quota can be measured"
	}
	if why := run.foreignCap(r); why != "" {
		if strings.Contains(run.allocConf(), "per_process_memory_fraction") {
			return proto.OutcomeBadCell, why + "; the cell's environment sets a cap of its own"
		}
		return proto.OutcomeAgentFault, why + "; look for what else sets a cap on this agent"
	}
	switch {
	case run.Task.Quota == 0:
		return run.uncapped(r)
	case run.Task.Cell.QuotaKind == proto.QuotaAllocator:
		return run.underAllocatorQuota(r)
	case run.Task.Cell.QuotaKind == proto.QuotaProcess:
		return run.underProcessQuota(r)
	}
	return run.underDeviceQuota(r)
}

// foreignCap says whether a cap that is not the run's own quota refused it.
func (run Run) foreignCap(r Reading) string {
	switch {
	case r.Kind != KindAtCap:
		return ""
	case run.Task.Quota == 0 || run.Task.Cell.QuotaKind != proto.QuotaAllocator:
		return "refused by a cap on the process where the fleet set none: " + run.numbers(r)
	case r.Allowed == nil:
		return ""
	}
	// The text has two decimals of a GiB; anything near is ours.
	if difference := *r.Allowed - run.Task.Quota; difference > slack || difference < -slack {
		return fmt.Sprintf("refused by a cap of %s where the quota was %s", pretty(*r.Allowed), pretty(run.Task.Quota))
	}
	return ""
}

// uncapped judges a run without a quota: only the card itself can refuse.
func (run Run) uncapped(r Reading) (proto.Outcome, string) {
	if r.Kind == KindOtherTenant || run.shared(r) {
		return proto.OutcomeCrowded, "refused on a card that other processes share: " + run.numbers(r)
	}
	if r.Kind == KindFreeExceedsTried || r.Kind == KindUnaccounted {
		return unexplained(run, r)
	}
	return proto.OutcomeOOMDevice, "the whole card was not enough: " + run.numbers(r)
}

// underAllocatorQuota judges a refusal under PyTorch's own cap. Old versions do
// not print the cap, so its arithmetic is done where the text does not tell.
func (run Run) underAllocatorQuota(r Reading) (proto.Outcome, string) {
	atQuota := func() (proto.Outcome, string) {
		return proto.OutcomeOOMQuota, "refused by the quota: " + run.numbers(r)
	}
	cardHadRoom := r.Free == nil || r.Tried == nil || *r.Free >= *r.Tried
	switch {
	case r.Kind == KindAtCap:
		return atQuota()
	case r.Kind == KindOtherTenant:
		return proto.OutcomeCrowded, "the card was full of other processes before the quota was reached: " + run.numbers(r)
	case cardHadRoom && !run.wellUnder(r, slack):
		return atQuota()
	case r.Kind == KindFreeExceedsTried:
		return unexplained(run, r)
	case run.shared(r):
		return proto.OutcomeCrowded, "the card was full before the quota was reached, and other processes hold memory on it: " + run.numbers(r)
	case r.Kind == KindUnaccounted:
		return unexplained(run, r)
	}
	return proto.OutcomeOOMDevice, "the card was full before the quota was reached: " + run.numbers(r)
}

// underProcessQuota judges a refusal under the limit of the driver's service.
// Free memory in the text may be the card's, so it tells nothing here.
func (run Run) underProcessQuota(r Reading) (proto.Outcome, string) {
	shared := r.Kind == KindOtherTenant || run.shared(r)
	full := r.Free != nil && r.Tried != nil && *r.Free < *r.Tried
	if shared && full && run.wellUnder(r, maxContext) {
		return proto.OutcomeCrowded, "the card was full of other processes before the quota was reached: " + run.numbers(r)
	}
	return proto.OutcomeOOMDevice, "the driver refused at the quota: " + run.numbers(r)
}

// underDeviceQuota judges a refusal on a card of which a ballast left so much
// free; the ballast is the other tenant that the text names.
func (run Run) underDeviceQuota(r Reading) (proto.Outcome, string) {
	if r.Kind == KindFreeExceedsTried {
		return unexplained(run, r)
	}
	return proto.OutcomeOOMDevice, "the driver refused at the quota: " + run.numbers(r)
}

func unexplained(run Run, r Reading) (proto.Outcome, string) {
	return proto.OutcomeOOMOutside, "the numbers do not explain the refusal, to be confirmed: " + run.numbers(r)
}

// shared reports whether other processes held memory that may have made the
// difference. They did not where the request and what this process reserved are
// more than the card has.
func (run Run) shared(r Reading) bool {
	if r.Total != nil && r.Reserved != nil && *r.Reserved+orZero(r.Tried) > *r.Total+slack {
		return false
	}
	return run.Evidence.Neighbours > 0
}

// wellUnder reports whether what was held and asked for stays below the quota
// by more than the slack. It is false where the sizes are not known.
func (run Run) wellUnder(r Reading, slack proto.Bytes) bool {
	held := known(r.Reserved, r.Allocated, run.Evidence.Meters.PeakReserved)
	return held != nil && *held+orZero(r.Tried)+slack < run.Task.Quota
}

// numbers says what is known of a refusal.
func (run Run) numbers(r Reading) string {
	var parts []string
	add := func(label string, size *proto.Bytes) {
		if size != nil {
			parts = append(parts, label+" "+pretty(*size))
		}
	}
	add("asked for", r.Tried)
	add("held", known(r.Reserved, r.Allocated))
	add("allowed", r.Allowed)
	add("free on the card", r.Free)
	if run.Task.Quota > 0 {
		add(string(run.Task.Cell.QuotaKind)+" quota", &run.Task.Quota)
	}
	if len(parts) == 0 {
		return "the text has no sizes"
	}
	return strings.Join(parts, ", ")
}

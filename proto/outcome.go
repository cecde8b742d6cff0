package proto

import "fmt"

// Outcome is what a run's evidence means. The set is closed.
type Outcome string

const (
	// OutcomePass: the run ended well and the allocator never had to flush.
	OutcomePass Outcome = "pass"
	// OutcomePassRetried: as above, after the allocator flushed and tried again.
	OutcomePassRetried Outcome = "pass_after_retries"
	// OutcomeOOMQuota: refused by the quota.
	OutcomeOOMQuota Outcome = "oom_at_quota"
	// OutcomeOOMDevice: refused by the driver because the card was full. Under
	// a device or process quota this is the quota's own refusal.
	OutcomeOOMDevice Outcome = "oom_device"
	// OutcomeOOMOutside: out of memory outside the caching allocator (context,
	// modules, libraries); a boundary only when a second run agrees.
	OutcomeOOMOutside Outcome = "oom_outside_allocator"
	// OutcomeCrowded: another process moved the card's memory during the run.
	OutcomeCrowded Outcome = "crowded"
	// OutcomeHostMemory: the host's memory ran out.
	OutcomeHostMemory Outcome = "host_memory"
	// OutcomeCrash: the run ended by a signal or an error of its own.
	OutcomeCrash Outcome = "crash"
	// OutcomeHang: the run made no end within its time.
	OutcomeHang Outcome = "hang"
	// OutcomeWrongOutput: the run ended, but what it computed is not finite.
	OutcomeWrongOutput Outcome = "wrong_output"
	// OutcomeWrongStack: the agent's stack is not the cell's.
	OutcomeWrongStack Outcome = "wrong_stack"
	// OutcomeUnsupported: this agent can never run this cell.
	OutcomeUnsupported Outcome = "unsupported"
	// OutcomeBadCell: the cell itself is wrong (an environment that the
	// library rejects); no agent can run it.
	OutcomeBadCell Outcome = "bad_cell"
	// OutcomeAgentFault: the agent, its GPU or its driver is broken.
	OutcomeAgentFault Outcome = "agent_fault"
	// OutcomeLost: no result came back.
	OutcomeLost Outcome = "lost"
)

// Outcomes lists the closed set.
func Outcomes() []Outcome {
	return []Outcome{OutcomePass, OutcomePassRetried, OutcomeOOMQuota, OutcomeOOMDevice, OutcomeOOMOutside,
		OutcomeCrowded, OutcomeHostMemory, OutcomeCrash, OutcomeHang, OutcomeWrongOutput, OutcomeWrongStack,
		OutcomeUnsupported, OutcomeBadCell, OutcomeAgentFault, OutcomeLost}
}

// Verdict is what the search does with an outcome.
type Verdict int

const (
	// VerdictPass: the quota was enough.
	VerdictPass Verdict = iota
	// VerdictFail: the quota was too small.
	VerdictFail
	// VerdictConfirm: too small if a second fresh run says the same.
	VerdictConfirm
	// VerdictRepeat: nothing was learnt; run again, counted against the cell.
	VerdictRepeat
	// VerdictElsewhere: nothing was learnt and the cell is not to blame.
	VerdictElsewhere
	// VerdictGiveUp: no run of this cell can succeed.
	VerdictGiveUp
)

// Verdict maps an outcome to what the search does with it. An unknown outcome
// is a broken invariant: a new member of the set must be placed here.
func (o Outcome) Verdict() Verdict {
	switch o {
	case OutcomePass, OutcomePassRetried:
		return VerdictPass
	case OutcomeOOMQuota, OutcomeOOMDevice:
		return VerdictFail
	case OutcomeOOMOutside:
		return VerdictConfirm
	case OutcomeHostMemory, OutcomeCrash, OutcomeHang, OutcomeLost:
		return VerdictRepeat
	case OutcomeCrowded, OutcomeWrongStack, OutcomeAgentFault:
		return VerdictElsewhere
	case OutcomeWrongOutput, OutcomeUnsupported, OutcomeBadCell:
		return VerdictGiveUp
	}
	panic(fmt.Sprintf("proto: outcome %q has no verdict", string(o)))
}

// Known reports whether o is a member of the closed set.
func (o Outcome) Known() bool {
	for _, k := range Outcomes() {
		if k == o {
			return true
		}
	}
	return false
}

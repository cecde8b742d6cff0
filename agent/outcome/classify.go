package outcome

import "github.com/oomfleet/oomfleet/proto"

// Run is all that a judgement rests on.
type Run struct {
	// Task is what was asked for: cell, kind of run and quota.
	Task proto.Task
	// Stack is what the run really ran on.
	Stack proto.Stack
	// Evidence is what was seen.
	Evidence proto.Evidence
	// BadCell says that the runner rejected the cell's environment itself.
	BadCell bool
}

// Classify names the outcome of a run, and why in one sentence.
func Classify(run Run) (proto.Outcome, string) {
	e := run.Evidence
	switch {
	case e.Fault != "":
		return proto.OutcomeAgentFault, e.Fault
	case run.BadCell:
		return proto.OutcomeBadCell, "the runner rejected the cell's environment"
	case e.TimedOut:
		return proto.OutcomeHang, "the run made no end within its time"
	case e.OutputFinite != nil && *e.OutputFinite:
		return proto.OutcomePass, "the run ended with finite output"
	}
	return proto.OutcomeCrash, "the run ended by an error of its own"
}

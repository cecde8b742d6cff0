package outcome

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/oomfleet/oomfleet/proto"
)

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

// neighbourMargin is by how much the memory of other processes may move during
// a run that is still believed: display servers and monitors breathe.
const neighbourMargin = 16 * proto.MiB

// Classify names the outcome of a run, and why in one sentence. It never
// returns proto.OutcomeLost: that is for a run of which there is no evidence.
//
// The order is the order of trust. An agent that could not run the task learnt
// nothing; then what makes the cell impossible here or anywhere; then a run that
// ended well; then, of a failed one, everything that disturbed it before what
// its own words say.
func Classify(run Run) (proto.Outcome, string) {
	e := run.Evidence
	switch {
	case e.Fault != "":
		return proto.OutcomeAgentFault, e.Fault
	case run.Stack.GPU != run.Task.Cell.GPU:
		return proto.OutcomeWrongStack, fmt.Sprintf("the cell wants GPU %q, the run was on %q", run.Task.Cell.GPU, run.Stack.GPU)
	case run.Stack.Driver != run.Task.Cell.Driver:
		return proto.OutcomeWrongStack, fmt.Sprintf("the cell wants driver %q, the run was on %q", run.Task.Cell.Driver, run.Stack.Driver)
	case run.BadCell:
		return proto.OutcomeBadCell, "the cell's environment was rejected: " + run.error()
	case e.Exception == "Unsupported":
		return proto.OutcomeUnsupported, sentenceOr(e.Message, "the runner does not support this cell")
	case e.TimedOut:
		return proto.OutcomeHang, fmt.Sprintf("the run made no end within %d s, in phase %s", run.Task.TimeoutSeconds, sentenceOr(e.Phase, "start"))
	}
	if why := run.ineffective(); why != "" {
		return proto.OutcomeUnsupported, why
	}
	if run.ended() {
		return run.classifyEnded()
	}
	return run.classifyFailed()
}

// ended reports whether the workload came to its end.
func (run Run) ended() bool {
	e := run.Evidence
	return e.Exception == "" && (e.Phase == "done" || e.OutputFinite != nil)
}

// classifyEnded judges a run that came to its end. What went wrong after that
// (an exit code, a kill during clean-up) says nothing of memory.
func (run Run) classifyEnded() (proto.Outcome, string) {
	e := run.Evidence
	output := "finite output"
	switch {
	case e.OutputFinite == nil:
		output = "output that nobody judged"
	case !*e.OutputFinite:
		return proto.OutcomeWrongOutput, "the run ended, but its output is not finite; parameters: " + sentenceOr(proto.EnvString(e.Dtypes), "types unknown")
	}
	if e.NeighbourMoved > neighbourMargin && run.neighbourMatters() {
		return proto.OutcomeCrowded, fmt.Sprintf("the run passed, but other processes moved %s of the card's memory meanwhile", pretty(e.NeighbourMoved))
	}
	if retries := e.Meters.NumAllocRetries; retries != nil && *retries > 0 {
		return proto.OutcomePassRetried, fmt.Sprintf("ended with %s; the allocator flushed and tried again %d times", output, *retries)
	}
	return proto.OutcomePass, "ended with " + output
}

// neighbourMatters reports whether a pass beside a moving neighbour is void: the
// card's free memory is what a device quota limits, and what a recording for a
// device or process quota measures the overhead by.
func (run Run) neighbourMatters() bool {
	switch run.Task.Cell.QuotaKind {
	case proto.QuotaDevice:
		return true
	case proto.QuotaProcess:
		return run.Task.Kind == proto.TaskRecord
	}
	return false
}

// classifyFailed judges a run that did not come to its end.
func (run Run) classifyFailed() (proto.Outcome, string) {
	e := run.Evidence
	if why := brokenMeter(e.Meters); why != "" {
		return proto.OutcomeAgentFault, why
	}
	r, raw := run.read()
	text := telling(raw)
	switch {
	case e.HostOOMKills > 0:
		return proto.OutcomeHostMemory, fmt.Sprintf("the host's kernel killed %d processes of the agent's group for their memory", e.HostOOMKills)
	case r.Kind == KindHostOOM || r.Kind == KindHostOOMKill:
		return proto.OutcomeHostMemory, "the host's memory ran out: " + text
	case r.Kind == KindEnvFault:
		return run.classifyFault(raw)
	case r.Kind == KindBogus:
		return proto.OutcomeCrash, "the size asked for is no size, which is an error of the program: " + text
	case r.Kind != KindNotOOM && e.NeighbourMoved > neighbourMargin:
		return proto.OutcomeCrowded, fmt.Sprintf("refused while other processes moved %s of the card's memory", pretty(e.NeighbourMoved))
	case r.Kind != KindNotOOM:
		return run.classifyRefusal(r, text)
	case e.Exception != "" || e.Message != "":
		return proto.OutcomeCrash, fmt.Sprintf("an error that is no out-of-memory, in phase %s: %s", sentenceOr(e.Phase, "start"), run.error())
	case e.Signal != "":
		return proto.OutcomeCrash, fmt.Sprintf("ended by signal %s in phase %s, and the host's kernel counted no out-of-memory kill", e.Signal, sentenceOr(e.Phase, "start"))
	case e.ExitCode != nil:
		return proto.OutcomeCrash, fmt.Sprintf("ended with exit code %d in phase %s and said nothing", *e.ExitCode, sentenceOr(e.Phase, "start"))
	}
	return proto.OutcomeCrash, "ended without a result, an error or an exit code"
}

// classifyFault judges a text about the machine or a setting by whose it is.
func (run Run) classifyFault(raw string) (proto.Outcome, string) {
	f, text := fold(raw), telling(raw)
	conf := run.allocConf()
	switch {
	case f.has(badOptions...) && conf != "":
		return proto.OutcomeBadCell, fmt.Sprintf("the library rejects %q: %s", conf, text)
	case asks(conf, "expandable_segments", "true") && f.has(expandableFaults...):
		return proto.OutcomeUnsupported, "expandable_segments does not work on this platform: " + text
	}
	return proto.OutcomeAgentFault, "the GPU, its driver or its set-up is broken: " + text
}

// expandableFaults is how platforms without virtual memory management (WSL2,
// vGPU, MIG) refuse expandable segments.
var expandableFaults = append([]string{"cudadrivererror:", "operationnotsupported"}, softFaults...)

// read reads what the run said: its error, the chain of errors that led to it,
// and, where it reported none, what it wrote to stderr. A quiet run's stderr
// holds warnings that decide nothing.
func (run Run) read() (Reading, string) {
	e := run.Evidence
	texts := []string{e.Exception + ": " + e.Message, e.Traceback}
	if e.Exception == "" && e.Message == "" {
		texts = []string{e.StderrTail}
	}
	for _, text := range texts {
		if r := Read(text); r.Kind != KindNotOOM {
			return r, text
		}
	}
	return Reading{Kind: KindNotOOM}, ""
}

// error is the run's error as one line.
func (run Run) error() string {
	e := run.Evidence
	return excerpt(strings.TrimPrefix(strings.TrimSuffix(e.Exception+": "+e.Message, ": "), ": "))
}

// telling is the line of a text that says what happened, or else its beginning.
func telling(text string) string {
	for line := range strings.Lines(text) {
		if Read(line).Kind != KindNotOOM {
			return excerpt(line)
		}
	}
	return excerpt(text)
}

// brokenMeter finds a meter that says that the card is lost. A meter that the
// card merely does not offer is no fault.
func brokenMeter(m proto.Meters) string {
	for _, name := range slices.Sorted(maps.Keys(m.Missing)) {
		reason := m.Missing[name]
		if f := fold(reason); f.has("gpuislost", "gpurequiresreset", "libraryversionmismatch", "fallenoffthebus", "couldn'tcommunicate") {
			return fmt.Sprintf("the card does not answer (%s): %s", name, excerpt(reason))
		}
	}
	return ""
}

// excerpt is the beginning of a text as one line without control bytes.
func excerpt(text string) string {
	const most = 240
	words := strings.Join(strings.FieldsFunc(text, func(r rune) bool { return !printed(r) }), " ")
	if runes := []rune(words); len(runes) > most {
		return string(runes[:most]) + "..."
	}
	return words
}

func sentenceOr(text, otherwise string) string {
	if text = excerpt(text); text != "" {
		return text
	}
	return otherwise
}

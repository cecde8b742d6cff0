package coordinator

import (
	"errors"
	"fmt"
	"runtime/debug"
	"strings"

	"github.com/oomfleet/oomfleet/coordinator/plan"
	"github.com/oomfleet/oomfleet/proto"
)

// The pieces of the leader's work that are guarded: the values of a label.
const (
	pieceReplay  = "replay"
	pieceBuild   = "build"
	pieceFit     = "fit"
	pieceCompare = "compare"
	pieceRollout = "rollout"
	piecePlan    = "plan"
	pieceReport  = "report"
)

func pieces() []string {
	return []string{pieceReplay, pieceBuild, pieceFit, pieceCompare, pieceRollout, piecePlan, pieceReport}
}

// mistakeError is a panic of one piece of work, which broke an invariant of ours.
type mistakeError struct{ what string }

func (e *mistakeError) Error() string { return e.what }

// mistakeLimit bounds what a panic may say of itself in the registry.
const mistakeLimit = 200

// guard does one piece of work, and makes of its panic an error that is a
// mistakeError. Without it the input that one piece stumbles over would end this
// coordinator, and then each that leads after it.
//
// It must not be put around a proposal: where the machine's Apply panics, local
// state can no longer be trusted and the process has to end, loudly. (On raft
// Apply has a goroutine of its own, in simulators it has not.) So do computes,
// and whoever calls guard commits.
//
// about names what the work is from, for those who report the mistake; it is
// what the sentence ends with.
func (c *Coordinator) guard(piece, about string, do func() error) (err error) {
	defer func() {
		p := recover()
		if p == nil {
			return
		}
		c.metrics.panics.WithLabelValues(piece).Inc()
		c.log.Error("a piece of the leader's work panicked, it is given up: please report this", "job", piece, "about", about,
			"panic", fmt.Sprint(p), "stack", string(debug.Stack()))
		said := strings.Join(strings.Fields(fmt.Sprint(p)), " ")
		if len(said) > mistakeLimit {
			said = strings.ToValidUTF8(said[:mistakeLimit], "") + "..."
		}
		err = &mistakeError{fmt.Sprintf("internal error: %s; please report with %s", said, about)}
	}()
	return do()
}

// mistake says what went wrong when an error is one of ours; empty when it is
// not, and may pass when tried again.
func mistake(err error) string {
	var m *mistakeError
	if errors.As(err, &m) {
		return m.what
	}
	return ""
}

// aboutReplay names what a replay reads.
func aboutReplay(r plan.Replay) string {
	if r.Program != "" {
		return fmt.Sprintf("program %s at length %d, batch %d", r.Program, r.Cell.SeqLen, r.Cell.Batch)
	}
	return "trace " + string(r.Trace.Digest)
}

// namedTraces is how many of several traces a sentence names.
const namedTraces = 3

func aboutTraces(digests []proto.Digest) string {
	var names []string
	for _, d := range digests[:min(namedTraces, len(digests))] {
		names = append(names, "trace "+string(d))
	}
	if more := len(digests) - namedTraces; more > 0 {
		names = append(names, fmt.Sprintf("%d more", more))
	}
	return strings.Join(names, ", ")
}

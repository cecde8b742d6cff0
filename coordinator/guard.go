package coordinator

import (
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

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
		args := []any{"job", piece, "about", about, "panic", fmt.Sprint(p)}
		if c.metrics.panics.first() {
			args = append(args, "stack", string(debug.Stack()))
		}
		c.log.Error("a piece of the leader's work panicked, it is given up: please report this", args...)
		said := strings.Join(strings.Fields(fmt.Sprint(p)), " ")
		if len(said) > mistakeLimit {
			said = strings.ToValidUTF8(said[:mistakeLimit], "") + "..."
		}
		err = &mistakeError{fmt.Sprintf("internal error: %s; please report with %s", said, about)}
	}()
	return do()
}

// panics counts them, and knows those whose stack the log has: the same again, a
// plan's each time that it is tried, needs no more than its line.
type panics struct {
	*prometheus.CounterVec
	mu   sync.Mutex // guards seen
	seen map[[stackDepth]uintptr]bool
}

// stackDepth is how many calls tell one panic from another, mostStacks how many
// are remembered: a program has only so many places.
const (
	stackDepth = 32
	mostStacks = 256
)

// first reports whether the panic that is being recovered from is the first from
// its place.
func (s *panics) first() bool {
	var at [stackDepth]uintptr
	runtime.Callers(2, at[:])
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.seen == nil || len(s.seen) >= mostStacks {
		s.seen = make(map[[stackDepth]uintptr]bool)
	}
	first := !s.seen[at]
	s.seen[at] = true
	return first
}

// longestRest is the most that a plan which panics is left alone. It is tried again
// all the same: whoever cancels the sweep behind it waits that long.
const longestRest = 2 * time.Minute

// rest is for how long a plan that panicked is left alone, each time twice as long.
// The zero value is not at all.
type rest struct {
	pause time.Duration
	until time.Time
}

// over reports whether it may be tried again.
func (r *rest) over(now time.Time) bool { return !now.Before(r.until) }

func (r *rest) longer(now time.Time, shortest time.Duration) {
	r.pause = min(max(2*r.pause, shortest), longestRest)
	r.until = now.Add(r.pause)
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

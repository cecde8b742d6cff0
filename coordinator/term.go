package coordinator

import (
	"context"
)

// Term is one term of leadership whose order of events another owns. It decides
// and does what Run does while this node leads, and starts no goroutine: what
// Run does beside its loop goes through spawn. It is for simulators, which have
// to interleave the steps of several nodes and to repeat them exactly.
type Term struct{ duty *duty }

// NewTerm begins a term and does nothing yet. spawn is given each replay, build
// and fit that Run would start a goroutine for; the caller runs it at any time,
// as soon as it likes and up to its end.
func (c *Coordinator) NewTerm(spawn func(work func())) *Term {
	d := newDuty(c)
	d.together = func(n int, do func(i int)) {
		for i := range n {
			do(i)
		}
	}
	d.replays.spawn, d.builds.spawn, d.fits.spawn = spawn, spawn, spawn
	return &Term{duty: d}
}

// Round takes note of the jobs that have ended, audits the queue when that is
// due, plans from the present view and carries the plan out. It returns the
// applied index of that view. An error that matches registry.ErrNotLeader, or one
// of a closed registry or queue, ends the term; any other ends the round early,
// and the same again goes on with it.
func (t *Term) Round(ctx context.Context, auditDue bool) (seen uint64, err error) {
	for t.collect(ctx) {
	}
	return t.duty.round(ctx, auditDue)
}

// collect takes note of one job that has ended, and reports whether there was one.
func (t *Term) collect(ctx context.Context) bool {
	select {
	case j := <-t.duty.replays.done:
		t.duty.replayed(ctx, j)
	case j := <-t.duty.builds.done:
		t.duty.built(ctx, j)
	case j := <-t.duty.fits.done:
		t.duty.fitted(j)
	default:
		return false
	}
	return true
}

// Intake commits and acks reports, one after another, until ctx ends (nil) or
// the term does (the error).
func (t *Term) Intake(ctx context.Context) error { return t.duty.intake(ctx) }

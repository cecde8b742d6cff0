package coordinator

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"
	"time"

	"github.com/oomfleet/oomfleet/proto"
	"github.com/oomfleet/oomfleet/storage/registry"
	"github.com/oomfleet/oomfleet/storage/trace"
)

// LeastKeep is the shortest time for which objects that nothing refers to are
// kept: an agent's outbox and a person's download get that long.
const LeastKeep = 24 * time.Hour

// Garbage is what retention needs of the trace store; see trace.Store for how
// each method fails.
type Garbage interface {
	Objects(ctx context.Context) iter.Seq2[trace.StoredObject, error]
	Remove(ctx context.Context, o trace.StoredObject) error
}

// Retention is how the leader keeps the trace store from growing. The zero value
// removes nothing by itself.
type Retention struct {
	// Keep is for how long an object stays that the registry does not refer to;
	// 0 is for ever. The store must be this fleet's alone: what another one
	// keeps there looks like garbage.
	Keep time.Duration
	// Every is how often the leader looks; 0 is 6 h.
	Every time.Duration
}

func (r Retention) validate() error {
	if r.Keep != 0 && r.Keep < LeastKeep {
		return fmt.Errorf("objects must be kept for %s at least, not %s", LeastKeep, r.Keep)
	}
	if r.Every < 0 {
		return errors.New("the interval of collections cannot be negative")
	}
	return nil
}

// CollectRequest is how to look for garbage.
type CollectRequest struct {
	// Keep is Retention.Keep of this once, LeastKeep at least.
	Keep time.Duration
	// DryRun removes nothing.
	DryRun bool
	// Force removes even if most of the store would go.
	Force bool
}

// Collection is what a look for garbage found and did.
type Collection struct {
	DryRun bool `json:"dry_run"`
	// Before is the time that an object must be older than to be garbage: now
	// less what is kept, and earlier where reports wait.
	Before time.Time `json:"before"`
	// Objects and Size are of all that was seen, Referred how many of them the
	// registry refers to, Young how many it does not and which are kept.
	Objects  int         `json:"objects"`
	Size     proto.Bytes `json:"size_bytes"`
	Referred int         `json:"referred"`
	Young    int         `json:"young"`
	// Garbage is the rest, the first MostGarbage of them; Found counts all.
	Garbage []trace.StoredObject `json:"garbage"`
	Found   int                  `json:"found"`
	Freed   proto.Bytes          `json:"freed_bytes"`
	// Removed is how many of them are gone; Changed were put again meanwhile.
	Removed int `json:"removed"`
	Changed int `json:"changed"`
	// Index is the log position whose references counted.
	Index uint64 `json:"index"`
}

// MostGarbage is how many objects a Collection lists, and removes at once.
const MostGarbage = 10_000

// quiet is when the leader last saw that no report waited, in this term.
type quiet struct {
	mu       sync.Mutex // guards the rest
	at       time.Time
	restored uint64    // View.Restored as it was seen last
	since    time.Time // when it was first seen like that, if it was restored
}

func (q *quiet) set(at time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.at = at
}

func (q *quiet) seen() time.Time {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.at
}

// restoredFor is for how long this node has known the restore that the view
// comes from; ok is false when it was never restored.
func (q *quiet) restoredFor(v registry.View, now time.Time) (d time.Duration, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if v.Restored == 0 {
		return 0, false
	}
	if q.restored != v.Restored {
		q.restored, q.since = v.Restored, now
	}
	return now.Sub(q.since), true
}

// retain collects at intervals until ctx ends.
func (c *Coordinator) retain(ctx context.Context) error {
	r := c.cfg.Retention
	if r.Keep == 0 || c.garbage == nil {
		return nil
	}
	for wait := r.Every / 6; ctx.Err() == nil; wait = r.Every {
		pause(ctx, wait, nil)
		if ctx.Err() != nil {
			return nil
		}
		got, err := c.Collect(ctx, CollectRequest{Keep: r.Keep})
		var refused *RefusedError
		switch {
		case err == nil:
			c.log.Info("garbage of the trace store removed", "removed", got.Removed, "freed_bytes", int64(got.Freed), "found", got.Found, "objects", got.Objects)
		case errors.As(err, &refused):
			c.log.Warn("garbage of the trace store was left", "why", refused.Why)
		case ctx.Err() == nil:
			c.log.Warn("garbage of the trace store could not be removed, the next time tries again", "error", err)
		}
	}
	return nil
}

// Collect looks for objects that the registry does not refer to, and removes
// those that are old enough. Only a leader can: with registry.ErrNotLeader
// nothing was looked at. A RefusedError says what stands against it.
//
// What makes it safe beside agents at work is the order. A result refers to
// objects that were put, or put again, right before it was reported
// (trace.RefreshAfter), and every report that was stored before the last quiet
// moment is in the view, which comes after the listing. So an object that is
// older than that moment by more than the refresh, and is not in the view, will
// not be referred to by what is on its way.
func (c *Coordinator) Collect(ctx context.Context, r CollectRequest) (Collection, error) {
	got, err := c.collect(ctx, r)
	result := collectDone
	var refused *RefusedError
	switch {
	case errors.As(err, &refused):
		result = collectRefused
	case err != nil:
		result = collectFailed
	case r.DryRun:
		result = collectDry
	}
	c.metrics.collections.WithLabelValues(result).Inc()
	return got, err
}

func (c *Coordinator) collect(ctx context.Context, r CollectRequest) (Collection, error) {
	leading, _ := c.registry.Leadership()
	last := c.quiet.seen()
	switch {
	case c.garbage == nil:
		return Collection{}, &RefusedError{Why: "this coordinator cannot list its trace store"}
	case r.Keep < LeastKeep:
		return Collection{}, &RefusedError{Why: fmt.Sprintf("objects are kept for %s at least", LeastKeep)}
	case !leading:
		return Collection{}, &registry.NotLeaderError{}
	case last.IsZero():
		return Collection{}, &RefusedError{Why: "results wait to be taken, and may refer to what looks like garbage; try again when they are in"}
	}
	now := c.now()
	got := Collection{DryRun: r.DryRun, Before: now.Add(-r.Keep), Garbage: []trace.StoredObject{}}
	if limit := last.Add(-2 * trace.RefreshAfter); limit.Before(got.Before) {
		got.Before = limit
	}
	var all []trace.StoredObject
	for o, err := range c.garbage.Objects(ctx) {
		if err != nil {
			return Collection{}, fmt.Errorf("look for garbage: %w", err)
		}
		all = append(all, o)
	}
	view := c.registry.View() // after the listing
	got.sort(all, view)
	if r.DryRun {
		return got, nil
	}
	if why := c.brake(got, view, r, now); why != "" {
		return got, &RefusedError{Why: why}
	}
	return got, c.sweepOut(ctx, &got)
}

// sort says of each object whether it stays.
func (got *Collection) sort(all []trace.StoredObject, v registry.View) {
	got.Index = v.AppliedIndex
	refers := referred(v)
	for _, o := range all {
		got.Objects, got.Size = got.Objects+1, got.Size+o.Size
		switch {
		case o.Digest != "" && refers[o.Digest]:
			got.Referred++
		case !o.Modified.Before(got.Before):
			got.Young++
		default:
			if got.Found++; len(got.Garbage) < MostGarbage {
				got.Garbage = append(got.Garbage, o)
			}
		}
	}
}

// brake says why nothing is removed although there is garbage: this registry may
// not be the one that the store belongs to.
func (c *Coordinator) brake(got Collection, v registry.View, r CollectRequest, now time.Time) string {
	const few = 32
	switch age, restored := c.quiet.restoredFor(v, now); {
	case r.Force || got.Found == 0:
		return ""
	case v.Empty():
		return "the registry is empty, so everything in the trace store looks like garbage; restore its backup first"
	case restored && age < r.Keep:
		return fmt.Sprintf("the registry was restored from a backup; what it does not know is kept for another %s", (r.Keep - age).Round(time.Minute))
	case got.Found > few && got.Found > got.Referred:
		return fmt.Sprintf("%d of %d objects would go, more than the registry knows (%d): is the trace store another fleet's too? look with --dry-run, and use --force if it is not",
			got.Found, got.Objects, got.Referred)
	}
	return ""
}

// sweepOut removes the garbage that got lists.
func (c *Coordinator) sweepOut(ctx context.Context, got *Collection) error {
	for _, o := range got.Garbage {
		err := c.garbage.Remove(ctx, o)
		switch {
		case errors.Is(err, trace.ErrChanged):
			got.Changed++
			continue
		case err != nil:
			return fmt.Errorf("remove garbage: %w", err)
		}
		got.Removed, got.Freed = got.Removed+1, got.Freed+o.Size
		c.metrics.removedObjects.WithLabelValues(string(o.Kind)).Inc()
		c.metrics.removedBytes.Add(float64(o.Size))
		c.log.Debug("garbage removed", "kind", o.Kind, "key", o.Key, "modified", o.Modified)
	}
	return nil
}

// referred are the digests of all objects that the registry names: traces of
// every run, settled or not, and whatever predictions, lessons and programs were
// made from. Evidence has no name there and lives by its age alone.
func referred(v registry.View) map[proto.Digest]bool {
	out := make(map[proto.Digest]bool)
	for _, rec := range v.Records {
		for i := range rec.Runs {
			if t := rec.Runs[i].Trace; t != nil {
				out[t.Digest] = true
			}
		}
		for _, late := range rec.LateRuns {
			if late.Trace != nil {
				out[late.Trace.Digest] = true
			}
		}
		if p := rec.Prediction; p != nil {
			out[p.Trace], out[p.Program] = true, true
			if l := p.Lesson; l != nil {
				out[l.Trace], out[l.Program] = true, true
			}
		}
	}
	for _, p := range v.Programs {
		out[p.Digest] = true
		for _, list := range [][]proto.Digest{p.Inputs, p.Earlier} {
			for _, d := range list {
				out[d] = true
			}
		}
	}
	return out
}

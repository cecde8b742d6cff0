// Package plan owns what to do next: a pure function from the registry's view
// to actions. It refuses to remember anything, to read a clock and to do I/O; a
// new leader calls Next and goes on where the old one was.
//
// Cells that differ in length, batch, allocator settings and quota alone are a
// family. It records a few of them, the cheapest, and predicts the rest: a cell
// whose length and batch were recorded from that recording, any other from the
// program that the recordings came to. Each cell then goes through these
// states, read off its record anew every time:
//
//	wait for the family --> replay --> certify --agrees--> certified
//	                          |          |
//	                     refused or disagrees
//	                          v
//	own recording ---------> replay --> certify --agrees--> certified
//	    |                     |          |
//	    |                     |          +--disagrees--+
//	    |                     +--refused--+            |
//	    |                                 v            v
//	    +--strategy bisect-------> search: halve the bracket ----> bisected, adaptive
//
// and to failed from everywhere, with a reason. A probe is run with the
// allocator's trace, which is kept when it disagrees; then that is replayed
// before anything else is asked for (Lesson): what the run did otherwise goes
// into the prediction, which is certified anew.
//
// A cell that cannot be predicted
// from others (strategy bisect, a device or process quota, settings that replay
// does not model) begins at its own recording. Start reading at Next, then
// family (who records), decide (one cell), ledger (what its runs say) and search
// (where to probe).
package plan

import (
	"github.com/oomfleet/oomfleet/proto"
	"github.com/oomfleet/oomfleet/storage/registry"
)

// Actions are what Next wants done. All lists are in canonical order, so that
// the same view always gives the same actions.
type Actions struct {
	// Issue are runs to ask for.
	Issue []registry.IssueRequest
	// Predict are recordings and programs to replay, off the leader's loop.
	Predict []Replay
	// Build are programs to make from recordings, likewise.
	Build []Build
	// Settle are cells whose search has ended.
	Settle []registry.Settle
	// Fit are groups of which all cells have settled and whose recordings are
	// not yet in the committed coefficients.
	Fit []Fit
}

// Empty reports whether there is nothing to do.
func (a Actions) Empty() bool {
	return len(a.Issue)+len(a.Predict)+len(a.Build)+len(a.Settle)+len(a.Fit) == 0
}

// Replay asks for the sweep over quotas of a recording, a program or a probe's
// trace (Lesson), under the cell's own settings.
type Replay struct {
	Key  registry.Key
	Cell proto.Cell
	// Trace is the recording and Recorded the allocator's environment that it
	// was made under; both are empty when Program is replayed.
	Trace    proto.TraceRef
	Recorded map[string]string
	Program  proto.Digest
	// Check is a program that says what the recording should hold; empty for
	// none. Where it does not, the program is stale.
	Check proto.Digest
	// Overhead is the recording's process peak less its reserved peak: what a
	// device or process quota pays beside the allocator. Step is the grid.
	Overhead proto.Bytes
	Step     proto.Bytes
	// Varies: two runs of the cell were seen to free its blocks in different
	// order. Against is the trace of a probe that may be another such; empty for
	// none.
	Varies  bool
	Against proto.Digest
	// Missed: a probe spoke against what was predicted of the cell before it was
	// recorded, and its trace, if it left one, taught nothing. Then another order of frees than Check has is
	// the cell's, whose runs differ, and none of the program's faults.
	Missed bool
	// Lesson is set when Trace is that of a probe under a quota: what that shows
	// is to be added to what was predicted.
	Lesson Lesson
}

// Build asks for the program behind a family's recordings.
type Build struct {
	Family    registry.FamilyKey
	ChunkSize int
	Inputs    []Input
}

// Input is one recording that a program is made from; Env are the allocator's
// settings that it was made under.
type Input struct {
	Trace         proto.TraceRef
	SeqLen, Batch int
	Env           map[string]string
}

// Fit asks for the coefficients of a group.
type Fit struct {
	Key registry.GroupKey
	// Records are all of the group that have a recording, by length, batch and
	// cell.
	Records []*registry.Record
}

// Next says what to do in this view. It looks at nothing else, and the same
// view always gives the same actions in the same order. It changes nothing that
// the view reaches. A caller that asks often keeps a Planner instead.
func Next(v registry.View) Actions { return new(Planner).Next(v) }

// add puts one cell's step into the lists; seen is the view's applied index.
func (a *Actions) add(rec *registry.Record, s step, seen uint64) {
	for _, w := range s.wants {
		r := registry.IssueRequest{Key: rec.Key, Kind: w.kind, Quota: w.quota, TimeoutSeconds: TimeoutSeconds(rec.Cell)}
		if s.expects {
			r.Expect, r.ExpectPeak = expectation(rec, w.quota)
		}
		a.Issue = append(a.Issue, r)
	}
	if s.replay != nil {
		a.Predict = append(a.Predict, *s.replay)
	}
	if s.settle != nil {
		a.Settle = append(a.Settle, registry.Settle{Key: rec.Key, Settlement: *s.settle, Runs: len(rec.Runs), Seen: seen})
	}
}

const (
	// baseTimeout is generous: ESMFold at length 768 takes 10 s on an H200,
	// and a run that flushes near its boundary several times that.
	baseTimeout = 600
	// baseLength is up to where baseTimeout holds; beyond, the pair
	// representation makes the work grow with the cube of the length.
	baseLength = 1024
	maxTimeout = 4 * 3600
)

// TimeoutSeconds is how long one run of the cell may take: 600 s up to a
// length of 1024 at batch 1, then growing with batch x length cubed, at most
// four hours.
func TimeoutSeconds(c proto.Cell) int {
	length := float64(c.SeqLen) / baseLength
	work := float64(c.Batch) * length * length * length
	return int(min(max(1, work)*baseTimeout, maxTimeout))
}

// Package plan owns what to do next: a pure function from the registry's view
// to actions. It refuses to remember anything, to read a clock and to do I/O; a
// new leader calls Next and goes on where the old one was.
//
// A cell goes through these states, each read off its record anew every time:
//
//	recording --> replay --> certify --agrees--> certified
//	    |            |          |
//	    |            |          +--disagrees--+
//	    |            +--refused--+            |
//	    |                        v            v
//	    +--strategy bisect----> search: halve the bracket ----> bisected, adaptive
//
// and to failed from everywhere, with a reason. Start reading at Next, then
// decide (one cell), ledger (what its runs say) and search (where to probe).
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
	// Predict are recordings to replay, off the leader's loop.
	Predict []Replay
	// Settle are cells whose search has ended.
	Settle []registry.Settle
	// Fit are groups of which all cells have settled and whose recordings are
	// not yet in the committed coefficients.
	Fit []Fit
}

// Empty reports whether there is nothing to do.
func (a Actions) Empty() bool {
	return len(a.Issue)+len(a.Predict)+len(a.Settle)+len(a.Fit) == 0
}

// Replay asks for the sweep over quotas of one recording.
type Replay struct {
	Key   registry.Key
	Cell  proto.Cell
	Trace proto.TraceRef
	// Overhead is the recording's process peak less its reserved peak: what a
	// device or process quota pays beside the allocator. Step is the grid.
	Overhead proto.Bytes
	Step     proto.Bytes
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
		a.Issue = append(a.Issue, registry.IssueRequest{
			Key: rec.Key, Kind: w.kind, Quota: w.quota, TimeoutSeconds: TimeoutSeconds(rec.Cell),
		})
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

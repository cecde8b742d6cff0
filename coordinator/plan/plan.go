// Package plan owns what to do next: a pure function from the registry's view
// to actions. It refuses to remember anything, to read a clock and to do I/O; a
// new leader calls Next and goes on where the old one was.
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
	Fit []registry.GroupKey
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

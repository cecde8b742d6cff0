package api

import (
	"sync"

	"github.com/oomfleet/oomfleet/storage/registry"
)

// feed lists a view's changes once for all who watch, and counts those.
type feed struct {
	mu       sync.Mutex // guards all below
	watchers int
	index    uint64
	listed   []registry.Change
}

// enter lets one more watch, unless there are most already.
func (f *feed) enter(most int) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.watchers >= most {
		return false
	}
	f.watchers++
	return true
}

func (f *feed) leave() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.watchers--; f.watchers == 0 {
		f.index, f.listed = 0, nil
	}
}

// changes are the view's, which nobody may change.
func (f *feed) changes(view registry.View) []registry.Change {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.listed == nil || f.index != view.AppliedIndex {
		f.index, f.listed = view.AppliedIndex, view.Changes()
	}
	return f.listed
}

// eventOf is a change as it is sent.
func eventOf(view registry.View, c registry.Change) Event {
	e := Event{Kind: string(c.Kind), Index: c.Index}
	switch c.Kind {
	case registry.ChangeCoefficients:
		revision := revisionOf(c.Coefficients, true)
		e.Coefficients = &revision
	case registry.ChangeBoundary:
		boundary := boundaryOf(c.Record)
		e.Boundary = &boundary
	case registry.ChangeSweep:
		summary := view.Summary(c.Sweep)
		e.Sweep = &summary
	case registry.ChangeProgram:
		e.Program = c.Program
	default:
		panic("api: change kind " + string(c.Kind) + " has no event")
	}
	return e
}

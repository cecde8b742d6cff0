package coordinator

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/oomfleet/oomfleet/coordinator/plan"
	"github.com/oomfleet/oomfleet/matrix"
	"github.com/oomfleet/oomfleet/proto"
	"github.com/oomfleet/oomfleet/storage/registry"
)

// RepeatRequest asks for more recordings of settled cells.
type RepeatRequest struct {
	// Of is the sweep that the comparison was about. Cells may be of any sweep
	// of its origin: those that it was compared with are repeated too.
	Of    proto.MatrixID
	Cells []proto.CellID
	// Repeats is how many recordings more each cell gets, 1 to 20.
	Repeats int
	// Request is a key that the client makes up for this one request; empty for
	// none. The same again counts once.
	Request string
}

// Repeat commits a sweep that records settled cells again, without touching
// their results; the same request is one sweep. It fails with ErrUnknownSweep, a RefusedError, and as
// Registry.Propose does; only the leader can do it.
func (c *Coordinator) Repeat(ctx context.Context, r RepeatRequest) (SubmitReply, error) {
	view := c.registry.View()
	of := view.Sweeps[r.Of]
	switch {
	case of == nil:
		return SubmitReply{}, fmt.Errorf("repeat cells of %q: %w", r.Of, ErrUnknownSweep)
	case r.Repeats < 1 || r.Repeats > matrix.MaxRepeats:
		return SubmitReply{}, &RefusedError{Why: fmt.Sprintf("a cell is repeated 1 to %d times, not %d", matrix.MaxRepeats, r.Repeats)}
	}
	if made := view.Requested(r.Request); made != nil {
		if t := trigger(made); t == nil || t.Kind != proto.TriggerRepeat || t.Of != r.Of || t.Repeats != r.Repeats || made.Origin != of.Origin || !sameCells(made.Cells, r.Cells) {
			return SubmitReply{}, otherRequest(made)
		}
		return c.made(made)
	}
	add, err := repeatOf(view, of, r.Cells, r.Repeats)
	if err != nil {
		return SubmitReply{}, err
	}
	add.ID, add.Request = r.Of+"-repeat", r.Request
	reply, err := c.add(ctx, *add, true)
	if err != nil {
		return SubmitReply{}, fmt.Errorf("repeat cells of %s: %w", r.Of, err)
	}
	c.log.Info("cells are recorded again", "sweep", reply.Matrix.ID, "of", r.Of, "cells", len(add.Cells), "repeats", r.Repeats)
	return reply, nil
}

// sameCells compares two lists in whatever order and however often they name a cell.
func sameCells(a, b []proto.CellID) bool {
	unique := func(ids []proto.CellID) []proto.CellID { return slices.Compact(slices.Sorted(slices.Values(ids))) }
	return slices.Equal(unique(a), unique(b))
}

// repeatOf is the sweep that records cells again, without its id.
func repeatOf(v registry.View, of *registry.Sweep, ids []proto.CellID, n int) (*registry.AddSweep, error) {
	add := &registry.AddSweep{Name: of.Name, Origin: of.Origin, Search: of.Search, Source: of.Source, Set: of.Set,
		Rollout: &proto.Rollout{Trigger: &proto.RolloutTrigger{Kind: proto.TriggerRepeat, Of: of.ID, Repeats: n}}}
	for _, id := range ids {
		record := v.Records[registry.Key{Origin: of.Origin, Cell: id}]
		if record == nil {
			return nil, &RefusedError{Why: fmt.Sprintf("there is no %s cell %q", of.Origin, id)}
		}
		add.Cells = append(add.Cells, record.Cell)
	}
	if len(add.Cells) == 0 {
		return nil, &RefusedError{Why: "there is no cell to repeat"}
	}
	return add, nil
}

// repeats are the recordings that repeating sweeps still want, one at a time
// for each cell.
func repeats(v registry.View) []registry.IssueRequest {
	wanted := make(map[registry.Key]bool)
	for _, s := range v.Sweeps {
		if s.Cancelled || s.Rollout == nil || s.Rollout.Trigger == nil || s.Rollout.Trigger.Repeats == 0 || s.Rollout.Verdict != nil {
			continue
		}
		for _, id := range s.Cells {
			key := registry.Key{Origin: s.Origin, Cell: id}
			if rec := v.Records[key]; len(rec.Open) == 0 && s.Missing(rec) > 0 {
				wanted[key] = true
			}
		}
	}
	var out []registry.IssueRequest
	for key := range wanted {
		out = append(out, registry.IssueRequest{Key: key, Kind: proto.TaskRecord, TimeoutSeconds: plan.TimeoutSeconds(v.Records[key].Cell), Repeat: true})
	}
	slices.SortFunc(out, func(a, b registry.IssueRequest) int {
		return cmp.Or(v.Records[a.Key].Cell.Compare(v.Records[b.Key].Cell), a.Key.Compare(b.Key))
	})
	return out
}

package coordinator

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/oomfleet/oomfleet/allocator"
	"github.com/oomfleet/oomfleet/coordinator/plan"
	"github.com/oomfleet/oomfleet/storage/registry"
	"github.com/oomfleet/oomfleet/storage/trace"
)

// compare holds a recording against what a program says of its cell, and returns
// the doubt where they differ, else nil. A program that says nothing of the cell,
// or that is not the family's any more, is left alone. reordered: a cell that was
// missed frees the same blocks in another order, which is its own doing.
func (d *duty) compare(ctx context.Context, r plan.Replay, events []allocator.Event) (doubt *registry.SetProgram, reordered bool, err error) {
	family, err := d.programs.get(ctx, r.Check)
	switch {
	case errors.Is(err, trace.ErrNotFound), errors.Is(err, trace.ErrCorrupt), errors.Is(err, errProgram):
		return nil, false, nil
	case err != nil:
		return nil, false, fmt.Errorf("read program %s: %w", r.Check, err)
	}
	said, err := family.Trace(r.Cell.SeqLen, r.Cell.Batch, r.Cell.ChunkSize)
	if err != nil {
		return nil, false, nil // outside its domain
	}
	why := difference(said, events)
	if why == "" {
		return nil, false, nil
	}
	if r.Missed && slices.Equal(allocated(said), allocated(events)) {
		return nil, true, nil
	}
	key := registry.FamilyOf(r.Key.Origin, r.Cell)
	p := d.registry.View().Programs[key]
	if p == nil || p.Digest != r.Check || p.Stale != "" {
		return nil, false, nil
	}
	stale := fmt.Sprintf("the recording of %s is another program: %s", r.Cell, why)
	return &registry.SetProgram{Family: key, Inputs: p.Inputs, Program: p.Digest, Domains: p.Domains, Tested: p.Tested, Stale: stale}, false, nil
}

// raise commits a doubt.
func (d *duty) raise(ctx context.Context, doubt *registry.SetProgram) error {
	if _, err := d.propose(ctx, registry.Command{SetProgram: doubt}); err != nil {
		return fmt.Errorf("doubt program %s: %w", doubt.Program, err)
	}
	d.log.Warn("program is stale, its cells are recorded", "family", doubt.Family.Family, "origin", doubt.Family.Origin, "why", doubt.Stale)
	return nil
}

// request is what a program asks of the allocator: a block of this size, or the
// release of the block that it asked for as its n-th.
type request struct {
	free bool
	n    int64
}

// difference says where two runs ask for other things; empty when they do not.
// Where blocks lie and what the allocator does for itself is no part of it.
func difference(said, seen []allocator.Event) string {
	a, b := requests(said), requests(seen)
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return fmt.Sprintf("at request %d it %s, the program says that it %s", i, b[i], a[i])
		}
	}
	if len(a) != len(b) {
		return fmt.Sprintf("it makes %d requests, the program says %d", len(b), len(a))
	}
	return ""
}

// String says the request in words.
func (r request) String() string {
	if r.free {
		return fmt.Sprintf("frees block %d", r.n)
	}
	return fmt.Sprintf("allocates %d bytes", r.n)
}

func requests(events []allocator.Event) []request {
	var out []request
	blocks := make(map[uint64]int64)
	next := int64(0)
	for _, e := range events {
		switch e.Action {
		case allocator.Alloc:
			blocks[e.Addr] = next
			next++
			out = append(out, request{n: e.Size})
		case allocator.FreeRequested:
			out = append(out, request{free: true, n: blocks[e.Addr]})
		}
	}
	return out
}

// allocated are the allocations alone.
func allocated(events []allocator.Event) []request {
	return slices.DeleteFunc(requests(events), func(r request) bool { return r.free })
}

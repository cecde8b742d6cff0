package coordinator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/oomfleet/oomfleet/allocator"
	"github.com/oomfleet/oomfleet/coordinator/plan"
	"github.com/oomfleet/oomfleet/proto"
	"github.com/oomfleet/oomfleet/storage/registry"
	"github.com/oomfleet/oomfleet/storage/trace"
)

// build makes the program behind a family's recordings, stores it and commits
// what came of it. An error means that it was not known today: the store or the
// registry could not be reached.
func (d *duty) build(ctx context.Context, b plan.Build) error {
	set := registry.SetProgram{Family: b.Family}
	for _, in := range b.Inputs {
		set.Inputs = append(set.Inputs, in.Trace.Digest)
	}
	refused := set
	err := d.guard(pieceBuild, aboutTraces(set.Inputs), func() (err error) {
		set, err = d.program(ctx, b, set)
		return err
	})
	if why := mistake(err); why != "" { // for good: the family's cells are recorded
		set, err = refused, nil
		set.Refused = why
	}
	if err == nil {
		var reply registry.Reply
		reply, err = d.propose(ctx, registry.Command{SetProgram: &set})
		if err == nil && reply.Refused != "" {
			err = errors.New(reply.Refused)
		}
	}
	result := buildMade
	switch {
	case err != nil && ctx.Err() != nil:
		return err
	case err != nil:
		d.metrics.builds.WithLabelValues(buildFailed).Inc()
		return fmt.Errorf("build the program of %s: %w", b.Family.Family, err)
	case set.NeedMore:
		result = buildNeedMore
	case set.Refused != "":
		result = buildRefused
	}
	d.metrics.builds.WithLabelValues(result).Inc()
	d.log.Info("recordings were read for their program", "family", b.Family.Family, "origin", b.Family.Origin, "recordings", len(b.Inputs),
		"result", result, "why", set.Refused, "tested", set.Tested)
	return nil
}

// program reads the recordings and adds what they determine to set.
func (d *duty) program(ctx context.Context, b plan.Build, set registry.SetProgram) (registry.SetProgram, error) {
	var recordings []allocator.Recording
	held := 0
	for _, in := range b.Inputs {
		events, why, err := d.recording(ctx, in.Trace.Digest)
		if err != nil {
			return set, err
		}
		if held += len(events); held > mostHeld {
			why = fmt.Sprintf("the recordings up to this one hold more than %d events together", mostHeld)
		}
		if why == "" {
			why = unknownTo(ctx, events, in.Env)
		}
		if ctx.Err() != nil {
			return set, ctx.Err()
		}
		if why != "" {
			set.Refused = fmt.Sprintf("length %d at batch %d: %s", in.SeqLen, in.Batch, why)
			return set, nil
		}
		recordings = append(recordings, allocator.Recording{SeqLen: in.SeqLen, Batch: in.Batch, Chunk: b.ChunkSize, Events: events})
	}
	family, more, err := derive(ctx, recordings)
	if ctx.Err() != nil {
		return set, ctx.Err()
	}
	if err != nil {
		set.Refused, set.NeedMore = err.Error(), more
		return set, nil
	}
	text, err := json.Marshal(family)
	if err != nil {
		return set, fmt.Errorf("encode the program: %w", err)
	}
	set.Tested = string(allocator.LeftOneOut)
	for _, piece := range family.Domains() {
		set.Domains = append(set.Domains, registry.ProgramDomain{
			SeqLen: proto.Range{piece.SeqLenFrom, piece.SeqLenTo}, Batch: proto.Range{piece.BatchFrom, piece.BatchTo}, Partial: piece.Partial,
		})
		if piece.Tested != allocator.LeftOneOut {
			set.Tested = string(piece.Tested)
		}
	}
	set.Program, err = d.traces.PutProgram(ctx, text)
	return set, err
}

// mostHeld is how many events are held decoded for one program, 40 bytes each:
// those of two of the largest traces.
const mostHeld = 2 * trace.MaxEvents

// unknownTo says what the model does not know of a recording; empty for
// nothing. A program that is made from it would be predicted wrong.
func unknownTo(ctx context.Context, events []allocator.Event, env map[string]string) string {
	settings, err := allocator.SettingsFromEnv(env)
	if err != nil {
		return fmt.Sprintf("the allocator's settings are not modelled: %v", err)
	}
	program, err := allocator.Compile(events)
	if err != nil {
		return err.Error()
	}
	check, err := program.SelfCheckUntil(settings, func() bool { return ctx.Err() != nil })
	if err != nil {
		return err.Error()
	}
	if check.Mismatches > 0 {
		return fmt.Sprintf("the recording holds what the model does not know: %s", check.First)
	}
	return ""
}

const (
	// spareChunked and spareWhole are how many recordings determine sizes of
	// degree 2 (chunks) and 3, and one to test them with.
	spareChunked = 4
	spareWhole   = 5
)

// derive makes one program of the recordings, the cheapest first. Short runs
// may be no part of it: a loop that turns once does not show its body, and
// small sizes take other kernels. So the cheapest are left out in turn as long
// as one recording is to spare, which then tests the rest; the domain begins
// behind them. Where none of that gives one, the odd one may stand anywhere: a
// cell whose runs differ in order records a run of its own. Then each but the longest
// is left out alone, if one is to spare. more says that further recordings may help.
func derive(ctx context.Context, recordings []allocator.Recording) (f *allocator.Family, more bool, err error) {
	spare := spareWhole
	if recordings[0].Chunk > 0 {
		spare = spareChunked
	}
	for from := 0; from == 0 || len(recordings)-from >= spare; from++ {
		if ctx.Err() != nil {
			return nil, false, ctx.Err()
		}
		f, failed := allocator.BuildFamily(recordings[from:])
		if failed == nil {
			return f, false, nil
		}
		if err == nil {
			err = failed // of all recordings: what a reader wants to know
		}
		more = more || errors.Is(failed, allocator.ErrTooFewTraces)
	}
	for odd := 1; odd < len(recordings)-1 && len(recordings) > spare; odd++ {
		if ctx.Err() != nil {
			return nil, false, ctx.Err()
		}
		if f, failed := allocator.BuildFamily(slices.Delete(slices.Clone(recordings), odd, odd+1)); failed == nil {
			return f, false, nil
		}
	}
	return nil, more || len(recordings) <= spare, err
}

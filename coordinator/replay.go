package coordinator

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/oomfleet/oomfleet/allocator"
	"github.com/oomfleet/oomfleet/coordinator/plan"
	"github.com/oomfleet/oomfleet/proto"
	"github.com/oomfleet/oomfleet/storage/registry"
	"github.com/oomfleet/oomfleet/storage/trace"
)

// errProgram is returned when a stored program cannot be read by this build.
var errProgram = errors.New("unreadable program")

// replay sweeps one recording or program over all quotas and commits what it
// says, or why it says nothing. An error means that it was not known today: the
// store or the registry could not be reached.
func (d *duty) replay(ctx context.Context, r plan.Replay) error {
	begin := time.Now()
	var a answer
	err := d.guard(pieceReplay, aboutReplay(r), func() (err error) {
		a, err = d.predict(ctx, r)
		return err
	})
	if why := mistake(err); why != "" { // for good: the cell goes on as where replay has nothing to say
		a, err = answer{Prediction: proto.Prediction{Refused: why, Lesson: lessonOf(r)}}, nil
	}
	if err == nil && a.doubt != nil {
		err = d.raise(ctx, a.doubt)
	}
	prediction := a.Prediction
	if err == nil {
		prediction.Trace, prediction.Program = r.Trace.Digest, r.Program
		var reply registry.Reply
		reply, err = d.propose(ctx, registry.Command{SetPrediction: &registry.SetPrediction{Key: r.Key, Prediction: prediction}})
		if err == nil && reply.Refused != "" {
			d.log.Debug("prediction came too late", "cell", r.Key.Cell, "why", reply.Refused)
		}
	}
	switch {
	case err != nil && ctx.Err() != nil:
		return err
	case err != nil:
		d.metrics.replays.WithLabelValues(replayFailed).Inc()
	case prediction.Refused != "":
		d.metrics.replays.WithLabelValues(replayRefused).Inc()
		d.log.Info("replay refused to predict", "cell", r.Key.Cell, "program", r.Program, "why", prediction.Refused)
	default:
		d.metrics.replays.WithLabelValues(replayPredicted).Inc()
		d.log.Debug("boundary predicted", "cell", r.Key.Cell, "program", r.Program, "boundary", int64(prediction.Boundary.Boundary))
	}
	d.metrics.replaySeconds.Observe(time.Since(begin).Seconds())
	return err
}

// answer is what came of a replay: a prediction, and the doubt in a program that
// came up on the way, which is committed first: were it second, a crash in
// between would lose it.
type answer struct {
	proto.Prediction
	doubt *registry.SetProgram // nil for none
}

// predict reads what is to be replayed and sweeps it. A recording is first held
// against the program that says what it should hold. It commits nothing.
func (d *duty) predict(ctx context.Context, r plan.Replay) (a answer, err error) {
	switch {
	case r.Program != "":
		a.Prediction, err = d.predictByProgram(ctx, r)
		return a, err
	case r.Lesson.Number > 0:
		a.Prediction, err = d.teach(ctx, r)
		return a, err
	}
	events, why, err := d.recording(ctx, r.Trace.Digest)
	if err != nil || why != "" {
		return answer{Prediction: proto.Prediction{Refused: why}}, err
	}
	if r.Check != "" {
		var reordered bool
		if a.doubt, reordered, err = d.compare(ctx, r, events); err != nil {
			return answer{}, err
		}
		r.Varies = r.Varies || reordered
	}
	a.Prediction, err = d.predictByRecording(ctx, r, events)
	return a, err
}

// predictByRecording sweeps the program that a recording shows.
func (d *duty) predictByRecording(ctx context.Context, r plan.Replay, events []allocator.Event) (proto.Prediction, error) {
	recorded, err := allocator.SettingsFromEnv(r.Recorded)
	if err != nil {
		return proto.Prediction{Refused: fmt.Sprintf("the allocator's settings are not modelled: %v", err)}, nil
	}
	program, err := allocator.Compile(events)
	if err != nil {
		return proto.Prediction{Refused: err.Error()}, nil
	}
	varies := r.Varies
	if r.Against != "" && !varies {
		if varies, err = d.reordered(ctx, r, program); err != nil {
			return proto.Prediction{}, err
		}
	}
	p, err := sweep(ctx, program, recorded, r)
	p.Varies, p.BandsKnown = varies, p.BandsKnown && !varies
	return p, err
}

// recording reads a trace. why says for good why it is of no use.
func (d *duty) recording(ctx context.Context, digest proto.Digest) (events []allocator.Event, why string, err error) {
	events, meta, err := d.traces.GetTrace(ctx, digest)
	switch {
	case errors.Is(err, trace.ErrNotFound), errors.Is(err, trace.ErrCorrupt), errors.Is(err, trace.ErrFormat):
		return nil, fmt.Sprintf("the recording cannot be read: %v", err), nil
	case err != nil:
		return nil, "", fmt.Errorf("read trace %s: %w", digest, err)
	case meta.Truncated:
		return nil, "the start of the recording was lost", nil
	}
	return events, "", nil
}

// predictByProgram sweeps the program that a recording of the cell would show.
func (d *duty) predictByProgram(ctx context.Context, r plan.Replay) (proto.Prediction, error) {
	family, err := d.programs.get(ctx, r.Program)
	switch {
	case errors.Is(err, trace.ErrNotFound), errors.Is(err, trace.ErrCorrupt), errors.Is(err, errProgram):
		return proto.Prediction{Refused: fmt.Sprintf("the program cannot be read: %v", err)}, nil
	case err != nil:
		return proto.Prediction{}, fmt.Errorf("read program %s: %w", r.Program, err)
	}
	program, err := family.At(r.Cell.SeqLen, r.Cell.Batch, r.Cell.ChunkSize)
	if err != nil {
		return proto.Prediction{Refused: err.Error()}, nil
	}
	return sweep(ctx, program, allocator.Settings{}, r)
}

// sweep is the pure part, but for ending with ctx: from a program to a
// prediction under the cell's settings.
func sweep(ctx context.Context, program *allocator.Program, recorded allocator.Settings, r plan.Replay) (proto.Prediction, error) {
	settings, err := allocator.SettingsFromEnv(r.Cell.AllocatorEnv())
	if err != nil {
		return proto.Prediction{Refused: fmt.Sprintf("the allocator's settings are not modelled: %v", err)}, nil
	}
	o := allocator.SweepOptions{Settings: settings, Recorded: recorded, Step: int64(r.Step), Stop: func() bool { return ctx.Err() != nil }}
	if r.Cell.QuotaKind != proto.QuotaAllocator {
		o.Kind, o.Overhead = allocator.SweepDevice, int64(r.Overhead)
	}
	result, err := program.Sweep(o)
	switch {
	case ctx.Err() != nil:
		return proto.Prediction{}, fmt.Errorf("sweep: %w", context.Cause(ctx))
	case err != nil:
		return proto.Prediction{Refused: err.Error()}, nil
	}
	if n := result.SelfCheckMismatches; n > 0 {
		return proto.Prediction{Refused: fmt.Sprintf("the recording holds what the model does not know: %d events landed elsewhere", n)}, nil
	}
	p := proto.Prediction{
		Boundary: proto.Boundary{
			Boundary: proto.Bytes(result.Boundary), LowestPass: proto.Bytes(result.LowestPass), NoRetry: proto.Bytes(result.NoRetry),
			FailBands: make([]proto.Band, 0, len(result.FailBands)), BandsKnown: true, LayoutSensitive: result.LayoutSensitive,
		},
		PeakAllocated: proto.Bytes(result.Uncapped.PeakAllocated), PeakReserved: proto.Bytes(result.Uncapped.PeakReserved),
	}
	if o.Kind != allocator.SweepDevice { // under others a run's own limit is not exactly known
		refused := program.Replay(settings, allocator.ReplayOptions{Limit: allocator.Limit{Cap: int64(p.Boundary.Boundary - r.Step)}, Stop: o.Stop})
		switch {
		case refused.Stopped:
			return proto.Prediction{}, fmt.Errorf("sweep: %w", context.Cause(ctx))
		case refused.OOM:
			p.RefusedPeak = proto.Bytes(refused.PeakAllocated)
		}
	}
	for _, b := range result.FailBands {
		p.FailBands = append(p.FailBands, proto.Band{From: proto.Bytes(b.From), To: proto.Bytes(b.To)})
	}
	return p, nil
}

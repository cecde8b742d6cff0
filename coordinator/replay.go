package coordinator

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/oomfleet/oomfleet/allocator"
	"github.com/oomfleet/oomfleet/coordinator/plan"
	"github.com/oomfleet/oomfleet/proto"
	"github.com/oomfleet/oomfleet/storage/registry"
	"github.com/oomfleet/oomfleet/storage/trace"
)

// replay sweeps one recording over all quotas and commits what it says, or why
// it says nothing. An error means that it was not known today: the store or the
// registry could not be reached.
func (d *duty) replay(ctx context.Context, r plan.Replay) error {
	begin := time.Now()
	prediction, err := d.predict(ctx, r)
	if err == nil {
		prediction.Trace = r.Trace.Digest
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
		d.log.Info("replay refused to predict", "cell", r.Key.Cell, "why", prediction.Refused)
	default:
		d.metrics.replays.WithLabelValues(replayPredicted).Inc()
		d.log.Debug("boundary predicted", "cell", r.Key.Cell, "boundary", int64(prediction.Boundary.Boundary))
	}
	d.metrics.replaySeconds.Observe(time.Since(begin).Seconds())
	return err
}

// predict reads the recording and sweeps it.
func (d *duty) predict(ctx context.Context, r plan.Replay) (proto.Prediction, error) {
	events, meta, err := d.traces.GetTrace(ctx, r.Trace.Digest)
	switch {
	case errors.Is(err, trace.ErrNotFound), errors.Is(err, trace.ErrCorrupt), errors.Is(err, trace.ErrFormat):
		return proto.Prediction{Refused: fmt.Sprintf("the recording cannot be read: %v", err)}, nil
	case err != nil:
		return proto.Prediction{}, fmt.Errorf("read trace %s: %w", r.Trace.Digest, err)
	case meta.Truncated:
		return proto.Prediction{Refused: "the start of the recording was lost"}, nil
	}
	return sweep(events, r), nil
}

// sweep is the pure part: from the recording's events to a prediction.
func sweep(events []allocator.Event, r plan.Replay) proto.Prediction {
	settings, err := allocator.SettingsFromEnv(allocatorEnv(r.Cell.Env))
	if err != nil {
		return proto.Prediction{Refused: fmt.Sprintf("the allocator's settings are not modelled: %v", err)}
	}
	// The recording ran under the cell's own environment: the settings to
	// predict for are those that it was made under.
	o := allocator.SweepOptions{Settings: settings, Recorded: settings, Step: int64(r.Step)}
	if r.Cell.QuotaKind != proto.QuotaAllocator {
		o.Kind, o.Overhead = allocator.SweepDevice, int64(r.Overhead)
	}
	result, err := allocator.Sweep(events, o)
	if err != nil {
		return proto.Prediction{Refused: err.Error()}
	}
	if n := result.SelfCheckMismatches; n > 0 {
		return proto.Prediction{Refused: fmt.Sprintf("the recording holds what the model does not know: %d events landed elsewhere", n)}
	}
	p := proto.Prediction{Boundary: proto.Boundary{
		Boundary: proto.Bytes(result.Boundary), LowestPass: proto.Bytes(result.LowestPass), NoRetry: proto.Bytes(result.NoRetry),
		FailBands: make([]proto.Band, 0, len(result.FailBands)), BandsKnown: true, LayoutSensitive: result.LayoutSensitive,
	}}
	for _, b := range result.FailBands {
		p.FailBands = append(p.FailBands, proto.Band{From: proto.Bytes(b.From), To: proto.Bytes(b.To)})
	}
	return p
}

// allocatorEnv keeps the allocator's own variables. Every other one changed the
// program, and the recording already shows how.
func allocatorEnv(env map[string]string) map[string]string {
	kept := maps.Clone(env)
	maps.DeleteFunc(kept, func(name, _ string) bool {
		return name != "PYTORCH_CUDA_ALLOC_CONF" && name != "PYTORCH_ALLOC_CONF"
	})
	return kept
}

package coordinator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/oomfleet/oomfleet/coordinator/plan"
	"github.com/oomfleet/oomfleet/fit"
	"github.com/oomfleet/oomfleet/proto"
	"github.com/oomfleet/oomfleet/storage/registry"
)

// startFit fits a group beside the loop, unless the same recordings were tried
// before and gave nothing.
func (d *duty) startFit(ctx context.Context, f plan.Fit) {
	var tasks []string
	for _, rec := range f.Records {
		tasks = append(tasks, string(rec.Recording().Task))
	}
	recordings := strings.Join(tasks, " ")
	if d.tried[f.Key] == recordings {
		return
	}
	if d.fits.start(f.Key, func() error { return d.fit(ctx, f.Key, f.Records) }) {
		d.tried[f.Key] = recordings
	}
}

// fit computes a group's coefficients and commits them. A group that cannot be
// fitted gets none, and the log says so once a term of leadership. An error means that the commit
// did not come through.
func (d *duty) fit(ctx context.Context, key registry.GroupKey, records []*registry.Record) error {
	var models []proto.Coefficients
	err := d.guard(pieceFit, aboutTraces(tracesBehind(records)), func() (err error) {
		models, err = coefficients(records)
		return err
	})
	if err != nil {
		d.metrics.fits.WithLabelValues(fitRefused).Inc()
		d.log.Info("group has no coefficients", "group", key.Group, "quota_kind", key.QuotaKind, "origin", key.Origin,
			"recordings", len(records), "why", err)
		return nil
	}
	set := registry.SetCoefficients{Key: key, Models: models}
	for _, rec := range records {
		set.Evidence = append(set.Evidence, rec.Recording().Task)
	}
	reply, err := d.propose(ctx, registry.Command{SetCoefficients: &set})
	if err == nil && reply.Refused != "" {
		err = errors.New(reply.Refused)
	}
	if err != nil {
		if ctx.Err() == nil {
			d.log.Warn("coefficients were not committed, the fit will be made again", "group", key.Group, "error", err)
		}
		return fmt.Errorf("commit coefficients: %w", err)
	}
	d.metrics.fits.WithLabelValues(fitCommitted).Inc()
	d.log.Info("coefficients committed", "group", key.Group, "quota_kind", key.QuotaKind, "origin", key.Origin,
		"recordings", len(records), "targets", len(models))
	return nil
}

// tracesBehind are the traces of the records' recordings, as far as there are.
func tracesBehind(records []*registry.Record) (out []proto.Digest) {
	for _, rec := range records {
		if run := rec.Recording(); run != nil && run.Trace != nil {
			out = append(out, run.Trace.Digest)
		}
	}
	return out
}

// coefficients fits the recordings of one group; they are never empty.
func coefficients(records []*registry.Record) ([]proto.Coefficients, error) {
	points := make([]fit.Point, 0, len(records))
	for _, rec := range records {
		points = append(points, pointOf(rec))
	}
	models, err := fit.Fit(points, fit.Options{})
	if err != nil {
		return nil, err
	}
	documents := make([]proto.Coefficients, 0, len(models))
	for _, m := range models {
		text, err := json.Marshal(m)
		if err != nil {
			return nil, fmt.Errorf("encode the model of %s: %w", m.Target, err)
		}
		c := proto.Coefficients{
			Group: records[0].Group(), QuotaKind: records[0].Cell.QuotaKind, Origin: records[0].Key.Origin, Target: string(m.Target),
			ResidualMaxRel: m.ResidualMaxRel,
			Domain:         proto.Domain{SeqLen: m.Domain.SeqLen, Batch: m.Domain.Batch},
			Points:         m.Points, Notes: m.Notes, Model: text,
		}
		for _, t := range m.Terms {
			c.Terms = append(c.Terms, proto.Term(t))
		}
		documents = append(documents, c)
	}
	return documents, nil
}

// pointOf is a recording as a fit takes it; what was not metered is 0.
func pointOf(rec *registry.Record) fit.Point {
	m := rec.Recording().Meters
	return fit.Point{
		SeqLen: rec.Cell.SeqLen, Batch: rec.Cell.Batch, Chunk: rec.Cell.ChunkSize,
		Allocated: metered(m.PeakAllocated), Reserved: metered(m.PeakReserved), Process: metered(m.ProcessPeak),
		Weights: metered(m.Weights), Context: metered(m.Context), LoadedReserved: metered(m.LoadedReserved),
	}
}

func metered(b *proto.Bytes) int64 {
	if b == nil {
		return 0
	}
	return int64(*b)
}

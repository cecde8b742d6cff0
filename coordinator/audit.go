package coordinator

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/oomfleet/oomfleet/proto"
	"github.com/oomfleet/oomfleet/storage/registry"
)

// audit compares the registry, which is the record, with the queue, which is a
// cache of it: an open task that the queue does not hold is published again
// (unless windows hold it back), a task in the queue that is not open any more is
// removed.
//
// The order of the three looks is what makes it safe. The queue comes first: a
// task that it does not hold was never published, was lost, or was acked, and
// then its report lay in the queue before. Then the reports: with none pending
// that report has been committed. The view comes last and shows it. Tasks that
// are issued in between cannot be mistaken, since issuing is this goroutine's.
func (d *duty) audit(ctx context.Context) error {
	waiting, err := d.queue.Waiting(ctx)
	if err != nil {
		return fmt.Errorf("audit the queue: %w", err)
	}
	asked := d.now()
	pending, err := d.queue.ReportsPending(ctx)
	if err != nil {
		return fmt.Errorf("audit the reports: %w", err)
	}
	if pending == 0 {
		d.quiet.set(asked)
	}
	view := d.registry.View()
	missing, stale, foreign := compare(view, waiting)
	lost := d.windows.audited(view, waiting, missing)
	if foreign != d.foreign { // once, not at every audit
		d.foreign = foreign
		d.log.Warn("queue holds tasks of cells that the registry never knew", "tasks", foreign)
	}
	for _, pool := range slices.Sorted(maps.Keys(stale)) {
		if err := d.queue.Remove(ctx, pool, stale[pool]); err != nil {
			return fmt.Errorf("remove closed tasks: %w", err)
		}
		d.metrics.removed.Add(float64(len(stale[pool])))
		d.log.Info("closed tasks removed from the queue", "tasks", len(stale[pool]))
	}
	if len(lost) == 0 { // nothing waits to be published but what is held back
		d.queue.probe(ctx, len(waiting) > 0)
	}
	if pending > 0 || len(lost) == 0 {
		return nil
	}
	now := d.windows.admit(lost)
	d.log.Warn("open tasks were not in the queue, they are published again", "tasks", len(now), "held", len(lost)-len(now))
	d.metrics.republished.Add(float64(len(now)))
	return d.publish(ctx, now)
}

// compare lists the open tasks that do not wait in the queue, in canonical
// order, and the ids that wait there and are not open, by pool. Foreign ids
// name no record of this view: another registry's, and not ours to remove.
func compare(v registry.View, waiting map[proto.TaskID]bool) (missing []proto.Task, stale map[proto.Pool][]proto.TaskID, foreign int) {
	open := make(map[proto.TaskID]bool)
	for _, rec := range v.Records {
		for _, o := range rec.Open {
			open[o.Task.ID] = true
			if !waiting[o.Task.ID] {
				missing = append(missing, o.Task)
			}
		}
	}
	slices.SortFunc(missing, func(a, b proto.Task) int { return strings.Compare(string(a.ID), string(b.ID)) })
	stale = make(map[proto.Pool][]proto.TaskID)
	for _, id := range slices.Sorted(maps.Keys(waiting)) {
		if open[id] {
			continue
		}
		rec := recordOf(v, id)
		if rec == nil {
			foreign++
			continue
		}
		pool := proto.PoolOf(rec.Key.Origin, rec.Cell.GPU, rec.Cell.Driver)
		stale[pool] = append(stale[pool], id)
	}
	return missing, stale, foreign
}

// recordOf finds the record of a task id, <m|s>-<cell>-<number>; nil for none.
func recordOf(v registry.View, id proto.TaskID) *registry.Record {
	letter, rest, _ := strings.Cut(string(id), "-")
	cell, _, _ := strings.Cut(rest, "-")
	origins := map[string]proto.Origin{"m": proto.OriginMeasured, "s": proto.OriginSimulated}
	return v.Records[registry.Key{Origin: origins[letter], Cell: proto.CellID(cell)}]
}

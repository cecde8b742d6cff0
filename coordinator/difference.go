package coordinator

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/oomfleet/oomfleet/coordinator/diff"
	"github.com/oomfleet/oomfleet/proto"
	"github.com/oomfleet/oomfleet/storage/registry"
)

// verdicts compares every sweep that has settled on one stack with that of the
// same cells on the one before (BaseOf), and keeps the verdict with the sweep. A
// sweep that only repeats cells is about the sweep that it was made for: that
// one is compared again.
func (d *duty) verdicts(ctx context.Context, audit bool) error {
	v := d.registry.View() // with what this round has settled
	if !(audit || d.rollout.settled) || d.rollout.judged == v.AppliedIndex {
		return nil
	}
	for _, s := range byIndex(v) {
		if s.Cancelled || s.Rollout != nil && s.Rollout.Verdict != nil || d.rollout.incomparable[s.ID] || !settledWhole(v, s) {
			continue
		}
		if err := d.compareSweep(ctx, v, s); err != nil {
			return err
		}
	}
	d.rollout.settled, d.rollout.judged = false, v.AppliedIndex
	return nil
}

// compareSweep makes and commits one sweep's verdict; none, and no error, when
// there is nothing to compare it with.
func (d *duty) compareSweep(ctx context.Context, v registry.View, s *registry.Sweep) error {
	about := s
	if t := trigger(s); t != nil && t.Kind == proto.TriggerRepeat {
		about = v.Sweeps[t.Of]
	}
	var doc diff.Document
	var ok bool
	err := d.guard(pieceCompare, "matrix status "+string(about.ID)+" --json", func() (err error) {
		doc, ok, err = d.rollout.bases.difference(v, about)
		return err
	})
	if err != nil {
		if d.rollout.incomparable == nil {
			d.rollout.incomparable = make(map[proto.MatrixID]bool)
		}
		d.rollout.incomparable[s.ID] = true
		d.log.Warn("sweep cannot be compared with the one before", "sweep", about.ID, "error", err)
		return nil
	}
	if !ok {
		if _, _, newer := d.rollout.bases.of(v, about); newer && d.rollout.once("older driver"+string(about.ID)) {
			d.log.Info("sweep is of an older driver than all others of its card, there is no rollout to judge: compare with matrix diff", "sweep", about.ID)
		}
		return nil
	}
	verdict := doc.Short()
	if about == s && verdict.Verdict == proto.VerdictNeedMore {
		// Before the verdict: a sweep that has one is not looked at again.
		if err := d.repeatUndecided(ctx, v, about, doc); err != nil {
			return err
		}
	}
	for _, id := range slices.Compact([]proto.MatrixID{about.ID, s.ID}) {
		reply, err := d.propose(ctx, registry.Command{SetVerdict: &registry.SetVerdict{ID: id, Verdict: verdict}})
		if err != nil {
			return fmt.Errorf("keep the verdict on %s: %w", id, err)
		}
		if !reply.Accepted || id != about.ID {
			continue
		}
		d.metrics.comparisons.WithLabelValues(verdictLabel(verdict.Verdict)).Inc()
		d.log.Info("sweep compared with the one before", "sweep", id, "base", verdict.Base, "from", verdict.From.Driver, "to", verdict.To.Driver,
			"verdict", verdict.Verdict, "summary", verdict.Summary, "same", verdict.Same, "changed", verdict.Changed, "need_more", verdict.NeedMore)
	}
	return nil
}

// repeatUndecided records the undecided cells of a comparison again where the
// standing order wants that, once, and only those that an agent is there for.
func (d *duty) repeatUndecided(ctx context.Context, v registry.View, s *registry.Sweep, doc diff.Document) error {
	policy := policyOf(v, s)
	cells, most := doc.RepeatCells()
	if policy == nil || policy.Repeats == 0 || len(cells) == 0 {
		return nil
	}
	agents, err := d.queue.Agents(ctx)
	if err != nil {
		return fmt.Errorf("list the agents that repeat cells: %w", err)
	}
	served := make(map[proto.Pool]bool)
	for _, a := range agents {
		served[a.Stack.Pool(a.Origin)] = true
	}
	cells = slices.DeleteFunc(cells, func(id proto.CellID) bool {
		rec := v.Records[registry.Key{Origin: s.Origin, Cell: id}]
		return rec == nil || !served[proto.PoolOf(s.Origin, rec.Cell.GPU, rec.Cell.Driver)]
	})
	if len(cells) == 0 {
		d.log.Warn("undecided cells cannot be repeated, no agent is there for them", "sweep", s.ID)
		return nil
	}
	add, err := repeatOf(v, s, cells, min(policy.Repeats, most))
	if err != nil {
		return fmt.Errorf("repeat the undecided cells of %s: %w", s.ID, err)
	}
	add.ID = s.ID + "-repeat"
	reply, err := d.propose(ctx, registry.Command{AddSweep: add})
	if err != nil {
		return fmt.Errorf("repeat the undecided cells of %s: %w", s.ID, err)
	}
	d.log.Info("undecided cells are recorded again", "sweep", add.ID, "of", s.ID, "cells", len(add.Cells), "repeats", add.Rollout.Trigger.Repeats, "refused", reply.Refused)
	return nil
}

// difference compares a sweep with one before it that has settled on the stack
// before its own (BaseOf); ok is false where there is none, or where the sweep itself is
// of several stacks. It is a function of the view alone. The error satisfies
// diff.ErrInput.
func (b *bases) difference(v registry.View, s *registry.Sweep) (doc diff.Document, ok bool, err error) {
	if t := trigger(s); t != nil && t.Kind == proto.TriggerNewStack && t.Repeats > 0 {
		return acrossTorch(v, s, t.Stack.Torch)
	}
	base, driver, _ := b.of(v, s)
	if base == nil {
		return diff.Document{}, false, nil
	}
	var options diff.Options
	if p := policyOf(v, s); p != nil {
		options.Margin, options.Confidence = p.Margin, p.Confidence
	}
	before, _ := v.Report(base.ID)
	after, _ := v.Report(s.ID)
	doc, err = diff.Sweeps(diff.Side{Name: string(base.ID), Report: before, Driver: driver}, diff.Side{Name: string(s.ID), Report: after}, options)
	return doc, err == nil, err
}

// acrossTorch compares the recordings of a sweep's cells under a new torch with
// those of the torch that recorded them last before.
func acrossTorch(v registry.View, s *registry.Sweep, torch string) (doc diff.Document, ok bool, err error) {
	var old string
	var newest uint64
	for _, id := range s.Cells {
		for _, run := range v.Records[registry.Key{Origin: s.Origin, Cell: id}].Runs {
			if run.Kind == proto.TaskRecord && run.Outcome.Verdict() == proto.VerdictPass && run.Stack.Torch != torch && run.Index < s.Index && run.Index > newest {
				old, newest = run.Stack.Torch, run.Index
			}
		}
	}
	if old == "" {
		return diff.Document{}, false, nil
	}
	var options diff.Options
	if p := policyOf(v, s); p != nil {
		options.Margin, options.Confidence = p.Margin, p.Confidence
	}
	report, _ := v.Report(s.ID)
	doc, err = diff.Sweeps(diff.Side{Name: string(s.ID), Report: report, Torch: old}, diff.Side{Name: string(s.ID), Report: report, Torch: torch}, options)
	return doc, err == nil, err
}

// policyOf is the standing order that a sweep belongs to; nil for none.
func policyOf(v registry.View, s *registry.Sweep) *proto.RolloutPolicy {
	if s.Rollout == nil {
		return nil
	}
	if t := s.Rollout.Trigger; t != nil {
		if of := v.Sweeps[t.Of]; of != nil && of != s && of.Rollout != nil {
			return of.Rollout.Policy
		}
		return nil
	}
	return s.Rollout.Policy
}

func trigger(s *registry.Sweep) *proto.RolloutTrigger {
	if s.Rollout == nil {
		return nil
	}
	return s.Rollout.Trigger
}

// settledWhole reports whether nothing of a sweep is in work.
func settledWhole(v registry.View, s *registry.Sweep) bool {
	return !slices.ContainsFunc(s.Cells, func(id proto.CellID) bool {
		rec := v.Records[registry.Key{Origin: s.Origin, Cell: id}]
		return rec.Settled == nil || s.Missing(rec) > 0
	})
}

// byIndex are the sweeps in the order of their submission.
func byIndex(v registry.View) []*registry.Sweep {
	return slices.SortedFunc(maps.Values(v.Sweeps), func(a, b *registry.Sweep) int { return cmp.Compare(a.Index, b.Index) })
}

// verdictSeries is one series of the gauge of compared sweeps.
type verdictSeries struct {
	origin  proto.Origin
	verdict string
}

// countVerdicts counts the compared sweeps; every verdict of an origin that has
// sweeps is there, so that an alert sees a zero and not a gap.
func countVerdicts(v registry.View) map[verdictSeries]int {
	out := make(map[verdictSeries]int)
	for _, s := range v.Sweeps {
		for _, label := range verdictLabels() {
			out[verdictSeries{s.Origin, label}] += 0
		}
		if t := trigger(s); s.Rollout != nil && s.Rollout.Verdict != nil && (t == nil || t.Kind != proto.TriggerRepeat) {
			out[verdictSeries{s.Origin, verdictLabel(s.Rollout.Verdict.Verdict)}]++
		}
	}
	return out
}

func verdictLabels() []string {
	return []string{verdictLabel(proto.VerdictSame), verdictLabel(proto.VerdictChanged), verdictLabel(proto.VerdictNeedMore)}
}

// verdictLabel is a verdict as a label's value.
func verdictLabel(w proto.VerdictWord) string { return strings.ReplaceAll(string(w), " ", "_") }

package coordinator

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/oomfleet/oomfleet/proto"
	"github.com/oomfleet/oomfleet/storage/registry"
)

// rolloutMemo is what a term of leadership remembers of rollouts. It saves work
// and keeps the log from saying the same again; a new leader does without.
type rolloutMemo struct {
	// orders names the orders and stacks of the last look at which nothing was
	// left to be done.
	orders string
	// told are the refusals and delays that the log has.
	told map[string]bool
	// settled is whether cells have settled since the last comparison, judged
	// the applied index of it.
	settled bool
	judged  uint64
	// incomparable are sweeps of which the comparison was refused.
	incomparable map[proto.MatrixID]bool
	bases        bases
	expansions   expansions
}

// once reports whether this is said for the first time in this term.
func (m *rolloutMemo) once(text string) bool {
	if m.told == nil {
		m.told = make(map[string]bool)
	}
	first := !m.told[text]
	m.told[text] = true
	return first
}

// rollouts submits the sweep of every stack that a standing order has not
// covered. The sweep's id follows from its cells, so that two leaders that see
// the same agent submit one and the same sweep.
func (d *duty) rollouts(ctx context.Context) error {
	view := d.registry.View()
	orders := standingOrders(view)
	if len(orders) == 0 {
		return nil
	}
	agents, err := d.queue.Agents(ctx)
	if err != nil { // visit has said so; orders wait for the next audit, and nothing else waits for them
		d.log.Debug("agents that standing orders wait for cannot be listed", "error", err)
		return nil
	}
	var seen strings.Builder
	done := true
	byOrder := make([][]newcomer, len(orders))
	for i, order := range orders {
		byOrder[i] = newcomers(order.Origin, agents)
		fmt.Fprintln(&seen, order.ID, len(view.Sweeps))
		for _, n := range byOrder[i] {
			fmt.Fprintln(&seen, n.stack.GPU, n.stack.Driver, n.stack.CUDA, n.stack.Torch)
		}
	}
	if seen.String() == d.rollout.orders {
		return nil
	}
	for i, order := range orders {
		for _, n := range byOrder[i] {
			covered, err := d.cover(ctx, order, n, byOrder[i])
			if err != nil {
				return err
			}
			done = done && covered
		}
	}
	d.rollout.orders = ""
	if done {
		d.rollout.orders = seen.String()
	}
	return nil
}

// cover submits the sweep that an order asks for on a stack, if there is one.
// It reports whether nothing is left to be done for the stack.
func (d *duty) cover(ctx context.Context, order *registry.Sweep, n newcomer, all []newcomer) (bool, error) {
	view := d.registry.View()
	log := d.log.With("standing", order.ID, "origin", order.Origin, "gpu", n.stack.GPU, "driver", n.stack.Driver, "agent", n.agent)
	text := fmt.Sprint(order.ID, n.stack.GPU, n.stack.Driver, n.stack.CUDA, n.stack.Torch)
	var add *registry.AddSweep
	var waits bool
	err := d.guard(pieceRollout, "the matrix of "+string(order.ID), func() (err error) {
		add, waits, err = d.rollout.expansions.due(view, order, n, all)
		return err
	})
	switch {
	case err != nil:
		if d.rollout.once("refused" + text) {
			d.metrics.rollouts.WithLabelValues(rolloutRefused).Inc()
			log.Error("standing order cannot be swept on a new stack", "error", err)
		}
		return true, nil
	case add == nil:
		return !waits, nil
	}
	if most := order.Rollout.Policy.MaxPerDay; startedToday(view, order, d.now()) >= most {
		if d.rollout.once("held" + text) {
			d.metrics.rollouts.WithLabelValues(rolloutHeld).Inc()
			log.Warn("new stack waits, the standing order has started its sweeps of the day", "max_per_day", most)
		}
		return false, nil
	}
	reply, err := d.propose(ctx, registry.Command{AddSweep: add})
	if errors.Is(err, registry.ErrTooLarge) {
		err, reply.Refused = nil, "it has too many cells for one submission"
	}
	if err != nil {
		return false, fmt.Errorf("submit %s for a new stack: %w", add.ID, err)
	}
	if reply.Refused != "" {
		if d.rollout.once("refused" + text) {
			d.metrics.rollouts.WithLabelValues(rolloutRefused).Inc()
			log.Error("standing order cannot be swept on a new stack", "error", reply.Refused)
		}
		return true, nil
	}
	d.metrics.rollouts.WithLabelValues(rolloutQueued).Inc()
	log.Info("new stack, its sweep starts by itself", "sweep", add.ID, "cells", len(add.Cells), "new", reply.New, "known", reply.Known, "settled", reply.Settled)
	return true, nil
}

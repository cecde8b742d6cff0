package coordinator

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/oomfleet/oomfleet/coordinator/plan"
	"github.com/oomfleet/oomfleet/proto"
	"github.com/oomfleet/oomfleet/queue"
	"github.com/oomfleet/oomfleet/storage/registry"
)

const (
	// batch is how many tasks go into one log entry and one publish; both the
	// registry's log and the queue take a thousand with room to spare.
	batch = 500
	// settling is how many settlements are proposed at once: enough to share
	// the log's fsync, few enough to leave the results their turn.
	settling = 32
)

// duty is one term of leadership. All of it belongs to the goroutine of loop;
// what it remembers only saves work.
type duty struct {
	*Coordinator
	planner plan.Planner
	// rest is the planner's, after a panic.
	rest    rest
	replays *jobs[registry.Key]
	builds  *jobs[registry.FamilyKey]
	fits    *jobs[registry.GroupKey]
	// tried are the recordings of the last fit of a group, so that a group
	// with too few of them is not tried again until it has others.
	tried map[registry.GroupKey]string
	// rollout is what was seen of standing orders and of settled sweeps.
	rollout rolloutMemo
	// windows bound each pool's part of the queue.
	windows *windows
	// foreign is how many tasks of other registries the last audit saw.
	foreign int
	// restored is View.Restored of the registry that all this is about.
	restored uint64
	// together does n things, some of them at once, and returns when all are done.
	together func(n int, do func(i int))
}

func newDuty(c *Coordinator) *duty {
	return &duty{
		Coordinator: c,
		replays:     newJobs[registry.Key](c.cfg.ReplayWorkers, c.room),
		builds:      newJobs[registry.FamilyKey](1, c.room),
		fits:        newJobs[registry.GroupKey](1, nil),
		tried:       make(map[registry.GroupKey]string),
		windows:     newWindows(c.windowOf),
		together:    atOnce,
	}
}

// loop plans after every change and carries the plan out, and audits the queue
// first and then at intervals. It returns nil when ctx ends, and an error that
// satisfies stepDown.
func (d *duty) loop(ctx context.Context) error {
	defer d.part()
	defer d.metrics.held.Set(0)
	tick := time.NewTicker(d.cfg.AuditEvery)
	defer tick.Stop()
	for due := true; ctx.Err() == nil; {
		seen, failed := d.round(ctx, due)
		if stepDown(failed) {
			return failed
		}
		if failed != nil && ctx.Err() == nil {
			d.log.Warn("step ended early, it will be made again", "error", failed)
			pause(ctx, d.cfg.Pause, nil)
			continue
		}
		due = false
		select {
		case <-ctx.Done():
		case <-d.registry.Changed(seen):
		case j := <-d.replays.done:
			d.replayed(ctx, j)
		case j := <-d.builds.done:
			d.built(ctx, j)
		case j := <-d.fits.done:
			d.fitted(j)
		case <-tick.C:
			due = true
		}
	}
	return nil
}

// parting is how long the end of a term waits for its jobs.
const parting = 5 * time.Second

// part joins the jobs, whose context has ended, for a while. To decode and compile
// a recording or to make a program of several cannot be interrupted, and the
// largest that there may be take up to half a minute: what is left behind commits
// nothing, and no other job takes its room before it has ended.
func (d *duty) part() {
	late := time.NewTimer(parting)
	defer late.Stop()
	for _, ended := range []<-chan struct{}{d.replays.ended(), d.builds.ended(), d.fits.ended()} {
		select {
		case <-ended:
		case <-late.C:
			d.log.Info("a recording is still being read, which cannot be broken off; nobody waits for it")
			return
		}
	}
}

// round audits the queue and looks for new stacks when that is due, plans and
// carries the plan out, publishes what was held back, and compares what has
// settled. seen is the applied index of the view that was planned from.
func (d *duty) round(ctx context.Context, due bool) (seen uint64, err error) {
	d.forget(d.registry.View())
	if due {
		d.replays.again()
		d.builds.again()
		d.fits.again()
		if err = d.audit(ctx); err == nil {
			d.visit(ctx)
			err = d.rollouts(ctx)
		}
	}
	view := d.registry.View()
	if err == nil {
		err = d.carryOut(ctx, view)
	}
	if err == nil {
		err = d.refill(ctx)
	}
	if err == nil {
		err = d.verdicts(ctx, due)
	}
	return view.AppliedIndex, err
}

// forget drops what was tried and seen of a registry that a backup has replaced:
// what came of it may be gone.
func (d *duty) forget(v registry.View) {
	if v.Restored == d.restored {
		return
	}
	d.restored, d.rollout = v.Restored, rolloutMemo{}
	clear(d.tried)
}

func (d *duty) replayed(ctx context.Context, j job[registry.Key]) {
	d.replays.finished(j)
	d.jobFailed(ctx, j.err, "replay of cell "+string(j.key.Cell), d.replays.afresh)
}

func (d *duty) built(ctx context.Context, j job[registry.FamilyKey]) {
	d.builds.finished(j)
	d.jobFailed(ctx, j.err, "program of "+j.key.Family, d.builds.afresh)
}

func (d *duty) fitted(j job[registry.GroupKey]) {
	d.fits.finished(j)
	if j.err != nil {
		delete(d.tried, j.key)
	}
}

// jobFailed logs a replay or a build that failed: the first since the last
// audit as a warning, since a store that is down fails them all.
func (d *duty) jobFailed(ctx context.Context, err error, what string, failed int) {
	if err == nil || ctx.Err() != nil {
		return
	}
	level := slog.LevelDebug
	if failed == 1 {
		level = slog.LevelWarn
	}
	d.log.Log(ctx, level, "job failed, it will be tried again", "job", what, "error", err)
}

// carryOut does what the plan for this view wants. Settlements come first, so
// that a fit that waits for them is planned in the next round.
func (d *duty) carryOut(ctx context.Context, view registry.View) error {
	actions, err := d.next(view)
	if err != nil {
		return err
	}
	if err := d.settle(ctx, actions.Settle); err != nil {
		return err
	}
	for _, r := range actions.Predict {
		d.replays.start(r.Key, func() error { return d.replay(ctx, r) })
	}
	for _, b := range actions.Build {
		d.builds.start(b.Family, func() error { return d.build(ctx, b) })
	}
	for _, f := range actions.Fit {
		d.startFit(ctx, f)
	}
	if len(actions.Predict)+len(actions.Build) == 0 { // nothing waits for the store
		d.troubles.over(PartTraces, PartPrograms)
	}
	d.rollout.settled = d.rollout.settled || len(actions.Settle) > 0
	return d.issue(ctx, view.AppliedIndex, append(actions.Issue, repeats(view)...))
}

// next is the plan for this view. A plan that panics leaves the fleet as it is:
// this node goes on leading, answers questions and takes results, so that the
// sweep behind it can be looked at and cancelled. It is tried again, less and less
// often; meanwhile there is nothing to do.
func (d *duty) next(view registry.View) (actions plan.Actions, err error) {
	if !d.rest.over(d.now()) {
		return plan.Actions{}, nil
	}
	err = d.guard(piecePlan, "a backup of the registry", func() error {
		actions = d.planner.Next(view)
		return nil
	})
	if err != nil {
		d.planner = plan.Planner{} // what it remembers may be half of something
		d.rest.longer(d.now(), d.cfg.Pause)
		return plan.Actions{}, fmt.Errorf("plan: %w", err)
	}
	d.rest = rest{}
	return actions, nil
}

// issue commits requests and publishes the tasks that came of them, as far as
// their pools' windows go. What is committed and cannot be published is left to
// the audit.
func (d *duty) issue(ctx context.Context, seen uint64, requests []registry.IssueRequest) error {
	for len(requests) > 0 {
		n := min(batch, len(requests))
		reply, err := d.propose(ctx, registry.Command{Issue: &registry.Issue{Seen: seen, Requests: requests[:n]}})
		if err != nil {
			return fmt.Errorf("issue tasks: %w", err)
		}
		if reply.Refused != "" {
			return fmt.Errorf("issue tasks: the registry refuses: %s", reply.Refused)
		}
		for _, t := range reply.Issued {
			d.metrics.issued.WithLabelValues(string(t.Kind)).Inc()
			d.log.Debug("task issued", "task", t.ID, "cell", t.CellID, "fence", t.Fence)
		}
		if err := d.publish(ctx, d.windows.admit(reply.Issued)); err != nil {
			return err
		}
		requests = requests[n:]
	}
	return nil
}

// publish hands tasks to the queue. A full queue, or disk of its, is no error: what is open and
// not in the queue is published again by the audit when there is room.
func (d *duty) publish(ctx context.Context, tasks []proto.Task) error {
	for len(tasks) > 0 {
		n := min(batch, len(tasks))
		_, err := d.queue.Publish(ctx, tasks[:n])
		switch {
		case err == nil:
		case errors.Is(err, queue.ErrFull), errors.Is(err, queue.ErrNoRoom):
			d.log.Warn("queue is full, tasks wait for the audit", "tasks", len(tasks), "error", err)
			return nil
		case errors.Is(err, queue.ErrTooLarge):
			if err := d.publishSingly(ctx, tasks[:n]); err != nil {
				return err
			}
		default:
			return fmt.Errorf("publish %d tasks: %w", n, err)
		}
		tasks = tasks[n:]
	}
	return nil
}

// publishSingly finds the task that the queue can never take, and closes it
// with a result of our own: its cell is given up with a reason instead of being
// published in vain for ever.
func (d *duty) publishSingly(ctx context.Context, tasks []proto.Task) error {
	for _, t := range tasks {
		_, err := d.queue.Publish(ctx, []proto.Task{t})
		switch {
		case err == nil:
		case errors.Is(err, queue.ErrFull), errors.Is(err, queue.ErrNoRoom):
			return nil
		case errors.Is(err, queue.ErrTooLarge):
			d.log.Error("cell cannot be sent to agents", "cell", t.CellID, "task", t.ID, "error", err)
			_, err = d.propose(ctx, registry.Command{TakeResult: &registry.TakeResult{Result: proto.Result{
				Task: t.ID, Protocol: t.Protocol, Fence: t.Fence, CellID: t.CellID, Origin: t.Origin, Kind: t.Kind, Quota: t.Quota,
				Outcome: proto.OutcomeBadCell, Why: fmt.Sprintf("the cell cannot be sent to agents: %v", err),
			}}})
			if err != nil {
				return fmt.Errorf("close task %s: %w", t.ID, err)
			}
		default:
			return fmt.Errorf("publish task %s: %w", t.ID, err)
		}
	}
	return nil
}

// settle commits settlements, some at once. One that is refused was planned
// from a record that has changed since; the next plan knows better.
func (d *duty) settle(ctx context.Context, settlements []registry.Settle) error {
	errs := make([]error, len(settlements))
	d.together(len(settlements), func(i int) { errs[i] = d.settleOne(ctx, settlements[i]) })
	return errors.Join(errs...)
}

// atOnce does n things, settling of them at once.
func atOnce(n int, do func(i int)) {
	var wg sync.WaitGroup
	slots := make(chan struct{}, settling)
	for i := range n {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			do(i)
		})
	}
	wg.Wait()
}

func (d *duty) settleOne(ctx context.Context, s registry.Settle) error {
	reply, err := d.propose(ctx, registry.Command{Settle: &s})
	if err != nil {
		return fmt.Errorf("settle cell %s: %w", s.Key.Cell, err)
	}
	d.log.Debug("cell settled", "cell", s.Key.Cell, "state", s.Settlement.State, "reason", s.Settlement.Reason, "refused", reply.Refused)
	return nil
}

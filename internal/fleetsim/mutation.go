package fleetsim

import (
	"slices"
	"strings"
	"time"

	"github.com/oomfleet/oomfleet/proto"
	"github.com/oomfleet/oomfleet/storage/registry"
)

// mutation is a bug that a test plants, to see that the checks find it.
type mutation string

const (
	// doubleCount: a result that came before counts again, as the answer to
	// whatever else is open of its cell.
	doubleCount mutation = "a result is counted twice"
	// fenceless: a result counts under any fence that asks for the same run.
	fenceless mutation = "results under old fences count"
	// lostTask: the audit believes that lost tasks lie in the queue.
	lostTask mutation = "a lost task is never missed"
	// splitBrain: a deposed leader goes on committing, to itself.
	splitBrain mutation = "a stale leader commits"
	// believed: a refusal beside a neighbour is taken for the quota's.
	believed mutation = "a disturbed run is believed"
	// uncommitted: a deposed leader publishes tasks that nobody issued.
	uncommitted mutation = "a stale leader publishes what is not committed"
	// unprobed: what no run has shown is called certified.
	unprobed mutation = "a prediction is called certified"
	// again: a quota that has failed is probed once more.
	again mutation = "a decided quota is probed again"
	// skipped: one replica leaves out an entry.
	skipped mutation = "a replica skips an entry"
	// twice: another leader than the first submits a triggered sweep under a name of its own.
	twice mutation = "a standing order is triggered twice"
	// unbounded: leaders forget what an order has started today.
	unbounded mutation = "max_per_day is not held"
	// reused: a restored registry goes on where the backup was taken.
	reused mutation = "a restored registry gives fences anew"
	// nameless: the trace store lists objects without their names.
	nameless mutation = "a trace that is referred to is removed"
	// drainedCounts: an agent that is drained reports the run that it ended.
	drainedCounts mutation = "a drained run is counted"
)

// mutate is the command as a node with the planted bug applies it.
func (n *node) mutate(cmd registry.Command) registry.Command {
	switch n.cfg.mutation {
	case doubleCount, fenceless:
		if cmd.TakeResult != nil {
			own := *cmd.TakeResult
			n.recount(&own)
			cmd.TakeResult = &own
		}
	case unprobed:
		if cmd.Settle != nil && cmd.Settle.Settlement.State == proto.CellPredicted {
			own := *cmd.Settle
			own.Settlement.State = proto.CellCertified
			cmd.Settle = &own
		}
	case again:
		if cmd.Issue != nil {
			own := *cmd.Issue
			own.Requests = slices.Clone(own.Requests)
			for i := range own.Requests {
				n.askAgain(&own.Requests[i])
			}
			cmd.Issue = &own
		}
	case skipped:
		if n.id == 1 && n.applied == 30 {
			return registry.Command{Version: cmd.Version, CancelSweep: &registry.CancelSweep{ID: "never-seen"}}
		}
	}
	return cmd
}

// recount makes a late result fit an open task.
func (n *node) recount(cmd *registry.TakeResult) {
	r := &cmd.Result
	rec := n.machine.View().Records[registry.Key{Origin: r.Origin, Cell: r.CellID}]
	if rec == nil || slices.ContainsFunc(rec.Open, func(o registry.OpenTask) bool { return o.Task.ID == r.Task && o.Task.Fence == r.Fence }) {
		return
	}
	for _, o := range rec.Open {
		same := o.Task.Kind == r.Kind && o.Task.Quota == r.Quota
		before := slices.ContainsFunc(rec.Runs, func(run registry.Run) bool { return run.Task == r.Task })
		if n.cfg.mutation == fenceless && same || n.cfg.mutation == doubleCount && before {
			r.Task, r.Fence, r.Kind, r.Quota = o.Task.ID, o.Task.Fence, o.Task.Kind, o.Task.Quota
			return
		}
	}
}

// askAgain makes a probe ask for what has failed already, where something has.
func (n *node) askAgain(r *registry.IssueRequest) {
	rec := n.machine.View().Records[r.Key]
	if rec == nil || r.Kind != proto.TaskProbe {
		return
	}
	for _, ran := range rec.Runs {
		if ran.Kind == proto.TaskProbe && ran.Outcome.Verdict() == proto.VerdictFail {
			r.Quota = ran.Quota
		}
	}
}

// invent is what a leader publishes that did not wait for its entry.
func invent(tasks []proto.Task) []proto.Task {
	out := slices.Clone(tasks)
	for i := range out {
		out[i].Fence++
	}
	return out
}

// today is the coordinator's clock; with the planted bug all it looks back at is
// days ago.
func (n *node) today() time.Time {
	if n.cfg.mutation == unbounded {
		return n.clock().Add(10 * night)
	}
	return n.clock()
}

// triggerAgain submits a triggered sweep under another name.
func (c *cluster) triggerAgain(p *proposal) {
	add := p.cmd.AddSweep
	if add == nil || !p.reply.Accepted || add.Rollout == nil || add.Rollout.Trigger == nil || add.Rollout.Trigger.Kind != proto.TriggerNewStack || strings.HasSuffix(string(add.ID), "-again") {
		return
	}
	own := *add
	own.ID += "-again"
	c.commit(&proposal{from: p.from, cmd: registry.Command{Version: p.cmd.Version, AddSweep: &own}})
}

// splitBrain commits on a node that does not lead.
func (c *cluster) splitBrain(p *proposal) {
	n := p.from
	n.applied++
	p.cmd.Version = registry.CommandVersion
	p.reply = n.machine.Apply(n.applied, time.Unix(1_700_000_000, 0).Add(c.now), p.cmd)
	p.believed = true
}

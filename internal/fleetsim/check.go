package fleetsim

import (
	"fmt"
	"strings"

	"github.com/oomfleet/oomfleet/proto"
	"github.com/oomfleet/oomfleet/storage/registry"
)

// Violation is a promise of the fleet that a history broke.
type Violation struct {
	// Kind is the promise: fence, double, disturbed, settled twice, truth,
	// unproven, unjustified, counts, unissued, vain, foreign, replica, snapshot, lost,
	// content, waste, and for what cannot happen at all log, boot and task.
	Kind string
	// What is what was seen, in a sentence.
	What string
	// At is the simulated time.
	At string
}

func (v Violation) String() string { return fmt.Sprintf("%s, at %s: %s", v.Kind, v.At, v.What) }

// checker holds a history to the promises, entry by entry. It keeps books of its
// own on what is open and what was counted, made from what the log said when it
// issued and took, and never from the state that it checks.
type checker struct {
	*sim
	open    map[run]proto.Task
	counted map[run]int
	settled map[registry.Key]uint64
	// disturbed are the runs that something came in between.
	disturbed map[run]string
	// outside are the runs that ran out outside the allocator once.
	outside map[aim]bool
	// cancelled are the sweeps whose cancellation was answered.
	cancelled map[proto.MatrixID]bool
	offered   int
	accepted  int
	first     *Violation
	books     books
	rollouts  rollouts
}

// aim is what a run was asked for.
type aim struct {
	cell  proto.CellID
	kind  proto.TaskKind
	quota proto.Bytes
}

func newChecker(s *sim) *checker {
	return &checker{sim: s, open: make(map[run]proto.Task), counted: make(map[run]int), settled: make(map[registry.Key]uint64),
		disturbed: make(map[run]string), outside: make(map[aim]bool), cancelled: make(map[proto.MatrixID]bool), books: newBooks(), rollouts: newRollouts()}
}

// fail notes the first violation; the history ends there.
func (c *checker) fail(kind, what string) {
	if c.first == nil {
		c.first = &Violation{Kind: kind, What: what, At: c.now.String()}
		c.note("VIOLATION %s: %s", kind, what)
	}
}

func (c *checker) disturb(task proto.Task, how string) {
	c.disturbed[run{task.ID, task.Fence}] = how
	c.noteTask(task, "%s disturbs %s", how, task.ID)
}

// committed checks one entry; before and after are the leader's state.
func (c *checker) committed(before, after registry.View, p *proposal) {
	switch cmd := p.cmd; {
	case cmd.SetVerdict != nil:
		c.judges(cmd.SetVerdict, p)
	case cmd.AddSweep != nil:
		c.triggers(cmd.AddSweep, p.reply, after)
		c.books.submitted[cmd.AddSweep.ID] = true
		for _, cell := range cmd.AddSweep.Cells {
			key := registry.Key{Origin: cmd.AddSweep.Origin, Cell: cell.ID()}
			if rec := after.Records[key]; rec != nil && rec.Settled == nil {
				delete(c.settled, key)
			}
			c.widened(after, after.Records[key])
		}
	case cmd.CancelSweep != nil:
		for _, t := range p.reply.Closed {
			delete(c.open, run{t.ID, t.Fence})
		}
		c.cancels(cmd.CancelSweep.ID, after)
	case cmd.Issue != nil:
		for _, t := range p.reply.Issued {
			c.issues(t, before)
		}
	case cmd.TakeResult != nil:
		c.took(cmd.TakeResult.Result, p.reply)
		c.tally(after)
	case cmd.Settle != nil && p.reply.Accepted:
		c.settles(cmd.Settle.Key, before.Records[cmd.Settle.Key], after)
	}
}

// took checks a result: it counts under its own fence, once, and says the truth.
func (c *checker) took(r proto.Result, reply registry.Reply) {
	this := run{r.Task, r.Fence}
	task, open := c.open[this]
	if open && (r.CellID != task.CellID || r.Kind != task.Kind || r.Quota != task.Quota) {
		open = false // the answer to another question
	}
	c.offered++
	c.books.offered[this] = true
	if reply.Accepted {
		c.accepted++
		if c.counted[this]++; c.counted[this] > 1 {
			c.fail("double", fmt.Sprintf("the result of %s under fence %d is counted a second time", r.Task, r.Fence))
		}
	}
	if reply.Accepted != open {
		c.fail("fence", fmt.Sprintf("the result of %s under fence %d: accepted %v, and that task is open: %v", r.Task, r.Fence, reply.Accepted, open))
	}
	if !reply.Accepted {
		return
	}
	delete(c.open, this)
	if c.books.ended[ended{r.Agent, this}] && r.Evidence.Seconds == 0 { // what came to an end says how long it took
		c.fail("drained", fmt.Sprintf("%s of %s by %s counts, whose run was ended with the agent", r.Outcome, r.Task, r.Agent))
	}
	if r.Stack.Pool(r.Origin) != task.Pool() {
		c.fail("foreign", fmt.Sprintf("the result of %s is of an agent with driver %s and was taken", r.Task, r.Stack.Driver))
	}
	t := c.town.truths[registry.Key{Origin: r.Origin, Cell: r.CellID}]
	says := r.Outcome.Verdict()
	c.counts(task, r.Outcome)
	if r.Kind == proto.TaskProbe && (says == proto.VerdictPass && !t.mayPass(r.Quota) || says == proto.VerdictFail && !t.mayFail(r.Quota)) ||
		r.Kind == proto.TaskRecord && r.Quota == 0 && says == proto.VerdictFail {
		c.fail("disturbed", fmt.Sprintf("%s at %s is taken for %s (%s), which is not so; it was disturbed by: %s",
			r.Task, r.Quota, r.Outcome, r.Why, c.disturbed[this]))
	}
}

// tally: what was offered is either a run or counted as late.
func (c *checker) tally(v registry.View) {
	runs, late := 0, v.Late
	for _, rec := range v.Records {
		runs += len(rec.Runs)
		late += rec.Late
	}
	if runs != c.accepted || runs+late != c.offered {
		c.fail("counts", fmt.Sprintf("%d results were offered and %d accepted; the registry has %d runs and %d late", c.offered, c.accepted, runs, late))
	}
}

// settles checks the final word on a cell, as it is said.
func (c *checker) settles(key registry.Key, rec *registry.Record, after registry.View) {
	if at, ok := c.settled[key]; ok {
		c.fail("settled twice", fmt.Sprintf("cell %s settled at entry %d and again", rec.Cell, at))
	}
	c.settled[key] = after.AppliedIndex
	c.revises(after.Records[key])
	s := after.Records[key].Settled
	switch s.State {
	case proto.CellFailed:
		if why := c.unjustified(rec, s.Reason); why != "" {
			c.fail("unjustified", fmt.Sprintf("cell %s failed: %s; %s", rec.Cell, s.Reason, why))
		}
	case proto.CellCertified, proto.CellBisected, proto.CellAdaptive:
		if err := c.town.truths[key].edgeAt(s.Boundary.Boundary, rec.Search); err != nil {
			c.fail("truth", fmt.Sprintf("cell %s settled %s (%s): %v", rec.Cell, s.State, s.Reason, err))
		}
	}
	if why := c.unproven(rec, s); s.State != proto.CellFailed && s.State != proto.CellCancelled && why != "" {
		c.fail("unproven", fmt.Sprintf("cell %s settled %s at %s (%s), and %s", rec.Cell, s.State, s.Boundary.Boundary, s.Reason, why))
	}
}

// edgeAt says why a pass at b and a fail below are not what runs do. Below the
// range of the search nobody looked.
func (t *truth) edgeAt(b proto.Bytes, in proto.Search) error {
	lowest := max(in.Min.RoundUp(t.cell.Step), t.cell.Step)
	if b < lowest || !t.mayPass(b) || b > lowest && !t.mayFail(b-t.cell.Step) {
		return fmt.Errorf("%s is no edge; those of the truth are %v", b, t.edges())
	}
	return nil
}

// unjustified says why neither the disturbances nor the range of the search
// explain that a cell was given up; empty when they do.
func (c *checker) unjustified(rec *registry.Record, reason string) string {
	t := c.town.truths[rec.Key]
	if strings.HasPrefix(reason, "does not pass at the largest quota") && rec.Search.Max > 0 && t.mayFail(rec.Search.Max.RoundDown(t.cell.Step)) {
		return ""
	}
	if !strings.HasPrefix(reason, "gave up after") {
		return "there is no such reason for it"
	}
	disturbed := 0
	for _, r := range rec.Runs[rec.RunsBefore:] {
		for fenced := range c.disturbed {
			if fenced.task == r.Task {
				disturbed++
			}
		}
	}
	if disturbed < 3 {
		return fmt.Sprintf("only %d of its runs were disturbed", disturbed)
	}
	return ""
}

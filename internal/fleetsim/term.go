package fleetsim

import (
	"context"
	"errors"
	"time"

	"github.com/oomfleet/oomfleet/coordinator"
)

const (
	auditEvery = 5 * time.Second
	pauseTime  = time.Second
)

// term is one term of a node's leadership: the coordinator's loop, its intake and
// the jobs beside them, each a process.
type term struct {
	node      *node
	real      *coordinator.Term
	ctx       context.Context
	cancel    context.CancelCauseFunc
	processes []*process
	running   int
	dead      bool // the machine is gone
	// wakeUp wakes the loop where it waits for something new; news is what came
	// while it did not wait.
	wakeUp func()
	news   bool
	tick   time.Duration
}

var errDeposed = errors.New("leadership lost")

// lead begins a term, unless the node has one or does not lead.
func (n *node) lead() {
	if n.term != nil || !n.up || n.leader != n {
		return
	}
	t := &term{node: n}
	t.ctx, t.cancel = context.WithCancelCause(n.root)
	t.real = n.service.NewTerm(func(work func()) { t.start(work) })
	n.term = t
	t.start(t.loop)
	t.start(func() {
		if err := t.real.Intake(t.ctx); err != nil {
			t.cancel(err)
			t.interrupt()
		}
	})
}

func (t *term) start(body func()) {
	if t.dead {
		return
	}
	t.running++
	t.processes = append(t.processes, t.node.start(t.ctx, body, func() {
		t.running--
		t.wake()
		if t.running == 0 && t.node.term == t {
			t.node.term = nil
			t.node.after(pauseTime, t.node.lead) // as Coordinator.Run does
		}
	}))
}

// loop does what the coordinator's own loop does: a round after every change, an
// audit at intervals, a pause after what failed.
func (t *term) loop() {
	n := t.node
	t.tick = n.now + auditEvery
	for due := true; t.ctx.Err() == nil; {
		t.news = false
		seen, err := t.real.Round(t.ctx, due)
		switch {
		case stepsDown(err):
			t.cancel(err)
			t.interrupt()
			return
		case err != nil:
			if n.await(func(done func()) { n.after(pauseTime, done) }) != nil {
				continue
			}
		default:
			due = t.wait(seen)
		}
	}
}

// wait is over when the registry is beyond seen, a job has ended or an audit is due.
func (t *term) wait(seen uint64) (auditDue bool) {
	n := t.node
	if n.last <= seen && !t.news && n.now < t.tick {
		_ = n.await(func(done func()) { // the loop looks at its context next
			t.wakeUp = done
			n.after(t.tick-n.now, done)
		})
		t.wakeUp = nil
	}
	if n.now < t.tick {
		return false
	}
	t.tick = n.now + auditEvery
	return true
}

// wake tells the loop that there is something new.
func (t *term) wake() {
	t.news = true
	if t.wakeUp != nil {
		t.wakeUp()
	}
}

func (n *node) wake() {
	if n.term != nil {
		n.term.wake()
	}
}

// depose tells the node that it does not lead any more: its duties end.
func (n *node) depose() {
	if t := n.term; t != nil && t.ctx.Err() == nil {
		n.note("node %d learns that it does not lead", n.id)
		t.cancel(errDeposed)
		t.interrupt()
	}
}

func (t *term) interrupt() {
	for _, p := range t.processes {
		p.interrupt()
	}
}

// kill ends the term with its machine.
func (t *term) kill() {
	t.dead = true
	t.cancel(errDeposed)
	for _, p := range t.processes {
		if !p.dead {
			p.kill()
		}
	}
}

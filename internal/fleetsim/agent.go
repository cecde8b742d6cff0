package fleetsim

import (
	"fmt"
	"slices"
	"time"

	"github.com/oomfleet/oomfleet/allocator"
	"github.com/oomfleet/oomfleet/proto"
)

// agent is an agent's process and card, as package agent behaves: it takes a
// task, keeps its lease, runs it, keeps the result on its disk, stores the trace,
// reports, and only then acks.
type agent struct {
	*sim
	id proto.AgentID
	// life numbers the processes: what an earlier one began ends with it.
	life int
	// frozen is until when the process stands still.
	frozen time.Duration
	idle   bool
	rig
	hands
	presence
	drain
}

// rig is the card and what drives it.
type rig struct {
	// stack is what it has now, whose pool it pulls from; home what it has but for
	// a while.
	stack, home proto.Stack
	// wrong and lost are until when the card has another driver, or is gone.
	wrong, lost time.Duration
}

// hands are what an agent holds.
type hands struct {
	held *message
	// running is the task that it runs now; nil between runs.
	running *proto.Task
	// outbox outlives the process, reported does not.
	outbox   []*parcel
	reported map[run]bool
}

// run is one execution of a task that counts.
type run struct {
	task  proto.TaskID
	fence proto.Fence
}

// parcel is a finished run on its way home.
type parcel struct {
	result proto.Result
	events []allocator.Event
	// stored: this try has put the trace.
	stored bool
}

func newAgent(s *sim, number int, stack proto.Stack) *agent {
	return &agent{sim: s, id: proto.AgentID(fmt.Sprintf("gpu-%d", number)),
		rig: rig{stack: stack, home: stack}, hands: hands{reported: make(map[run]bool)}, presence: presence{down: true, seen: -announced}}
}

// later goes on in a while, if this process is still there and not frozen.
func (a *agent) later(d time.Duration, do func()) {
	life := a.life
	a.after(d, func() {
		switch {
		case a.life != life:
		case a.frozen > a.now:
			a.later(a.frozen-a.now, do)
		default:
			do()
		}
	})
}

// nudge tells an idle agent that there may be a task.
func (a *agent) nudge() {
	if a.idle {
		a.idle = false
		a.later(a.dice.between("pull", time.Millisecond, 50*time.Millisecond), a.next)
	}
}

// next brings home what is left, then takes a task.
func (a *agent) next() {
	a.held = nil
	if a.draining() {
		a.leave(nil)
		return
	}
	if len(a.outbox) > 0 {
		a.deliver(a.outbox[0], nil)
		return
	}
	if a.lost > a.now {
		a.later(10*time.Second, a.next) // in quarantine
		return
	}
	m := a.queue.pull(a.stack.Pool(proto.OriginSimulated))
	if m == nil {
		a.idle = true
		if a.queue.down {
			a.idle = false
			a.later(5*time.Second, a.next)
		}
		return
	}
	this := run{m.task.ID, m.task.Fence}
	if err := m.task.Validate(); err != nil {
		a.check.fail("task", fmt.Sprintf("agents cannot use task %s: %v", m.task.ID, err))
		return
	}
	if a.reported[this] {
		delete(a.reported, this)
		a.queue.ack(m)
		a.later(0, a.next)
		return
	}
	a.held = m
	a.renew(m)
	a.work(m)
}

// renew keeps the lease as long as the task is in hand.
func (a *agent) renew(m *message) {
	a.later(lease/4, func() {
		if a.held == m {
			a.queue.extend(m)
			a.renew(m)
		}
	})
}

// work runs a task.
func (a *agent) work(m *message) {
	took := a.dice.between("run", 2*time.Second, 15*time.Second)
	a.running = &m.task
	delete(a.check.books.ended, ended{a.id, run{m.task.ID, m.task.Fence}})
	if a.trouble.hits(a.now, FaultPause, 25) {
		a.frozen, a.seen = a.now+a.dice.between("pause", lease/2, 4*lease), a.now
		a.noteTask(m.task, "%s stands still until %s", a.id, a.frozen.Round(time.Second))
	}
	a.later(took, func() {
		if a.running != &m.task {
			return // it was ended
		}
		a.running = nil
		p := a.finish(m.task, took)
		a.outbox = append(a.outbox, p)
		a.noteTask(m.task, "%s ran %s: %s", a.id, m.task.ID, p.result.Outcome)
		if a.dies() {
			return
		}
		a.deliver(p, m)
	})
}

// dies ends the process with some odds, between two steps.
func (a *agent) dies() bool {
	if !a.trouble.hits(a.now, FaultCrash, 15) {
		return false
	}
	a.crash()
	return true
}

// deliver stores the trace, reports, and acks; it tries until it is done. m is nil
// for what an earlier process left.
func (a *agent) deliver(p *parcel, m *message) {
	again := func() { a.deliver(p, m) }
	if len(p.events) > 0 && !p.stored {
		if a.store.down {
			a.later(2*time.Second, again)
			return
		}
		digest := digestOf(fmt.Sprint(p.events))
		a.store.traces[digest] = p.events
		a.put(digest)
		p.stored = true
		p.result.Evidence.Trace = &proto.TraceRef{Digest: digest, Size: proto.Bytes(40 * len(p.events)), Events: int64(len(p.events))}
		if !a.dies() {
			a.later(a.latency("store", 5*time.Millisecond, 80*time.Millisecond), again)
		}
		return
	}
	if p.stored = false; !a.queue.report(p.result) {
		a.later(2*time.Second, again)
		return
	}
	a.outbox = slices.DeleteFunc(a.outbox, func(o *parcel) bool { return o == p })
	if a.dies() {
		return
	}
	rest := time.Duration(0)
	if p.result.Outcome == proto.OutcomeAgentFault {
		rest = a.dice.between("quarantine", 5*time.Second, 40*time.Second)
	}
	a.later(a.dice.between("ack", time.Millisecond, 20*time.Millisecond), func() {
		if m != nil && !a.queue.ack(m) {
			a.reported[run{m.task.ID, m.task.Fence}] = true
		}
		a.held = nil
		a.later(rest, a.next)
	})
}

// crash ends the process; another starts a while later.
func (a *agent) crash() {
	a.note("%s dies", a.id)
	if !a.down && a.frozen <= a.now {
		a.seen = a.now
	}
	a.ends()
}

// ends is the end of the process, whatever ended it; another starts a while later.
func (a *agent) ends() {
	a.life++
	a.idle, a.held, a.running, a.frozen, a.down, a.by = false, nil, nil, 0, true, 0
	a.reported = make(map[run]bool)
	for _, p := range a.outbox {
		p.stored = false // the next process puts it again
	}
	a.later(a.dice.between("restart", 2*time.Second, 40*time.Second), a.begin)
}

// begin is the start of a process.
func (a *agent) begin() {
	a.down = false
	a.next()
}

// moves brings the agent back with another driver.
func (a *agent) moves(to proto.Stack) {
	if a.stack != to {
		a.note("%s gets driver %s", a.id, to.Driver)
		a.crash()
		a.stack = to
	}
}

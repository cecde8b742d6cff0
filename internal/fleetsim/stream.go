package fleetsim

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/oomfleet/oomfleet/proto"
)

const (
	// lease is how long a delivered task is an agent's, reportLease a report the
	// leader's.
	lease       = 30 * time.Second
	reportLease = 5 * time.Second
)

var errNoQueue = errors.New("the queue does not answer")

// stream is the work queue as its users see it (package queue): tasks until they
// are acked, reports until they are committed, neither of them fenced.
type stream struct {
	*sim
	seq     uint64
	tasks   []*message // in the order in which they were published
	reports []*letter
	// stored are the reports that came in, so that one which is sent twice is kept once.
	stored map[string]bool
	down   bool
	// takers are the intakes that wait for a report: the leader's, and those of
	// leaders that do not know yet.
	takers []func()
}

// message is a task that lies in the queue.
type message struct {
	seq  uint64
	task proto.Task
	// rests is until when it is not delivered: somebody has it, or gave it back.
	rests time.Duration
}

type letter struct {
	result proto.Result
	rests  time.Duration
}

func newStream(s *sim) *stream { return &stream{sim: s, stored: make(map[string]bool)} }

// publish adds tasks. One that lies there is not doubled, one of another fence
// replaced, one that was acked delivered again.
func (q *stream) publish(tasks []proto.Task) {
	for _, t := range tasks {
		q.check.published(t)
		at := slices.IndexFunc(q.tasks, func(m *message) bool { return m.task.ID == t.ID })
		if at >= 0 && q.tasks[at].task.Fence == t.Fence {
			continue
		}
		if at >= 0 {
			q.tasks = slices.Delete(q.tasks, at, at+1)
		}
		q.seq++
		q.tasks = append(q.tasks, &message{seq: q.seq, task: t})
		q.wakeAgents()
	}
}

func (q *stream) waiting() map[proto.TaskID]bool {
	ids := make(map[proto.TaskID]bool, len(q.tasks))
	for _, m := range q.tasks {
		ids[m.task.ID] = true
	}
	return ids
}

func (q *stream) remove(ids []proto.TaskID) {
	q.tasks = slices.DeleteFunc(q.tasks, func(m *message) bool { return slices.Contains(ids, m.task.ID) })
}

// pull delivers a task of a pool; nil when none is ready.
func (q *stream) pull(pool proto.Pool) *message {
	if q.down {
		return nil
	}
	var ready []*message
	for _, m := range q.tasks {
		if m.task.Pool() == pool && m.rests <= q.now {
			ready = append(ready, m)
		}
	}
	if len(ready) == 0 {
		return nil
	}
	m := ready[0]
	if len(ready) > 1 && q.trouble.hits(q.now, FaultOrder, 500) {
		m = one(q.dice.of("order"), ready...)
	}
	if !q.trouble.hits(q.now, FaultDouble, 60) { // else the next one who asks gets it too
		q.hold(m, lease)
	} else {
		q.wakeAgents()
	}
	return m
}

// hold keeps a task from others for a while.
func (q *stream) hold(m *message, d time.Duration) {
	m.rests = q.now + d
	q.after(d, func() {
		if m.rests <= q.now {
			q.wakeAgents()
		}
	})
}

// extend renews a lease, whoever asks.
func (q *stream) extend(m *message) {
	if !q.down && slices.Contains(q.tasks, m) {
		q.hold(m, lease)
	}
}

// release gives a task to others at once; its lease ends where the queue does not
// answer.
func (q *stream) release(m *message) {
	if !q.down && slices.Contains(q.tasks, m) {
		m.rests = q.now
		q.wakeAgents()
	}
}

// ack removes a task, whoever asks; it reports whether the queue answered.
func (q *stream) ack(m *message) bool {
	if q.down || q.trouble.hits(q.now, FaultAck, 80) {
		return false
	}
	gone := func() { q.tasks = slices.DeleteFunc(q.tasks, func(o *message) bool { return o == m }) }
	if q.trouble.hits(q.now, FaultAck, 80) {
		q.after(q.dice.between("late ack", time.Second, time.Minute), gone)
		return true
	}
	gone()
	return true
}

// report stores a result; it reports whether the queue answered.
func (q *stream) report(r proto.Result) bool {
	if q.down {
		return false
	}
	// The content is part of it: another run of the same task is another report.
	if id := fmt.Sprintf("%s %d %s %s %s %v", r.Task, r.Fence, r.Agent, r.Stack.Driver, r.Outcome, r.Evidence.Seconds); !q.stored[id] {
		q.stored[id] = true
		q.reports = append(q.reports, &letter{result: r})
		q.wakeIntake()
	}
	return !q.trouble.hits(q.now, FaultAck, 30) // stored, and the answer lost
}

// take delivers the next report; nil when there is none.
func (q *stream) take() *letter {
	if q.down {
		return nil
	}
	for _, l := range q.reports {
		if l.rests > q.now {
			continue
		}
		if !q.trouble.hits(q.now, FaultDouble, 40) {
			l.rests = q.now + reportLease
			q.after(reportLease, q.wakeIntake)
		}
		return l
	}
	return nil
}

func (q *stream) ackReport(l *letter) bool {
	if q.down || q.trouble.hits(q.now, FaultAck, 60) {
		return false
	}
	q.check.acked(l.result)
	q.reports = slices.DeleteFunc(q.reports, func(o *letter) bool { return o == l })
	return true
}

// lose empties the queue's tasks or reports, as a server does that lost its disk.
func (q *stream) lose(tasks, reports bool) {
	q.note("the queue comes back without %d tasks and %d reports", pick(tasks, len(q.tasks)), pick(reports, len(q.reports)))
	if tasks {
		q.tasks = nil
	}
	if reports {
		q.check.books.LostReports += len(q.reports)
		q.reports, q.stored = nil, make(map[string]bool)
	}
}

func pick(yes bool, n int) int {
	if yes {
		return n
	}
	return 0
}

func (q *stream) wakeIntake() {
	takers := q.takers
	q.takers = nil
	for _, look := range takers {
		look()
	}
}

func (q *stream) wakeAgents() {
	for _, a := range q.agents {
		a.nudge()
	}
}

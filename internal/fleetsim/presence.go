package fleetsim

import (
	"fmt"
	"time"

	"github.com/oomfleet/oomfleet/proto"
)

// announced is for how long an agent is listed that does not announce itself any
// more.
const announced = time.Minute

// presence is what others know of an agent being there.
type presence struct {
	// down: there is no process. seen is when the last one of a process that is
	// down or frozen announced itself.
	down bool
	seen time.Duration
}

// announcedUntil is until when the agent is listed if it ends now.
func (a *agent) announcedUntil() time.Duration {
	if a.down || a.frozen > a.now {
		return a.seen + announced
	}
	return a.now + announced
}

// present are the agents that are announced.
func (q *stream) present() []proto.AgentInfo {
	var list []proto.AgentInfo
	for _, a := range q.agents {
		if a.announcedUntil() > q.now {
			list = append(list, a.info())
		}
	}
	return list
}

func (a *agent) info() proto.AgentInfo {
	i := proto.AgentInfo{ID: a.id, Origin: proto.OriginSimulated, Stack: a.stack, Card: a.card(), QuotaKinds: proto.QuotaKinds(), State: proto.AgentIdle}
	switch {
	case a.draining():
		i.State = proto.AgentDraining
	case a.lost > a.now:
		i.State, i.Reason = proto.AgentQuarantined, "the card is lost"
	case a.running != nil:
		i.State, i.Task = proto.AgentBusy, a.running.ID
	}
	return i
}

func (a *agent) card() proto.Card { return proto.Card{UUID: "GPU-" + string(a.id), Total: cardTotal} }

// tell says something to the agents of a pool; those that stand still or are not
// there do not hear it.
func (q *stream) tell(pool proto.Pool, c proto.Control) {
	for _, a := range q.agents {
		if !a.down && a.frozen <= q.now && a.stack.Pool(proto.OriginSimulated) == pool {
			a.hears(c)
		}
	}
}

func (a *agent) hears(c proto.Control) {
	if a.running != nil && c.Stops(*a.running) {
		a.check.stopped(*a.running, c)
		a.noteTask(*a.running, "%s is told to end its run of %s", a.id, a.running.ID)
		m := a.held
		a.running = nil
		if !a.queue.ack(m) {
			a.reported[run{m.task.ID, m.task.Fence}] = true
		}
		a.later(0, a.next)
	}
	if c.Drains(a.id) {
		a.drainWithin(time.Duration(c.DrainSeconds) * time.Second)
	}
}

// drain is until when an agent that is to end may go on with what it does; 0 for
// one that is not.
type drain struct{ by time.Duration }

func (a *agent) draining() bool { return a.by > 0 }

// drainWithin lets the agent take no more work: what it does may go on for so
// long, then its run is ended and its task handed back.
func (a *agent) drainWithin(d time.Duration) {
	by := a.now + d
	if a.down || a.draining() && a.by <= by {
		return
	}
	a.note("%s drains, within %s", a.id, d)
	a.by = by
	if a.idle || a.held == nil && len(a.outbox) == 0 {
		a.leave(nil)
		return
	}
	a.later(d, func() {
		if a.by == by {
			a.leave(a.held)
		}
	})
}

// leave ends the process in order: what it holds goes back, its announcement is
// taken back, what waits in its outbox is left to the next one.
func (a *agent) leave(held *message) {
	a.note("%s leaves", a.id)
	a.check.books.Drained += pick(held != nil, 1)
	if held != nil && a.running != nil {
		a.check.books.ended[ended{a.id, run{held.task.ID, held.task.Fence}}] = true
		if a.cfg.mutation == drainedCounts {
			a.queue.report(a.killed(held.task))
		}
	}
	if held != nil {
		a.queue.release(held)
	}
	a.seen = -announced
	a.ends()
}

// killed is what a drained run must not say.
func (a *agent) killed(task proto.Task) proto.Result {
	return proto.Result{Task: task.ID, Protocol: proto.Version, Fence: task.Fence, CellID: task.CellID, Origin: task.Origin, Kind: task.Kind, Quota: task.Quota,
		Agent: a.id, Stack: a.stack, Card: a.card(), Outcome: proto.OutcomeCrash, Why: "killed", Evidence: proto.Evidence{Signal: "killed"}}
}

// ended is a run that was ended with its agent, until the agent runs it again.
type ended struct {
	agent proto.AgentID
	run   run
}

// stopped checks a run that coordinators end: its task is not open.
func (c *checker) stopped(t proto.Task, said proto.Control) {
	if _, open := c.open[run{t.ID, t.Fence}]; open && uint64(said.Seen) > c.books.restored {
		c.fail("lost", fmt.Sprintf("the run of %s under fence %d is ended as of entry %d, and its task is open", t.ID, t.Fence, said.Seen))
	}
}

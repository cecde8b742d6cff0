package coordinator

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/oomfleet/oomfleet/proto"
	"github.com/oomfleet/oomfleet/storage/registry"
)

// ErrUnknownAgent is returned for an id that no announced agent has.
var ErrUnknownAgent = errors.New("no such agent is announced")

// toldAtOnce is how many task ids go into one message to agents: half of what a
// queue takes with its default limit of 1 MiB.
const toldAtOnce = 10_000

// roster is what the leader's last audit saw of the agents. It is for metrics
// and windowOf alone: an agent that is not announced any more is not in it.
type roster struct {
	mu     sync.Mutex // guards all below
	agents []proto.AgentInfo
	wrong  map[proto.AgentID]bool // their clocks are, and that was said
}

// clockLimit is how far an agent's clock may be from this coordinator's before
// that is said: more than an announcement is old, and far less than the 15
// minutes at which a trace store refuses the agent.
const clockLimit = time.Minute

// set takes what was announced at a time, and returns those whose clocks are off
// by more than clockLimit and were not before.
func (r *roster) set(agents []proto.AgentInfo, at time.Time) (off []proto.AgentInfo) {
	r.mu.Lock()
	defer r.mu.Unlock()
	wrong := map[proto.AgentID]bool{}
	for _, a := range agents {
		if a.SeenUnixMS == 0 || at.Sub(time.UnixMilli(a.SeenUnixMS)).Abs() <= clockLimit {
			continue
		}
		wrong[a.ID] = true
		if !r.wrong[a.ID] {
			off = append(off, a)
		}
	}
	r.agents, r.wrong = agents, wrong
	return off
}

func (r *roster) seen() []proto.AgentInfo {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.agents
}

// visit looks at what the agents announce, and tells those that run a task
// which is not open any more to end it: one that did not hear it when the task
// was cancelled hears it now. Nothing depends on it but GPU time, so a queue
// that cannot say is no reason to end the round.
func (d *duty) visit(ctx context.Context) {
	agents, err := d.queue.Agents(ctx)
	if err != nil {
		d.log.Warn("agents cannot be listed, the next audit asks again", "error", err)
		return
	}
	now := d.now()
	for _, a := range d.roster.set(agents, now) {
		d.log.Warn("an agent's clock differs from this coordinator's, and the trace store will refuse it from 15 minutes on: check NTP on both machines; nothing is ordered by it",
			"agent", a.ID, "host", a.Host, "its_time", time.UnixMilli(a.SeenUnixMS).UTC(), "time_here", now.UTC())
	}
	view := d.registry.View() // after the agents: what one of them runs was committed before
	lost := wasted(view, agents)
	for _, pool := range slices.Sorted(maps.Keys(lost)) {
		d.stop(ctx, pool, lost[pool], view.AppliedIndex)
	}
}

// wasted are the tasks that agents run and that are not open, by pool. Tasks of
// cells that the registry never knew are another registry's.
func wasted(v registry.View, agents []proto.AgentInfo) map[proto.Pool][]proto.TaskID {
	out := make(map[proto.Pool][]proto.TaskID)
	for _, a := range agents {
		if a.Task == "" {
			continue
		}
		rec := recordOf(v, a.Task)
		if rec == nil || slices.ContainsFunc(rec.Open, func(o registry.OpenTask) bool { return o.Task.ID == a.Task }) {
			continue
		}
		pool := a.Stack.Pool(a.Origin)
		out[pool] = append(out[pool], a.Task)
	}
	return out
}

// stop tells the agents of a pool to end their runs of tasks that were not open
// at a log position. What they do not hear now is told again, see visit.
func (c *Coordinator) stop(ctx context.Context, pool proto.Pool, ids []proto.TaskID, seen uint64) {
	for some := range slices.Chunk(ids, toldAtOnce) {
		if err := c.queue.Tell(ctx, pool, proto.Control{Stop: some, Seen: proto.Fence(seen)}); err != nil {
			c.log.Warn("agents could not be told that tasks are cancelled, the next audit tells them", "tasks", len(ids), "error", err)
			return
		}
	}
	c.metrics.stopped.Add(float64(len(ids)))
}

// Drain tells an agent to take no more work and to end; what it runs may go on
// for that long, which is at least a second. The answer is what it announced
// before; ask again until it is gone, since one that did not hear it goes on.
// It fails with ErrUnknownAgent, and as the queue does.
func (c *Coordinator) Drain(ctx context.Context, id proto.AgentID, within time.Duration) (proto.AgentInfo, error) {
	agents, err := c.queue.Agents(ctx)
	if err != nil {
		return proto.AgentInfo{}, fmt.Errorf("drain agent %s: %w", id, err)
	}
	at := slices.IndexFunc(agents, func(a proto.AgentInfo) bool { return a.ID == id })
	if at < 0 {
		return proto.AgentInfo{}, fmt.Errorf("drain %q: %w", id, ErrUnknownAgent)
	}
	agent := agents[at]
	say := proto.Control{Drain: []proto.AgentID{id}, DrainSeconds: int(max(within, time.Second).Seconds())}
	if err := c.queue.Tell(ctx, agent.Stack.Pool(agent.Origin), say); err != nil {
		return proto.AgentInfo{}, fmt.Errorf("drain agent %s: %w", id, err)
	}
	c.log.Info("agent was told to drain", "agent", id, "within", within)
	return agent, nil
}

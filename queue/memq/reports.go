package memq

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/oomfleet/oomfleet/proto"
	"github.com/oomfleet/oomfleet/queue"
)

// Report implements queue.Queue. Ids of reports are remembered for good.
func (q *Queue) Report(ctx context.Context, r proto.Result) error {
	op := "report result of task " + string(r.Task)
	if err := q.open(ctx, op); err != nil {
		return err
	}
	data, err := q.s.encode("result of task "+string(r.Task), r)
	if err != nil {
		return fmt.Errorf("%s: %w", op, err)
	}
	for _, t := range []struct{ what, text string }{{"task id", string(r.Task)}, {"agent id", string(r.Agent)}} {
		if err := checkToken(t.what, t.text); err != nil {
			return fmt.Errorf("%s: %w", op, err)
		}
	}
	key := fmt.Sprintf("%s.%d.%s.%s", r.Task, r.Fence, r.Agent, data)
	q.s.mu.Lock()
	defer q.s.mu.Unlock()
	if q.s.seen[key] {
		return nil
	}
	if len(q.s.reports.items) >= q.s.cfg.MaxTasks {
		return fmt.Errorf("%s: %w: it holds %d reports", op, queue.ErrFull, len(q.s.reports.items))
	}
	q.s.seen[key] = true
	q.s.seq++
	q.s.reports.add(&item{key: key, data: data, seq: q.s.seq})
	q.s.wakeLocked()
	return nil
}

// NextReport implements queue.Queue.
func (q *Queue) NextReport(ctx context.Context) (queue.Report, error) {
	it, data, err := q.wait(ctx, "next report", func() *lane { return q.s.reports }, q.s.cfg.ReportLease)
	if err != nil {
		return nil, err
	}
	return &report{q: q, item: it, data: data}, nil
}

// ReportsPending implements queue.Queue.
func (q *Queue) ReportsPending(ctx context.Context) (int, error) {
	if err := q.open(ctx, "count reports"); err != nil {
		return 0, err
	}
	q.s.mu.Lock()
	defer q.s.mu.Unlock()
	return len(q.s.reports.items), nil
}

// report implements queue.Report.
type report struct {
	q    *Queue
	item *item
	data []byte
}

func (r *report) Result() (proto.Result, error) {
	var res proto.Result
	if err := json.Unmarshal(r.data, &res); err != nil {
		return proto.Result{}, fmt.Errorf("decode result: %w", err)
	}
	return res, nil
}

func (r *report) Ack(ctx context.Context) error {
	if err := r.q.open(ctx, "ack report"); err != nil {
		return err
	}
	r.q.s.mu.Lock()
	defer r.q.s.mu.Unlock()
	r.q.s.reports.remove(r.item)
	return nil
}

// announced is one agent's word about itself.
type announced struct {
	data  []byte
	until time.Time
}

// Announce implements queue.Queue.
func (q *Queue) Announce(ctx context.Context, a proto.AgentInfo, ttl time.Duration) error {
	op := "announce agent " + string(a.ID)
	if err := q.open(ctx, op); err != nil {
		return err
	}
	if err := checkToken("agent id", string(a.ID)); err != nil {
		return fmt.Errorf("%s: %w", op, err)
	}
	data, err := q.s.encode("agent "+string(a.ID), a)
	if err != nil {
		return fmt.Errorf("%s: %w", op, err)
	}
	ttl = max((ttl + time.Second - 1).Truncate(time.Second), time.Second)
	q.s.mu.Lock()
	defer q.s.mu.Unlock()
	q.s.agents[a.ID] = announced{data, q.s.cfg.Clock.Now().Add(ttl)}
	return nil
}

// Retire implements queue.Queue.
func (q *Queue) Retire(ctx context.Context, id proto.AgentID) error {
	if err := q.open(ctx, "retire agent "+string(id)); err != nil {
		return err
	}
	q.s.mu.Lock()
	defer q.s.mu.Unlock()
	delete(q.s.agents, id)
	return nil
}

// Agents implements queue.Queue.
func (q *Queue) Agents(ctx context.Context) ([]proto.AgentInfo, error) {
	if err := q.open(ctx, "list agents"); err != nil {
		return nil, err
	}
	q.s.mu.Lock()
	defer q.s.mu.Unlock()
	var agents []proto.AgentInfo
	for id, said := range q.s.agents {
		if !said.until.After(q.s.cfg.Clock.Now()) {
			delete(q.s.agents, id)
			continue
		}
		var a proto.AgentInfo
		if err := json.Unmarshal(said.data, &a); err != nil {
			return nil, fmt.Errorf("list agents: %s: %w", id, err)
		}
		agents = append(agents, a)
	}
	slices.SortFunc(agents, func(a, b proto.AgentInfo) int { return strings.Compare(string(a.ID), string(b.ID)) })
	return agents, nil
}

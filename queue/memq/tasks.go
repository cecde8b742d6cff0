package memq

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/oomfleet/oomfleet/proto"
	"github.com/oomfleet/oomfleet/queue"
)

// Publish implements queue.Queue.
func (q *Queue) Publish(ctx context.Context, tasks []proto.Task) (n int, err error) {
	const op = "publish tasks"
	if err := q.open(ctx, op); err != nil {
		return 0, err
	}
	q.s.mu.Lock()
	defer q.s.mu.Unlock()
	defer q.s.wakeLocked()
	for n, t := range tasks {
		if err := q.s.publishLocked(t); err != nil {
			return n, fmt.Errorf("%s: %w", op, err)
		}
	}
	return len(tasks), nil
}

func (s *store) publishLocked(t proto.Task) error {
	if err := checkToken("task id", string(t.ID)); err != nil {
		return err
	}
	data, err := s.encode("task "+string(t.ID), t)
	if err != nil {
		return err
	}
	l := s.poolLocked(t.Pool())
	if old := l.items[string(t.ID)]; old != nil {
		if old.fence == uint64(t.Fence) {
			return nil
		}
		s.removeLocked(l, old)
	}
	if s.tasks >= s.cfg.MaxTasks {
		return fmt.Errorf("%w: it holds %d tasks", queue.ErrFull, s.tasks)
	}
	s.seq++
	s.tasks++
	l.add(&item{key: string(t.ID), data: data, seq: s.seq, fence: uint64(t.Fence)})
	return nil
}

func (s *store) removeLocked(l *lane, it *item) {
	if !it.gone {
		s.tasks--
		l.remove(it)
	}
}

// Waiting implements queue.Queue.
func (q *Queue) Waiting(ctx context.Context) (map[proto.TaskID]bool, error) {
	if err := q.open(ctx, "list waiting tasks"); err != nil {
		return nil, err
	}
	q.s.mu.Lock()
	defer q.s.mu.Unlock()
	ids := make(map[proto.TaskID]bool, q.s.tasks)
	for _, l := range q.s.pools {
		for id := range l.items {
			ids[proto.TaskID(id)] = true
		}
	}
	return ids, nil
}

// Remove implements queue.Queue.
func (q *Queue) Remove(ctx context.Context, pool proto.Pool, ids []proto.TaskID) error {
	if err := q.open(ctx, "remove tasks"); err != nil {
		return err
	}
	q.s.mu.Lock()
	defer q.s.mu.Unlock()
	l := q.s.poolLocked(pool)
	for _, id := range ids {
		if it := l.items[string(id)]; it != nil {
			q.s.removeLocked(l, it)
		}
	}
	return nil
}

// Next implements queue.Queue.
func (q *Queue) Next(ctx context.Context, pool proto.Pool) (queue.Delivery, error) {
	if err := checkToken("pool", string(pool)); err != nil {
		return nil, fmt.Errorf("next task: %w", err)
	}
	it, data, err := q.wait(ctx, "next task", func() *lane { return q.s.poolLocked(pool) }, q.s.cfg.Lease)
	if err != nil {
		return nil, err
	}
	return &delivery{q: q, pool: pool, item: it, data: data}, nil
}

// delivery implements queue.Delivery. Nothing in it tells one holder from
// another, as nothing does in natsq.
type delivery struct {
	q    *Queue
	pool proto.Pool
	item *item
	data []byte // item.data is the store's
}

func (d *delivery) Task() (proto.Task, error) {
	var t proto.Task
	if err := json.Unmarshal(d.data, &t); err != nil {
		return proto.Task{}, fmt.Errorf("decode task %s: %w", d.item.key, err)
	}
	return t, nil
}

func (d *delivery) Lease() time.Duration { return d.q.s.cfg.Lease }

func (d *delivery) Extend(ctx context.Context) error {
	return d.tell(ctx, "extend task", func(s *store, l *lane) {
		if !d.item.due.IsZero() { // a lease that ran out is not taken back
			l.hold(d.item, s.cfg.Clock.Now().Add(s.cfg.Lease))
		}
	})
}

func (d *delivery) Ack(ctx context.Context) error {
	return d.tell(ctx, "ack task", func(s *store, l *lane) { s.removeLocked(l, d.item) })
}

func (d *delivery) Retry(ctx context.Context, delay time.Duration) error {
	return d.tell(ctx, "give back task", func(s *store, l *lane) {
		l.hold(d.item, s.cfg.Clock.Now().Add(max(delay, 0)))
	})
}

func (d *delivery) Drop(ctx context.Context, _ string) error {
	return d.tell(ctx, "drop task", func(s *store, l *lane) { s.removeLocked(l, d.item) })
}

func (d *delivery) tell(ctx context.Context, op string, do func(*store, *lane)) error {
	if err := d.q.open(ctx, op+" "+d.item.key); err != nil {
		return err
	}
	d.q.s.mu.Lock()
	defer d.q.s.mu.Unlock()
	do(d.q.s, d.q.s.poolLocked(d.pool))
	d.q.s.wakeLocked()
	return nil
}

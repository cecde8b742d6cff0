package coordinator

import (
	"context"
	"maps"
	"slices"

	"github.com/oomfleet/oomfleet/proto"
	"github.com/oomfleet/oomfleet/storage/registry"
)

// perAgent is how many tasks an announced agent may have waiting for it at
// least: it takes one at a time, and more are issued in rounds.
const perAgent = 4

// windows bound what lies in the queue for each pool: a huge sweep that nobody
// serves would fill the queue, which all pools share, and starve every other
// sweep without a word. What is over the bound is held back here, in the order of
// issue, and published as the pool's tasks are done. It only saves work: the
// audit of a new term finds the same tasks in the registry.
type windows struct {
	// limit is how many tasks of a pool may lie in the queue.
	limit func(proto.Pool) int
	// out are the tasks that were published and, when last looked at, open.
	out map[proto.Pool]map[proto.TaskID]proto.Task
	// held are tasks that are open and not in the queue.
	held map[proto.Pool][]proto.Task
}

func newWindows(limit func(proto.Pool) int) *windows {
	return &windows{limit: limit, out: map[proto.Pool]map[proto.TaskID]proto.Task{}, held: map[proto.Pool][]proto.Task{}}
}

// admit returns the tasks that may be published now, and holds the others back.
func (w *windows) admit(tasks []proto.Task) []proto.Task {
	now := make([]proto.Task, 0, len(tasks))
	limits := map[proto.Pool]int{}
	for _, t := range tasks {
		pool := t.Pool()
		if limits[pool] == 0 {
			limits[pool] = w.limit(pool)
		}
		if len(w.held[pool]) > 0 || len(w.out[pool]) >= limits[pool] {
			w.held[pool] = append(w.held[pool], t)
			continue
		}
		w.published(t)
		now = append(now, t)
	}
	return now
}

func (w *windows) published(t proto.Task) {
	pool := t.Pool()
	if w.out[pool] == nil {
		w.out[pool] = map[proto.TaskID]proto.Task{}
	}
	w.out[pool][t.ID] = t
}

// more returns the held tasks that there is room for by now. A window is filled
// up once half of it is free, so that tasks go in batches.
func (w *windows) more(v registry.View) []proto.Task {
	var now []proto.Task
	for _, pool := range slices.Sorted(maps.Keys(w.held)) {
		held, out := w.held[pool], w.out[pool]
		for id, t := range out {
			if !isOpen(v, t) {
				delete(out, id)
			}
		}
		limit := w.limit(pool)
		if len(out) > limit/2 {
			continue
		}
		for len(held) > 0 && len(w.out[pool]) < limit {
			if isOpen(v, held[0]) {
				w.published(held[0])
				now = append(now, held[0])
			}
			held = held[1:]
		}
		if w.held[pool] = held; len(held) == 0 {
			delete(w.held, pool)
		}
	}
	return now
}

// audited takes over what the queue really holds, forgets held tasks that are
// closed by now, and returns which of the missing ones are not held: those were
// lost.
func (w *windows) audited(v registry.View, waiting map[proto.TaskID]bool, missing []proto.Task) (lost []proto.Task) {
	clear(w.out)
	for id := range waiting {
		rec := recordOf(v, id)
		if rec == nil {
			continue
		}
		for _, o := range rec.Open {
			if o.Task.ID == id {
				w.published(o.Task)
			}
		}
	}
	held := map[proto.TaskID]bool{}
	for pool, tasks := range w.held {
		tasks = slices.DeleteFunc(tasks, func(t proto.Task) bool { return waiting[t.ID] || !isOpen(v, t) })
		if w.held[pool] = tasks; len(tasks) == 0 {
			delete(w.held, pool)
		}
		for _, t := range tasks {
			held[t.ID] = true
		}
	}
	return slices.DeleteFunc(missing, func(t proto.Task) bool { return held[t.ID] })
}

// count is how many tasks are held back.
func (w *windows) count() (n int) {
	for _, tasks := range w.held {
		n += len(tasks)
	}
	return n
}

// isOpen reports whether this very issue of a task waits for its result.
func isOpen(v registry.View, t proto.Task) bool {
	rec := v.Records[registry.Key{Origin: t.Origin, Cell: t.CellID}]
	return rec != nil && slices.ContainsFunc(rec.Open, func(o registry.OpenTask) bool { return o.Task.ID == t.ID && o.Task.Fence == t.Fence })
}

// windowOf is how many tasks of a pool may lie in the queue: more than the
// default where many agents were announced at the last audit.
func (c *Coordinator) windowOf(pool proto.Pool) int {
	agents := 0
	for _, a := range c.roster.seen() {
		if a.Stack.Pool(a.Origin) == pool {
			agents++
		}
	}
	return max(c.cfg.TasksPerPool, perAgent*agents)
}

// refill publishes what was held back and has room now.
func (d *duty) refill(ctx context.Context) error {
	defer func() { d.metrics.held.Set(float64(d.windows.count())) }()
	if len(d.windows.held) == 0 {
		return nil
	}
	return d.publish(ctx, d.windows.more(d.registry.View()))
}

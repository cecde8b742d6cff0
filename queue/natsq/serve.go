package natsq

import (
	"context"
	"errors"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/oomfleet/oomfleet/proto"
)

// serve makes the consumers that agents need for these tasks. The tasks are in by
// then, so what goes wrong here is left to the next audit.
func (q *Queue) serve(ctx context.Context, tasks []proto.Task) {
	pools := map[proto.Pool]bool{}
	for _, t := range tasks {
		pools[t.Pool()] = true
	}
	for pool := range pools {
		q.ensurePool(ctx, q.poolSource(pool))
	}
}

// ensurePool makes a pool's consumer unless it is there. It only logs a failure:
// one pool that cannot be served must not stop what is done for the others.
func (q *Queue) ensurePool(ctx context.Context, src source) {
	if _, err := q.consumer(ctx, src); err != nil {
		q.cfg.Log.Error("agents of a stack get no tasks, their consumer cannot be made", "consumer", src.durable, "error", err)
	}
}

// stillness is what an audit saw of a consumer that agents wait at while tasks
// wait too: the last message it delivered, and for how many audits the same.
type stillness struct {
	delivered uint64
	strikes   int
}

// tend looks after the consumers of the pools in which tasks lie: it makes those
// that are missing, and makes anew those that will never deliver. Without it,
// agents without the right to do so would wait for ever.
func (q *Queue) tend(ctx context.Context, s jetstream.Stream, pools map[proto.Pool]bool) error {
	list := s.ListConsumers(ctx)
	there := map[string]*jetstream.ConsumerInfo{}
	for info := range list.Info() {
		there[info.Name] = info
	}
	if err := list.Err(); err != nil && !errors.Is(err, jetstream.ErrEndOfData) {
		return err
	}
	now, err := s.Info(ctx) // after the consumers, or one would seem ahead of what came in between
	if err != nil {
		return err
	}
	for pool := range pools {
		src := q.poolSource(pool)
		if checkToken("pool", string(pool)) != nil {
			continue // somebody else's hand; no agent pulls it
		}
		if info := there[src.durable]; info != nil {
			why := q.damage(info, now.State.LastSeq)
			if why == "" {
				continue
			}
			q.cfg.Log.Warn("consumer will not deliver, making it anew", "consumer", src.durable, "why", why)
			if err := q.reset(ctx, s, src.durable); err != nil {
				return err
			}
		}
		q.forget(src) // another coordinator may have removed it
		q.ensurePool(ctx, src)
	}
	return nil
}

// damage says why a consumer will never deliver again, empty when it may. A
// silent one is given several audits: between two looks it may have been idle.
func (q *Queue) damage(info *jetstream.ConsumerInfo, last uint64) string {
	if ahead(info, last) {
		return "it is ahead of its stream"
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	was := q.still[info.Name]
	if info.Paused || info.NumPending == 0 || info.NumWaiting == 0 || info.Delivered.Consumer != was.delivered {
		q.still[info.Name] = stillness{delivered: info.Delivered.Consumer}
		return ""
	}
	was.strikes++
	if was.strikes < strikesBeforeReset {
		q.still[info.Name] = was
		return ""
	}
	delete(q.still, info.Name)
	return "agents and tasks wait, and none is delivered"
}

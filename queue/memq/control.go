package memq

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/oomfleet/oomfleet/proto"
	"github.com/oomfleet/oomfleet/queue"
)

// ear is one client that listens to a pool.
type ear struct {
	pool proto.Pool
	told chan []byte
}

// heardAtOnce is how many messages wait for a listener; more are lost to it, as
// natsq's are.
const heardAtOnce = 64

// Tell implements queue.Queue.
func (q *Queue) Tell(ctx context.Context, pool proto.Pool, c proto.Control) error {
	const op = "tell agents"
	if err := q.open(ctx, op); err != nil {
		return err
	}
	if err := checkToken("pool", string(pool)); err != nil {
		return fmt.Errorf("%s: %w", op, err)
	}
	data, err := q.s.encode("what agents are told", c)
	if err != nil {
		return fmt.Errorf("%s: %w", op, err)
	}
	q.s.mu.Lock()
	defer q.s.mu.Unlock()
	for e := range q.s.ears {
		if e.pool == pool {
			select {
			case e.told <- data:
			default:
			}
		}
	}
	return nil
}

// Listen implements queue.Queue.
func (q *Queue) Listen(ctx context.Context, pool proto.Pool, heard func(proto.Control)) error {
	const op = "listen to coordinators"
	if err := checkToken("pool", string(pool)); err != nil {
		return fmt.Errorf("%s: %w", op, err)
	}
	e := &ear{pool, make(chan []byte, heardAtOnce)}
	q.s.mu.Lock()
	if q.s.ears == nil {
		q.s.ears = map[*ear]bool{}
	}
	q.s.ears[e] = true
	q.s.mu.Unlock()
	defer func() {
		q.s.mu.Lock()
		defer q.s.mu.Unlock()
		delete(q.s.ears, e)
	}()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-q.done:
			return fmt.Errorf("%s: %w", op, queue.ErrClosed)
		case data := <-e.told:
			var c proto.Control
			if err := json.Unmarshal(data, &c); err != nil {
				return fmt.Errorf("%s: %w", op, err)
			}
			heard(c)
		}
	}
}

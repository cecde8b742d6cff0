package natsq

import (
	"context"
	"errors"
	"sync"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/oomfleet/oomfleet/proto"
)

const (
	// removeAtOnce is from how many tasks on it is worth asking whether they are
	// all that the pool has. One by one, 100,000 take a minute and a half.
	removeAtOnce = 64
	// removing is how many tasks are removed at a time where others stay.
	removing = 16
)

// Remove implements queue.Queue. A task that an agent holds is removed too; the
// agent's later ack finds nothing and is no error.
func (q *Queue) Remove(ctx context.Context, pool proto.Pool, ids []proto.TaskID) error {
	if len(ids) == 0 {
		return nil
	}
	var s jetstream.Stream
	err := q.call(ctx, "remove tasks", func(ctx context.Context) (err error) {
		if err := checkToken("pool", string(pool)); err != nil {
			return err
		}
		for _, id := range ids {
			if err := checkToken("task id", string(id)); err != nil {
				return err
			}
		}
		s, err = q.stream(ctx, TasksStream)
		return err
	})
	if err != nil {
		return err
	}
	if len(ids) >= removeAtOnce {
		if done, err := q.removePool(ctx, s, pool, ids); done || err != nil {
			return err
		}
	}
	return q.removeEach(ctx, s, pool, ids)
}

// removePool empties a pool that has nothing but these tasks, up to the position
// at which it was looked at: what comes later stays. With more than 100,000
// tasks the server's list may lack one; the audit publishes that one again.
func (q *Queue) removePool(ctx context.Context, s jetstream.Stream, pool proto.Pool, ids []proto.TaskID) (done bool, err error) {
	gone := make(map[string]bool, len(ids))
	for _, id := range ids {
		gone[taskSubject(pool, id)] = true
	}
	err = q.call(ctx, "remove the tasks of a pool", func(ctx context.Context) error {
		all := taskPrefix + string(pool) + ".>"
		info, err := s.Info(ctx, jetstream.WithSubjectFilter(all))
		if err != nil {
			return err
		}
		for subject := range info.State.Subjects {
			if !gone[subject] {
				return nil
			}
		}
		done = true
		return s.Purge(ctx, jetstream.WithPurgeSubject(all), jetstream.WithPurgeSequence(info.State.LastSeq+1))
	})
	return done && err == nil, err
}

// removeEach removes tasks one by one, several at a time.
func (q *Queue) removeEach(ctx context.Context, s jetstream.Stream, pool proto.Pool, ids []proto.TaskID) error {
	next := make(chan proto.TaskID)
	errs := make([]error, min(removing, len(ids)))
	var wg sync.WaitGroup
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	for i := range errs {
		wg.Go(func() {
			for id := range next {
				err := q.call(ctx, "remove task "+string(id), func(ctx context.Context) error {
					return s.Purge(ctx, jetstream.WithPurgeSubject(taskSubject(pool, id)))
				})
				if err != nil {
					errs[i] = err
					stop()
					return
				}
			}
		})
	}
	for _, id := range ids {
		select {
		case next <- id:
			continue
		case <-ctx.Done():
		}
		break
	}
	close(next)
	wg.Wait()
	return errors.Join(errs...)
}

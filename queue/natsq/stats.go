package natsq

import (
	"context"
	"errors"

	"github.com/nats-io/nats.go/jetstream"
)

// Stats is how full the queue is. Counts are of the moment and of this server's
// view; nothing may be concluded from zero tasks but that none lie here.
type Stats struct {
	Tasks          int64 // in the queue, delivered or not
	MaxTasks       int64 // from which on Publish returns queue.ErrFull
	AckPending     int64 // of those, delivered and not acked, or waiting for a retry
	MaxAckPending  int64 // of each pool's consumer; the smallest, 0 with no consumer
	Reports        int64 // stored and not acked
	ReportsPending int64 // of those, in the leader's hands
}

// Stats returns how full the queue is.
func (q *Queue) Stats(ctx context.Context) (st Stats, err error) {
	err = q.call(ctx, "queue stats", func(ctx context.Context) error {
		tasks, err := q.stream(ctx, TasksStream)
		if err != nil {
			return err
		}
		results, err := q.stream(ctx, ResultsStream)
		if err != nil {
			return err
		}
		st.Tasks = int64(tasks.CachedInfo().State.Msgs)
		st.MaxTasks = tasks.CachedInfo().Config.MaxMsgs
		st.Reports = int64(results.CachedInfo().State.Msgs)
		list := tasks.ListConsumers(ctx)
		for info := range list.Info() {
			st.AckPending += int64(info.NumAckPending)
			if limit := int64(info.Config.MaxAckPending); st.MaxAckPending == 0 || limit < st.MaxAckPending {
				st.MaxAckPending = limit
			}
		}
		if err := list.Err(); err != nil && !errors.Is(err, jetstream.ErrEndOfData) {
			return err
		}
		intake, err := results.Consumer(ctx, q.resultSource().durable)
		if errors.Is(err, jetstream.ErrConsumerNotFound) {
			return nil
		}
		if err != nil {
			return err
		}
		st.ReportsPending = int64(intake.CachedInfo().NumAckPending)
		return nil
	})
	return st, err
}

// ReportsPending implements queue.Queue.
func (q *Queue) ReportsPending(ctx context.Context) (n int, err error) {
	err = q.call(ctx, "count reports", func(ctx context.Context) error {
		s, err := q.stream(ctx, ResultsStream)
		if err != nil {
			return err
		}
		n = int(s.CachedInfo().State.Msgs)
		return nil
	})
	return n, err
}

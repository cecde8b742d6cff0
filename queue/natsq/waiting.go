package natsq

import (
	"context"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/oomfleet/oomfleet/proto"
)

// Waiting implements queue.Queue. The server lists 100,000 subjects at a time;
// a task that is acked while they are read may hide another one. Publishing
// that one again finds it in the queue. Since it is asked every few seconds, it
// also looks after the consumers, which agents may not.
func (q *Queue) Waiting(ctx context.Context) (ids map[proto.TaskID]bool, err error) {
	err = q.call(ctx, "list waiting tasks", func(ctx context.Context) error {
		s, err := q.stream(ctx, TasksStream)
		if err != nil {
			return err
		}
		info, err := s.Info(ctx, jetstream.WithSubjectFilter(taskPrefix+">"))
		if err != nil {
			return err
		}
		ids = make(map[proto.TaskID]bool, len(info.State.Subjects))
		pools := map[proto.Pool]bool{}
		for subject := range info.State.Subjects {
			if strings.HasPrefix(subject, canaryPrefix) {
				continue // no task, and soon gone
			}
			pool, id, _ := strings.Cut(strings.TrimPrefix(subject, taskPrefix), ".")
			ids[proto.TaskID(id)], pools[proto.Pool(pool)] = true, true
		}
		return q.tend(ctx, s, pools)
	})
	return ids, err
}

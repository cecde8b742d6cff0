package natsq

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go"

	"github.com/oomfleet/oomfleet/proto"
	"github.com/oomfleet/oomfleet/queue"
)

// Tell implements queue.Queue.
func (q *Queue) Tell(ctx context.Context, pool proto.Pool, c proto.Control) error {
	subject := controlPrefix + string(pool)
	return q.call(ctx, "tell agents", func(ctx context.Context) error {
		if err := checkToken("pool", string(pool)); err != nil {
			return err
		}
		data, err := json.Marshal(c)
		if err != nil {
			return err
		}
		if err := q.checkSize("what agents are told", len(data)); err != nil {
			return err
		}
		if err := q.nc.Publish(subject, data); err != nil {
			return err
		}
		return q.nc.FlushWithContext(ctx)
	}, subject)
}

// Listen implements queue.Queue. The client subscribes again by itself after a
// restart of the server.
func (q *Queue) Listen(ctx context.Context, pool proto.Pool, heard func(proto.Control)) error {
	if err := checkToken("pool", string(pool)); err != nil {
		return fmt.Errorf("listen to coordinators: %w", err)
	}
	scoped, end := q.scope(ctx, false)
	defer end()
	sub, err := q.nc.SubscribeSync(controlPrefix + string(pool))
	if err != nil {
		return fmt.Errorf("listen to coordinators: %w", q.explain(scoped, err))
	}
	defer sub.Unsubscribe() //nolint:errcheck // the connection is closed then, and the subscription with it
	for {
		msg, err := sub.NextMsgWithContext(scoped)
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, nats.ErrSlowConsumer):
			continue // some were dropped; they are said again
		case errors.Is(context.Cause(scoped), queue.ErrClosed):
			return fmt.Errorf("listen to coordinators: %w", queue.ErrClosed)
		case err != nil:
			return fmt.Errorf("listen to coordinators: %w", q.explain(scoped, err))
		}
		var c proto.Control
		if err := json.Unmarshal(msg.Data, &c); err != nil {
			q.cfg.Log.Warn("what a coordinator said cannot be read", "error", err)
			continue
		}
		heard(c)
	}
}

package natsq

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/oomfleet/oomfleet/queue"
)

// The server's error codes that this package tells apart and that the client
// does not name. Source: nats-server, server/errors.json.
const (
	codeAccountFull     jetstream.ErrorCode = 10002 // resource limits exceeded for account
	codeServerFull      jetstream.ErrorCode = 10023 // insufficient resources
	codeStorageFull     jetstream.ErrorCode = 10047 // insufficient storage resources available
	codeStoreFailed     jetstream.ErrorCode = 10077 // among others: maximum messages exceeded
	codeFilterNotUnique jetstream.ErrorCode = 10100 // filtered consumer not unique on workqueue stream
	codeIncomplete      jetstream.ErrorCode = 10176 // atomic publish batch is incomplete: among others, it could not be written
)

// publishError gives the refusals of the server the names of package queue.
func publishError(err error) error {
	var api *jetstream.APIError
	switch {
	case err == nil:
		return nil
	case errors.Is(err, nats.ErrMaxPayload):
		return fmt.Errorf("%w: %w", queue.ErrTooLarge, err)
	case !errors.As(err, &api):
		return err
	}
	switch api.ErrorCode {
	case codeStoreFailed:
		if !strings.Contains(api.Description, "maximum messages exceeded") {
			return err
		}
		return fmt.Errorf("%w: %w", queue.ErrFull, err)
	case codeAccountFull, codeServerFull, codeStorageFull, codeIncomplete:
		return fmt.Errorf("%w: %w", queue.ErrNoRoom, err)
	case jetstream.JSErrCodeStreamMessageExceedsMaximum:
		return fmt.Errorf("%w: %w", queue.ErrTooLarge, err)
	}
	return err
}

// Of the limit of one request, what the server has to acknowledge a message, and
// what it then has to answer a ping.
const (
	ackLimit  = 8 * time.Second
	pingLimit = time.Second
)

// publish sends one message and waits until it is stored. A server that cannot
// write a message says nothing, and goes on with everything else: where it
// answers a ping meanwhile, its silence is queue.ErrNoRoom.
func (q *Queue) publish(ctx context.Context, msg *nats.Msg, opts ...jetstream.PublishOpt) error {
	return q.acknowledged(ctx, func(ctx context.Context) error {
		_, err := q.js.PublishMsg(ctx, msg, opts...)
		return err
	})
}

// acknowledged is publish for whatever send does.
func (q *Queue) acknowledged(ctx context.Context, send func(context.Context) error) error {
	limited, cancel := context.WithTimeout(ctx, ackLimit)
	defer cancel()
	err := publishError(send(limited))
	if !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, nats.ErrTimeout) || ctx.Err() != nil {
		return err
	}
	ping, cancel := context.WithTimeout(ctx, pingLimit)
	defer cancel()
	if q.nc.FlushWithContext(ping) != nil {
		return err
	}
	return fmt.Errorf("%w: the server at %s answers, and has not stored a message within %s", queue.ErrNoRoom, q.cfg.shownURL(), ackLimit)
}

// isTaken reports that a message lies under the subject already.
func isTaken(err error) bool {
	var api *jetstream.APIError
	return errors.As(err, &api) && (api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence ||
		api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequenceConstant)
}

// isPermanent reports that waiting for the server cannot help.
func isPermanent(err error) bool {
	var no refused
	if errors.As(err, &no) {
		return true
	}
	var api *jetstream.APIError
	return errors.As(err, &api) && (api.Code == 400 || api.ErrorCode == codeFilterNotUnique) &&
		!errors.Is(err, jetstream.ErrStreamNotFound) && !errors.Is(err, jetstream.ErrConsumerNotFound)
}

package natsq

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/oomfleet/oomfleet/proto"
	"github.com/oomfleet/oomfleet/queue"
)

// The server's acknowledgement words.
const (
	wordAck      = "+ACK"
	wordProgress = "+WPI"
	wordNak      = "-NAK"
	wordTerm     = "+TERM"
)

// reasonLimit cuts the reason of a drop, which travels in the server's advisory.
const reasonLimit = 256

// Next implements queue.Queue.
func (q *Queue) Next(ctx context.Context, pool proto.Pool) (queue.Delivery, error) {
	if err := checkToken("pool", string(pool)); err != nil {
		return nil, fmt.Errorf("next task: %w", err)
	}
	msg, lease, err := q.pull(ctx, q.poolSource(pool))
	if err != nil {
		return nil, fmt.Errorf("next task: %w", err)
	}
	return &delivery{q: q, msg: msg, lease: lease}, nil
}

func (q *Queue) poolSource(pool proto.Pool) source {
	return source{stream: TasksStream, durable: durableOf(pool), filter: taskPrefix + string(pool) + ".*", lease: q.cfg.Lease}
}

// durableOf is the name of a pool's consumer.
func durableOf(pool proto.Pool) string { return "pool-" + string(pool) }

// tell sends one acknowledgement word and waits for the server's answer: without
// it, a word that was lost with the connection would look like a sent one.
func (q *Queue) tell(ctx context.Context, op string, msg jetstream.Msg, word string) error {
	return q.call(ctx, op, func(ctx context.Context) error {
		_, err := q.nc.RequestWithContext(ctx, msg.Reply(), []byte(word))
		return err
	}, msg.Reply())
}

// delivery implements queue.Delivery.
type delivery struct {
	q     *Queue
	msg   jetstream.Msg
	lease time.Duration
}

func (d *delivery) id() string {
	return d.msg.Subject()[strings.LastIndexByte(d.msg.Subject(), '.')+1:]
}

func (d *delivery) Task() (proto.Task, error) {
	var t proto.Task
	if err := json.Unmarshal(d.msg.Data(), &t); err != nil {
		return proto.Task{}, fmt.Errorf("decode task %s: %w", d.id(), err)
	}
	return t, nil
}

func (d *delivery) Lease() time.Duration { return d.lease }

func (d *delivery) Extend(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, d.lease/2)
	defer cancel()
	return d.q.tell(ctx, "extend task "+d.id(), d.msg, wordProgress)
}

func (d *delivery) Ack(ctx context.Context) error {
	return d.q.tell(ctx, "ack task "+d.id(), d.msg, wordAck)
}

func (d *delivery) Retry(ctx context.Context, delay time.Duration) error {
	// A bare -NAK would be delivered again at once, thousands of times a second.
	word := fmt.Sprintf(`%s {"delay": %d}`, wordNak, max(delay, time.Millisecond).Nanoseconds())
	return d.q.tell(ctx, "give back task "+d.id(), d.msg, word)
}

func (d *delivery) Drop(ctx context.Context, reason string) error {
	reason = strings.Join(strings.Fields(reason), " ")
	if len(reason) > reasonLimit {
		reason = strings.ToValidUTF8(reason[:reasonLimit], "")
	}
	return d.q.tell(ctx, "drop task "+d.id(), d.msg, strings.TrimSpace(wordTerm+" "+reason))
}

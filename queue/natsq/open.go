package natsq

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/oomfleet/oomfleet/queue"
)

// requestLimit bounds one request to the server when the caller's ctx has no
// earlier deadline: a sync of a slow disk fits in, a dead server is noticed.
// chunkLimit bounds the publishing of one batch, which asks for each task on its
// own when some lie in the queue already.
const (
	requestLimit = 10 * time.Second
	chunkLimit   = time.Minute
)

// errReconnected ends a pull whose request the server has forgotten.
var errReconnected = errors.New("reconnected")

// Queue is a connection to one NATS server or cluster. All methods are safe for
// concurrent use.
type Queue struct {
	cfg Config
	nc  *nats.Conn
	js  jetstream.JetStream

	// mu guards closed, waits and pulls.
	mu     sync.Mutex
	closed bool
	waits  map[*wait]bool
	pulls  map[string]pullConsumer
	// still is what the last audit saw of each consumer; see tend.
	still map[string]stillness
}

// wait is one call that blocks.
type wait struct {
	cancel context.CancelCauseFunc
	// pull also ends (to begin again) at a reconnect.
	pull bool
	// subjects are what the call publishes to; a refusal names one of them.
	subjects []string
}

// Open connects, makes what is missing of the streams and the bucket, and
// refuses streams with other settings; an agent's connection does neither. An unreachable server is one sentence
// that names the URL. From then on the connection heals itself for ever; Close
// ends it.
func Open(ctx context.Context, cfg Config) (*Queue, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("open queue: %w", err)
	}
	q := &Queue{cfg: cfg.withDefaults(), waits: map[*wait]bool{}, pulls: map[string]pullConsumer{}, still: map[string]stillness{}}
	opts, err := q.options(ctx)
	if err != nil {
		return nil, fmt.Errorf("open queue: %w", err)
	}
	nc, err := nats.Connect(cfg.URL, opts...)
	switch {
	case errors.Is(err, nats.ErrAuthorization):
		return nil, fmt.Errorf("queue at %s refuses these credentials: %w", cfg.shownURL(), err)
	case err != nil:
		return nil, fmt.Errorf("queue at %s does not answer: %w", cfg.shownURL(), err)
	}
	q.nc = nc
	q.js, err = jetstream.New(nc, jetstream.WithDefaultTimeout(requestLimit))
	if err == nil && !q.cfg.Agent {
		err = q.ensure(ctx)
	}
	if err != nil {
		nc.Close()
		return nil, fmt.Errorf("open queue at %s: %w", cfg.shownURL(), err)
	}
	return q, nil
}

// options are the connection's. They refuse a seed file that others may read.
func (q *Queue) options(ctx context.Context) ([]nats.Option, error) {
	timeout := 3 * time.Second
	if end, ok := ctx.Deadline(); ok {
		timeout = max(min(timeout, time.Until(end)), time.Millisecond)
	}
	opts := []nats.Option{
		nats.Name(q.cfg.Name), nats.Timeout(timeout),
		nats.MaxReconnects(-1), nats.ReconnectWait(200 * time.Millisecond), nats.IgnoreAuthErrorAbort(),
		nats.PingInterval(10 * time.Second), nats.MaxPingsOutstanding(2),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
			q.cfg.Log.Warn("queue connection error", "error", err)
			q.refuse(err)
		}),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) {
			if err != nil {
				q.cfg.Log.Warn("queue connection lost", "error", err)
			}
		}),
		nats.ReconnectHandler(func(*nats.Conn) {
			q.cfg.Log.Info("queue connection restored")
			q.endWaits(errReconnected)
		}),
	}
	who, err := q.cfg.identity()
	return append(opts, who...), err
}

// Close ends all waits with queue.ErrClosed and releases the connection. What
// was delivered and not acked goes to another agent when its lease is up.
func (q *Queue) Close() error {
	q.mu.Lock()
	q.closed = true
	q.mu.Unlock()
	q.endWaits(queue.ErrClosed)
	q.nc.Close()
	return nil
}

// endWaits ends every wait with cause, or the pulls alone for errReconnected.
func (q *Queue) endWaits(cause error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for w := range q.waits {
		if w.pull || cause != errReconnected {
			w.cancel(cause)
		}
	}
}

// scope is ctx, ended with queue.ErrClosed by Close, with errReconnected by a
// reconnect if it is for a pull, and with a refusal when the server lets this
// credential publish to none of the subjects. end must be called.
func (q *Queue) scope(ctx context.Context, pull bool, subjects ...string) (scoped context.Context, end func()) {
	scoped, cancel := context.WithCancelCause(ctx)
	w := &wait{cancel, pull, subjects}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		cancel(queue.ErrClosed)
	}
	q.waits[w] = true
	return scoped, func() {
		q.mu.Lock()
		delete(q.waits, w)
		q.mu.Unlock()
		cancel(nil)
	}
}

// call runs one operation under a scope and the limit of one request. subjects
// are what it publishes to.
func (q *Queue) call(ctx context.Context, op string, do func(context.Context) error, subjects ...string) error {
	return q.within(ctx, work{op, requestLimit, subjects}, do)
}

// work is an operation's name, its limit and the subjects it publishes to.
type work struct {
	op       string
	limit    time.Duration
	subjects []string
}

// within runs one operation under a scope and a limit, and names the operation
// and the reason that a caller can act on in its error.
func (q *Queue) within(ctx context.Context, w work, do func(context.Context) error) error {
	scoped, end := q.scope(ctx, false, w.subjects...)
	defer end()
	limited, cancel := context.WithTimeout(scoped, w.limit)
	defer cancel()
	if err := do(limited); err != nil {
		return fmt.Errorf("%s: %w", w.op, q.explain(scoped, err))
	}
	return nil
}

// explain replaces an error that only says "context canceled" by its cause, and
// names the URL where the server did not answer.
func (q *Queue) explain(scoped context.Context, err error) error {
	switch cause := context.Cause(scoped); {
	case errors.Is(cause, queue.ErrClosed):
		return queue.ErrClosed
	case cause != nil && !errors.Is(cause, context.DeadlineExceeded) && errors.Is(err, scoped.Err()):
		return cause
	case errors.Is(err, nats.ErrConnectionClosed):
		return queue.ErrClosed
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, nats.ErrTimeout), errors.Is(err, nats.ErrNoResponders):
		return fmt.Errorf("queue at %s does not answer: %w", q.cfg.shownURL(), err)
	}
	return err
}

package natsq

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// strikesBeforeReset is how many pulls in a row may end empty while messages
// wait before the consumer is made anew. One proves nothing (a message may come
// between the pull's end and the look); making it anew hands out again what
// others hold, which is harmless but costs GPU time.
const strikesBeforeReset = 3

// shortestFetch is what is left of a wait for which no request is sent any more:
// its expiry would round to zero, which the server takes for "never".
const shortestFetch = 2 * time.Millisecond

// source is a durable consumer: where to pull from.
type source struct {
	stream, durable, filter string
	lease                   time.Duration
	maxAckPending           int // 0: as many as the stream holds
}

// pullConsumer is a source as the server has it.
type pullConsumer struct {
	jetstream.Consumer
	lease time.Duration
}

// pull waits for the next message of src. It outlives restarts of the server,
// a lost stream and a deleted consumer, and returns only a message, the end of
// ctx, queue.ErrClosed, or an error that no waiting can heal.
func (q *Queue) pull(ctx context.Context, src source) (jetstream.Msg, time.Duration, error) {
	scoped, end := q.scope(ctx, false, infoSubject(src.stream, src.durable), nextSubject(src.stream, src.durable))
	defer end()
	w := watch{q: q, src: src}
	for {
		cons, err := q.consumer(scoped, src)
		if err == nil {
			var msg jetstream.Msg
			if msg, err = q.fetch(scoped, cons); msg != nil {
				return msg, cons.lease, nil
			}
		}
		if errors.Is(err, errReconnected) {
			continue // the server has forgotten the request; nothing is wrong with it
		}
		if cause := context.Cause(scoped); cause != nil {
			return nil, 0, cause
		}
		if isPermanent(err) {
			return nil, 0, q.explain(scoped, err)
		}
		if err := w.empty(scoped, cons, err); err != nil {
			return nil, 0, err
		}
	}
}

// fetch asks for one message and waits at most the patience for it. No message
// and no error is an ordinary end of the wait. Each fetch has a request and an
// inbox of its own, so there is no subscription to fall silent. A message that is
// on its way when the wait ends is lost to us and comes again after its lease.
func (q *Queue) fetch(ctx context.Context, cons pullConsumer) (jetstream.Msg, error) {
	scoped, end := q.scope(ctx, true)
	defer end()
	limited, cancel := context.WithTimeout(scoped, q.cfg.Patience)
	defer cancel()
	until, _ := limited.Deadline()
	left := time.Until(until)
	if left < shortestFetch {
		<-limited.Done()
		return nil, nil
	}
	opts := []jetstream.FetchOpt{jetstream.FetchContext(limited)}
	if left > time.Second {
		// The server tells that it still knows of us; two missed beats end
		// the fetch.
		opts = append(opts, jetstream.FetchHeartbeat(left/5))
	}
	batch, err := cons.Fetch(1, opts...)
	if err != nil {
		return nil, err
	}
	if msg := <-batch.Messages(); msg != nil {
		return msg, nil
	}
	switch {
	case errors.Is(context.Cause(scoped), errReconnected):
		return nil, errReconnected
	case limited.Err() != nil:
		return nil, nil
	}
	return nil, batch.Error()
}

// consumer returns src's consumer, and makes it when it is not there and this is
// no agent's connection.
func (q *Queue) consumer(ctx context.Context, src source) (pullConsumer, error) {
	q.mu.Lock()
	cons, ok := q.pulls[src.durable]
	q.mu.Unlock()
	if ok {
		return cons, nil
	}
	// A request whose answer went down with the connection is never answered.
	scoped, end := q.scope(ctx, true)
	defer end()
	limited, cancel := context.WithTimeout(scoped, requestLimit)
	defer cancel()
	look := q.ensureConsumer
	if q.cfg.Agent {
		look = q.findConsumer
	}
	cons, err := look(limited, src)
	if err != nil {
		return pullConsumer{}, fmt.Errorf("consumer %s: %w", src.durable, lost(scoped, err))
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.pulls[src.durable] = cons
	return cons, nil
}

// findConsumer looks src's consumer up as a coordinator made it.
func (q *Queue) findConsumer(ctx context.Context, src source) (pullConsumer, error) {
	cons, err := q.js.Consumer(ctx, src.stream, src.durable)
	if err != nil {
		return pullConsumer{}, err
	}
	return pullConsumer{cons, cons.CachedInfo().Config.AckWait}, nil
}

// ensureConsumer makes src's consumer, or brings an existing one to what the
// package's comment promises. It never shortens a lease.
func (q *Queue) ensureConsumer(ctx context.Context, src source) (pullConsumer, error) {
	s, err := q.stream(ctx, src.stream)
	if err != nil {
		return pullConsumer{}, err
	}
	want := jetstream.ConsumerConfig{
		Durable: src.durable, FilterSubject: src.filter,
		DeliverPolicy: jetstream.DeliverAllPolicy, AckPolicy: jetstream.AckExplicitPolicy,
		AckWait: src.lease, MaxDeliver: -1, MaxAckPending: src.maxAckPending,
	}
	if want.MaxAckPending == 0 {
		want.MaxAckPending = int(s.CachedInfo().Config.MaxMsgs)
	}
	cons, err := s.Consumer(ctx, src.durable)
	if errors.Is(err, jetstream.ErrConsumerNotFound) {
		cons, err = s.CreateOrUpdateConsumer(ctx, want)
		if err != nil {
			return pullConsumer{}, err
		}
		return pullConsumer{cons, want.AckWait}, nil
	}
	if err != nil {
		return pullConsumer{}, err
	}
	have := cons.CachedInfo().Config
	want.AckWait = max(want.AckWait, have.AckWait)
	if have.AckWait != want.AckWait || have.MaxDeliver != want.MaxDeliver || have.MaxAckPending != want.MaxAckPending ||
		len(have.BackOff) > 0 || have.InactiveThreshold > 0 {
		if cons, err = s.CreateOrUpdateConsumer(ctx, want); err != nil {
			return pullConsumer{}, err
		}
	}
	return pullConsumer{cons, want.AckWait}, nil
}

// lost is errReconnected where a reconnect ended scoped, else err.
func lost(scoped context.Context, err error) error {
	if err != nil && errors.Is(context.Cause(scoped), errReconnected) {
		return errReconnected
	}
	return err
}

// forget makes the next pull look src's consumer up again.
func (q *Queue) forget(src source) {
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.pulls, src.durable)
}

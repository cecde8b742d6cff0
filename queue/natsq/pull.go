package natsq

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/oomfleet/oomfleet/queue"
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
	scoped, end := q.scope(ctx, false)
	defer end()
	w := watch{q: q, src: src}
	for {
		cons, err := q.consumer(scoped, src)
		if err == nil {
			var msg jetstream.Msg
			if msg, err = q.fetch(scoped, cons); msg != nil {
				return msg, cons.lease, nil
			}
			if errors.Is(err, errReconnected) {
				continue // the server has forgotten the request; nothing is wrong with it
			}
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

// consumer returns src's consumer and makes it when it is not there.
func (q *Queue) consumer(ctx context.Context, src source) (pullConsumer, error) {
	q.mu.Lock()
	cons, ok := q.pulls[src.durable]
	q.mu.Unlock()
	if ok {
		return cons, nil
	}
	limited, cancel := context.WithTimeout(ctx, requestLimit)
	defer cancel()
	cons, err := q.ensureConsumer(limited, src)
	if err != nil {
		return pullConsumer{}, fmt.Errorf("consumer %s: %w", src.durable, err)
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.pulls[src.durable] = cons
	return cons, nil
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

// forget makes the next pull look src's consumer up again.
func (q *Queue) forget(src source) {
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.pulls, src.durable)
}

// watch looks after one wait: what to do when a pull brought nothing.
type watch struct {
	q       *Queue
	src     source
	strikes int           // pulls in a row that ended empty while messages wait
	pause   time.Duration // before the next pull after an error
}

const (
	shortestPause = 50 * time.Millisecond
	longestPause  = 2 * time.Second
)

// empty is called after each pull without a message, with its error if it had
// one. Its own error ends the wait.
func (w *watch) empty(ctx context.Context, cons pullConsumer, err error) error {
	if err == nil {
		w.pause = 0
		if err = w.inspect(ctx, cons); err == nil {
			return nil
		}
	}
	w.q.forget(w.src)
	if w.pause == 0 {
		w.q.cfg.Log.Warn("queue pull failed, trying again", "consumer", w.src.durable, "error", err)
	}
	if errors.Is(err, jetstream.ErrNoHeartbeat) {
		w.probe(ctx)
	}
	w.pause = min(max(w.pause*2, shortestPause), longestPause)
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(w.pause):
	}
	if w.q.nc.IsClosed() {
		return queue.ErrClosed
	}
	return nil
}

// inspect finds a consumer that will never deliver: one that is ahead of its
// stream after a crash, or one that is silent while messages wait.
func (w *watch) inspect(ctx context.Context, cons pullConsumer) error {
	ctx, cancel := context.WithTimeout(ctx, requestLimit)
	defer cancel()
	info, err := cons.Info(ctx)
	if err != nil {
		return err
	}
	s, err := w.q.stream(ctx, w.src.stream)
	if err != nil {
		return err
	}
	log := w.q.cfg.Log.With("consumer", w.src.durable)
	if last := s.CachedInfo().State.LastSeq; info.Delivered.Stream > last || info.AckFloor.Stream > last {
		log.Warn("consumer is ahead of its stream, making it anew", "delivered", info.Delivered.Stream,
			"ack_floor", info.AckFloor.Stream, "last", last)
		return w.reset(ctx, s)
	}
	if info.NumPending == 0 || info.Paused {
		w.strikes = 0
		return nil
	}
	w.strikes++
	log.Warn("messages wait and none is delivered, pulling again", "pending", info.NumPending, "strike", w.strikes)
	if w.strikes < strikesBeforeReset {
		return nil
	}
	w.strikes = 0
	log.Warn("consumer is silent, making it anew")
	return w.reset(ctx, s)
}

func (w *watch) reset(ctx context.Context, s jetstream.Stream) error {
	w.q.forget(w.src)
	err := s.DeleteConsumer(ctx, w.src.durable)
	if errors.Is(err, jetstream.ErrConsumerNotFound) {
		return nil // another agent was faster
	}
	return err
}

// probe looks whether the connection is alive after missed heartbeats, and
// replaces one that swallows what it is given.
func (w *watch) probe(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	err := w.q.nc.FlushWithContext(ctx)
	if !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, nats.ErrTimeout) {
		return
	}
	w.q.cfg.Log.Warn("queue connection is silent, connecting again")
	if err := w.q.nc.ForceReconnect(); err != nil {
		w.q.cfg.Log.Warn("queue reconnect", "error", err)
	}
}

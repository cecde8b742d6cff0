package natsq

import (
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/oomfleet/oomfleet/queue"
)

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
	// unbornPause is the longest for an agent whose pool has no consumer yet:
	// its first task may come at any moment.
	unbornPause = 500 * time.Millisecond
)

// empty is called after each pull without a message, with its error if it had
// one. Its own error ends the wait.
func (w *watch) empty(ctx context.Context, cons pullConsumer, err error) error {
	if err == nil {
		w.pause = 0
		if err = w.inspect(ctx, cons); err == nil || errors.Is(err, errReconnected) {
			return nil
		}
	}
	w.q.forget(w.src)
	longest, log := longestPause, w.q.cfg.Log.With("consumer", w.src.durable, "error", err)
	if unborn := errors.Is(err, jetstream.ErrConsumerNotFound) || errors.Is(err, jetstream.ErrStreamNotFound); unborn && w.q.cfg.Agent {
		longest = unbornPause
		if w.pause == 0 {
			log.Info("no coordinator has published a task for this stack yet")
		}
	} else if w.pause == 0 {
		log.Warn("queue pull failed, trying again")
	}
	if errors.Is(err, jetstream.ErrNoHeartbeat) || errors.Is(err, context.DeadlineExceeded) {
		w.probe(ctx)
	}
	w.pause = min(max(w.pause*2, shortestPause), longest)
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
// stream after a crash, or one that is silent while messages wait. An agent may
// not mend it; the coordinators' audit does, see tend.
func (w *watch) inspect(ctx context.Context, cons pullConsumer) error {
	scoped, end := w.q.scope(ctx, true)
	defer end()
	ctx, cancel := context.WithTimeout(scoped, requestLimit)
	defer cancel()
	info, err := cons.Info(ctx)
	if err != nil {
		return lost(scoped, err)
	}
	if w.q.cfg.Agent {
		if info.NumPending > 0 && !info.Paused {
			w.q.cfg.Log.Warn("messages wait and none is delivered, pulling again", "consumer", w.src.durable, "pending", info.NumPending)
		}
		return nil
	}
	s, err := w.q.stream(ctx, w.src.stream)
	if err != nil {
		return lost(scoped, err)
	}
	log := w.q.cfg.Log.With("consumer", w.src.durable)
	if last := s.CachedInfo().State.LastSeq; ahead(info, last) {
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
	return w.q.reset(ctx, s, w.src.durable)
}

// ahead reports whether a consumer waits for messages that the stream, whose
// last one is given, has never had: it was damaged in a crash.
func ahead(info *jetstream.ConsumerInfo, last uint64) bool {
	return info.Delivered.Stream > last || info.AckFloor.Stream > last
}

// reset removes a consumer, to be made anew by whoever may and needs it next.
func (q *Queue) reset(ctx context.Context, s jetstream.Stream, durable string) error {
	q.mu.Lock()
	delete(q.pulls, durable)
	q.mu.Unlock()
	err := s.DeleteConsumer(ctx, durable)
	if errors.Is(err, jetstream.ErrConsumerNotFound) {
		return nil // another agent was faster
	}
	return err
}

// probe looks whether the connection is alive after missed heartbeats or a look
// at the consumer without an answer, and
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

package natsq

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/synadia-io/orbit.go/jetstreamext"

	"github.com/oomfleet/oomfleet/proto"
	"github.com/oomfleet/oomfleet/queue"
)

const (
	// batchLimit is the most messages that the server takes in one atomic batch.
	batchLimit = 1000
	// fenceHeader carries a task's fence, so that a task can be told from an
	// older one of the same id without decoding it.
	fenceHeader = "Oomfleet-Fence"
	// headerRoom is kept free below the server's message limit, which counts
	// headers too: fence, batch id and number, expected sequence.
	headerRoom = 512
)

// entry is one task on its way into the stream.
type entry struct {
	subject string
	fence   string
	data    []byte
	pos     int // index in the chunk: all tasks before it are in
}

// Publish implements queue.Queue.
func (q *Queue) Publish(ctx context.Context, tasks []proto.Task) (n int, err error) {
	for chunk := range slices.Chunk(tasks, batchLimit) {
		var in int
		err := q.within(ctx, work{op: "publish tasks", limit: chunkLimit}, func(ctx context.Context) (err error) {
			in, err = q.publishChunk(ctx, chunk)
			return err
		})
		if n += in; err != nil {
			return n, err
		}
	}
	return n, nil
}

func (q *Queue) publishChunk(ctx context.Context, chunk []proto.Task) (int, error) {
	entries, bad := q.encode(chunk)
	n, err := q.store(ctx, entries)
	if err != nil {
		return n, err
	}
	q.serve(ctx, chunk)
	if bad != nil {
		return n, bad
	}
	return len(chunk), nil
}

// encode turns tasks into entries up to the first that can never be published,
// whose error it returns. Of two tasks with one id the later stays.
func (q *Queue) encode(chunk []proto.Task) ([]entry, error) {
	entries := make([]entry, 0, len(chunk))
	seen := make(map[string]int, len(chunk))
	for i, t := range chunk {
		if err := checkToken("task id", string(t.ID)); err != nil {
			return entries, err
		}
		data, err := json.Marshal(t)
		if err != nil {
			return entries, fmt.Errorf("task %s: %w", t.ID, err)
		}
		if err := q.checkSize("task "+string(t.ID), len(data)); err != nil {
			return entries, err
		}
		e := entry{subject: taskSubject(t.Pool(), t.ID), fence: strconv.FormatUint(uint64(t.Fence), 10), data: data, pos: i}
		if at, ok := seen[e.subject]; ok {
			e.pos = entries[at].pos
			entries[at] = e
			continue
		}
		seen[e.subject] = len(entries)
		entries = append(entries, e)
	}
	return entries, nil
}

// store publishes entries as one batch. It returns how many tasks of the chunk
// are in: all up to the last entry, or those before the first that is not.
func (q *Queue) store(ctx context.Context, entries []entry) (int, error) {
	if len(entries) == 0 {
		return 0, nil
	}
	end := entries[len(entries)-1].pos + 1
	todo := entries
	for range 3 {
		err := q.batch(ctx, todo)
		switch {
		case err == nil:
			return end, nil
		case isTaken(err): // some lie in the queue already, which fails the batch
			missing, err := q.missing(ctx, todo)
			if err != nil {
				return todo[0].pos, err
			}
			if todo = missing; len(todo) == 0 {
				return end, nil
			}
		case errors.Is(err, queue.ErrFull):
			return q.fill(ctx, todo, err)
		case errors.Is(err, nats.ErrNoResponders), errors.Is(err, jetstream.ErrStreamNotFound):
			if err := q.ensure(ctx); err != nil { // the stream was removed under us
				return todo[0].pos, err
			}
		default:
			return todo[0].pos, err
		}
	}
	return q.oneByOne(ctx, todo, end) // others publish the same tasks right now
}

// fill publishes what still fits into a full queue, so that a list longer than
// the queue makes progress.
func (q *Queue) fill(ctx context.Context, todo []entry, full error) (int, error) {
	s, err := q.stream(ctx, TasksStream)
	if err != nil {
		return todo[0].pos, full
	}
	info := s.CachedInfo()
	room := info.Config.MaxMsgs - int64(info.State.Msgs)
	if room <= 0 || room >= int64(len(todo)) || q.batch(ctx, todo[:room]) != nil {
		return todo[0].pos, full
	}
	return todo[room].pos, full
}

func (q *Queue) oneByOne(ctx context.Context, todo []entry, end int) (int, error) {
	for _, e := range todo {
		if err := q.publish(ctx, e.message()); err != nil && !isTaken(err) {
			return e.pos, err
		}
	}
	return end, nil
}

// batch publishes entries all or nothing, durable when it returns.
func (q *Queue) batch(ctx context.Context, entries []entry) error {
	msgs := make([]*nats.Msg, len(entries))
	for i, e := range entries {
		msgs[i] = e.message()
	}
	// No wait for the first message's ack: that wait would not end with ctx.
	return q.acknowledged(ctx, func(ctx context.Context) error {
		_, err := jetstreamext.PublishMsgBatch(ctx, q.js, msgs, jetstreamext.BatchFlowControl{AckFirst: false})
		return err
	})
}

func (e entry) message() *nats.Msg {
	return &nats.Msg{Subject: e.subject, Data: e.data, Header: nats.Header{
		fenceHeader:                         {e.fence},
		jetstream.ExpectedStreamHeader:      {TasksStream},
		jetstream.ExpectedLastSubjSeqHeader: {"0"}, // only while no such task lies there
	}}
}

// missing returns the entries that do not lie in the queue, asking for each:
// listing a pool's subjects instead costs more once the queue is long. A task of
// the same id and another fence is of an older issue, or of a registry that was
// lost: it is removed.
func (q *Queue) missing(ctx context.Context, entries []entry) ([]entry, error) {
	s, err := q.stream(ctx, TasksStream)
	if err != nil {
		return nil, err
	}
	var missing []entry
	for _, e := range entries {
		same, err := sameFence(ctx, s, e)
		if err != nil {
			return nil, err
		}
		if !same {
			missing = append(missing, e)
		}
	}
	return missing, nil
}

// sameFence reports whether e itself lies in the stream, and removes what lies
// in its place otherwise.
func sameFence(ctx context.Context, s jetstream.Stream, e entry) (bool, error) {
	last, err := s.GetLastMsgForSubject(ctx, e.subject)
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return false, nil // acked meanwhile
	}
	if err != nil {
		return false, err
	}
	if last.Header.Get(fenceHeader) == e.fence {
		return true, nil
	}
	err = s.Purge(ctx, jetstream.WithPurgeSubject(e.subject))
	return false, err
}

// checkSize refuses what the server could never take, before it is sent: the
// server's own refusal closes the connection or reads like a timeout.
func (q *Queue) checkSize(what string, size int) error {
	limit := q.nc.MaxPayload()
	if int64(size)+headerRoom <= limit {
		return nil
	}
	return fmt.Errorf("%w: %s is %d bytes, the server's max_payload is %d of which %d are kept for headers",
		queue.ErrTooLarge, what, size, limit, headerRoom)
}

// checkToken refuses what cannot be one token of a subject: a dot would make
// two, a star or a space is refused or, worse, taken.
func checkToken(what, s string) error {
	bad := strings.IndexFunc(s, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '-'
	})
	if s == "" || bad >= 0 {
		return fmt.Errorf("%s %q is not made of a-z, 0-9 and - alone", what, s)
	}
	return nil
}

func taskSubject(pool proto.Pool, id proto.TaskID) string {
	return taskPrefix + string(pool) + "." + string(id)
}

package natsq

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"
)

// canaryPrefix begins the subjects of canaries: of a pool that no stack has, so
// no agent pulls them. Each client has one subject, by its name: coordinators
// that start at the same time leave each other's alone.
const canaryPrefix = taskPrefix + "canary."

// Canary puts one message through the queue as tasks go, in an atomic batch that
// is on disk when it is acknowledged, reads it back, and removes it. It finds
// out at the start what would else be found out by the first sweep: a server
// that is too old, is full, has no quorum, or lets this user do less. One that
// an earlier start has left is removed too. It is for coordinators; what an
// agent may do, its own subjects say.
func (q *Queue) Canary(ctx context.Context) error {
	subject := q.canarySubject()
	return q.call(ctx, "try the queue", func(ctx context.Context) error {
		s, err := q.stream(ctx, TasksStream)
		if err != nil {
			return explainServer(err)
		}
		remove := func() error {
			if err := s.Purge(ctx, jetstream.WithPurgeSubject(subject)); err != nil {
				return fmt.Errorf("remove: %w", err)
			}
			return nil
		}
		if err := remove(); err != nil {
			return err
		}
		var random [8]byte
		rand.Read(random[:]) // never fails, see crypto/rand
		content := []byte("oomfleet canary " + hex.EncodeToString(random[:]))
		if err := q.batch(ctx, []entry{{subject: subject, fence: "0", data: content}}); err != nil {
			return fmt.Errorf("publish: %w", err)
		}
		back, err := s.GetLastMsgForSubject(ctx, subject)
		if err == nil && !bytes.Equal(back.Data, content) {
			err = errors.New("it is not what was published")
		}
		if err != nil {
			return errors.Join(fmt.Errorf("read back: %w", err), remove())
		}
		return remove()
	}, subject)
}

func (q *Queue) canarySubject() string {
	name := sha256.Sum256([]byte(q.cfg.Name))
	return canaryPrefix + hex.EncodeToString(name[:8])
}

// Room stores one message as tasks are stored, and removes it. It fails with
// queue.ErrNoRoom, or with queue.ErrFull, where a task would: a server whose disk is
// full goes on answering all that only reads.
func (q *Queue) Room(ctx context.Context) error {
	subject := q.canarySubject()
	return q.call(ctx, "look for room in the queue", func(ctx context.Context) error {
		err := q.batch(ctx, []entry{{subject: subject, fence: "0", data: []byte("oomfleet canary")}})
		if err != nil && !isTaken(err) { // one that an earlier call could not remove
			return err
		}
		s, err := q.stream(ctx, TasksStream)
		if err != nil {
			return err
		}
		return s.Purge(ctx, jetstream.WithPurgeSubject(subject))
	}, subject)
}

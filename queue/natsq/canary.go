package natsq

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"
)

// canaryPrefix begins the subjects of canaries: of a pool that no stack has, so
// no agent pulls them.
const canaryPrefix = taskPrefix + "canary."

// Canary puts one message through the queue as tasks go, in an atomic batch that
// is on disk when it is acknowledged, reads it back, and removes it. It finds
// out at the start what would else be found out by the first sweep: a server
// that is too old, is full, has no quorum, or lets this user do less. Canaries
// that earlier starts have left are removed too. It is for coordinators; what an
// agent may do, its own subjects say.
func (q *Queue) Canary(ctx context.Context) error {
	return q.call(ctx, "try the queue", func(ctx context.Context) error {
		var random [8]byte
		rand.Read(random[:]) // never fails, see crypto/rand
		subject := canaryPrefix + hex.EncodeToString(random[:])
		content := []byte("oomfleet canary " + hex.EncodeToString(random[:]))
		s, err := q.stream(ctx, TasksStream)
		if err != nil {
			return explainServer(err)
		}
		if err := q.batch(ctx, []entry{{subject: subject, fence: "0", data: content}}); err != nil {
			return fmt.Errorf("publish: %w", err)
		}
		back, err := s.GetLastMsgForSubject(ctx, subject)
		if err == nil && !bytes.Equal(back.Data, content) {
			err = errors.New("it is not what was published")
		}
		if err != nil {
			return errors.Join(fmt.Errorf("read back: %w", err), removeCanaries(ctx, s))
		}
		return removeCanaries(ctx, s)
	}, canaryPrefix+">")
}

func removeCanaries(ctx context.Context, s jetstream.Stream) error {
	if err := s.Purge(ctx, jetstream.WithPurgeSubject(canaryPrefix+">")); err != nil {
		return fmt.Errorf("remove: %w", err)
	}
	return nil
}

package natsq

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/oomfleet/oomfleet/proto"
)

// markerTTL is how long the bucket keeps the marker of a key that expired. The
// server needs one to allow a time to live per key, in whole seconds.
const markerTTL = time.Second

func (q *Queue) ensurePresence(ctx context.Context) error {
	kv, err := q.js.KeyValue(ctx, PresenceBucket)
	if errors.Is(err, jetstream.ErrBucketNotFound) {
		kv, err = q.js.CreateKeyValue(ctx, jetstream.KeyValueConfig{
			Bucket: PresenceBucket, Description: "agents that are alive", History: 1,
			LimitMarkerTTL: markerTTL, Storage: jetstream.FileStorage, Replicas: q.cfg.Replicas,
		})
		if errors.Is(err, jetstream.ErrBucketExists) { // another was faster
			kv, err = q.js.KeyValue(ctx, PresenceBucket)
		}
	}
	if err != nil {
		return fmt.Errorf("bucket %s: %w", PresenceBucket, explainServer(err))
	}
	have, err := kv.Status(ctx)
	if err != nil {
		return fmt.Errorf("bucket %s: %w", PresenceBucket, err)
	}
	if have.History() != 1 || have.LimitMarkerTTL() == 0 {
		return refused{fmt.Errorf("bucket %s has history %d and marker time %s, want 1 and %s: announcements would not end in time (remove it, and it is made anew)",
			PresenceBucket, have.History(), have.LimitMarkerTTL(), markerTTL)}
	}
	return nil
}

// presence runs do on the bucket, made anew if the server lost it.
func (q *Queue) presence(ctx context.Context, op string, do func(context.Context, jetstream.KeyValue) error) error {
	return q.call(ctx, op, func(ctx context.Context) error {
		kv, err := q.js.KeyValue(ctx, PresenceBucket)
		if errors.Is(err, jetstream.ErrBucketNotFound) {
			if err := q.ensurePresence(ctx); err != nil {
				return err
			}
			kv, err = q.js.KeyValue(ctx, PresenceBucket)
		}
		if err != nil {
			return err
		}
		return do(ctx, kv)
	})
}

// presencePrefix begins the subjects of the bucket's keys. Agents write to them
// as the client's Put and Purge do, without the look at the bucket that those
// begin with: an agent may not ask about streams.
const presencePrefix = "$KV." + PresenceBucket + "."

// Announce implements queue.Queue. The time to live is rounded up to a second.
func (q *Queue) Announce(ctx context.Context, a proto.AgentInfo, ttl time.Duration) error {
	data, err := json.Marshal(a)
	if err != nil {
		return fmt.Errorf("announce agent %s: %w", a.ID, err)
	}
	ttl = (ttl + time.Second - 1).Truncate(time.Second)
	return q.tellPresence(ctx, "announce agent "+string(a.ID), a.ID, &nats.Msg{Data: data}, max(ttl, time.Second))
}

// Retire implements queue.Queue.
func (q *Queue) Retire(ctx context.Context, id proto.AgentID) error {
	purge := &nats.Msg{Header: nats.Header{"KV-Operation": {"PURGE"}, jetstream.MsgRollup: {jetstream.MsgRollupSubject}}}
	return q.tellPresence(ctx, "retire agent "+string(id), id, purge, markerTTL)
}

// tellPresence writes one entry under an agent's key, which is gone after ttl.
func (q *Queue) tellPresence(ctx context.Context, op string, id proto.AgentID, msg *nats.Msg, ttl time.Duration) error {
	msg.Subject = presencePrefix + string(id)
	return q.call(ctx, op, func(ctx context.Context) error {
		if err := checkToken("agent id", string(id)); err != nil {
			return err
		}
		err := q.publish(ctx, msg, jetstream.WithMsgTTL(ttl))
		if errors.Is(err, jetstream.ErrNoStreamResponse) && !q.cfg.Agent {
			if err := q.ensurePresence(ctx); err != nil {
				return err
			}
			err = q.publish(ctx, msg, jetstream.WithMsgTTL(ttl))
		}
		return err
	}, msg.Subject)
}

// Agents implements queue.Queue. An announcement that cannot be read is left
// out and logged.
func (q *Queue) Agents(ctx context.Context) (agents []proto.AgentInfo, err error) {
	err = q.presence(ctx, "list agents", func(ctx context.Context, kv jetstream.KeyValue) error {
		keys, err := kv.WatchAll(ctx, jetstream.IgnoreDeletes())
		if err != nil {
			return err
		}
		defer func() { _ = keys.Stop() }() // the list is complete by then
		for {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case entry := <-keys.Updates():
				if entry == nil { // all that was there has come
					return nil
				}
				var a proto.AgentInfo
				err := json.Unmarshal(entry.Value(), &a)
				if err == nil && string(a.ID) != entry.Key() {
					err = fmt.Errorf("it names another agent, %q", a.ID)
				}
				if err != nil {
					q.cfg.Log.Warn("announcement cannot be read", "agent", entry.Key(), "error", err)
					continue
				}
				agents = append(agents, a)
			}
		}
	})
	slices.SortFunc(agents, func(a, b proto.AgentInfo) int { return strings.Compare(string(a.ID), string(b.ID)) })
	return agents, err
}

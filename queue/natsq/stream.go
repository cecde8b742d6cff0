package natsq

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Names on the server. They are the same in every fleet: fleets that share a
// NATS server use an account each.
const (
	TasksStream    = "OOMFLEET_TASKS"
	ResultsStream  = "OOMFLEET_RESULTS"
	PresenceBucket = "oomfleet_agents"

	taskPrefix   = "oomfleet.task."
	resultPrefix = "oomfleet.result."
	// controlPrefix begins the subjects that agents listen on. No stream keeps
	// what is said there.
	controlPrefix = "oomfleet.control."
)

// resultWindow is how long the server remembers a result's id. A report that is
// repeated later is stored twice, and the registry counts it as late.
const resultWindow = time.Hour

func (q *Queue) tasksConfig() jetstream.StreamConfig {
	c := q.workQueue(TasksStream, taskPrefix+">", "what agents have to run; a task is gone once acked")
	c.AllowAtomicPublish = true
	return c
}

func (q *Queue) resultsConfig() jetstream.StreamConfig {
	c := q.workQueue(ResultsStream, resultPrefix+">", "what agents have seen; a result is gone once committed")
	c.Duplicates = resultWindow
	return c
}

// workQueue has one kind of limit only: combined limits have acknowledged
// without storing. SubjectDeleteMarkerTTL stays unset, as it raises shorter
// times to live.
func (q *Queue) workQueue(name, subjects, about string) jetstream.StreamConfig {
	limit := q.cfg.MaxTasks
	if limit == 0 {
		limit = DefaultMaxTasks
	}
	return jetstream.StreamConfig{
		Name: name, Description: about, Subjects: []string{subjects},
		Retention: jetstream.WorkQueuePolicy, Storage: jetstream.FileStorage, Discard: jetstream.DiscardNew,
		MaxMsgs: limit, MaxBytes: -1, MaxMsgsPerSubject: -1, MaxMsgSize: -1,
		Replicas: q.cfg.Replicas,
	}
}

// refused is an error that no waiting can heal.
type refused struct{ error }

// ensure makes what is missing on the server and checks what is there.
func (q *Queue) ensure(ctx context.Context) error {
	for _, want := range []jetstream.StreamConfig{q.tasksConfig(), q.resultsConfig()} {
		if err := q.ensureStream(ctx, want); err != nil {
			return err
		}
	}
	return q.ensurePresence(ctx)
}

func (q *Queue) ensureStream(ctx context.Context, want jetstream.StreamConfig) error {
	s, err := q.js.Stream(ctx, want.Name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		s, err = q.js.CreateStream(ctx, want)
		if errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) { // another was faster, with another limit
			s, err = q.js.Stream(ctx, want.Name)
		}
	}
	if err != nil {
		return fmt.Errorf("stream %s: %w", want.Name, explainServer(err))
	}
	have := s.CachedInfo().Config
	if err := checkStream(have, want); err != nil {
		return refused{fmt.Errorf("stream %s has settings that can lose work (back it up, remove it, and it is made anew): %w", want.Name, err)}
	}
	if q.cfg.MaxTasks == 0 || have.MaxMsgs == want.MaxMsgs {
		return nil
	}
	have.MaxMsgs = want.MaxMsgs
	if _, err := q.js.UpdateStream(ctx, have); err != nil {
		return fmt.Errorf("stream %s: set its limit to %d: %w", want.Name, want.MaxMsgs, err)
	}
	return nil
}

// stream returns a stream by name, made anew if the server lost it: the audit
// that would publish its tasks again begins with a look into it.
func (q *Queue) stream(ctx context.Context, name string) (jetstream.Stream, error) {
	s, err := q.js.Stream(ctx, name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		q.cfg.Log.Warn("stream is gone, making it anew", "stream", name)
		if err := q.ensure(ctx); err != nil {
			return nil, err
		}
		s, err = q.js.Stream(ctx, name)
	}
	return s, err
}

// checkStream returns everything in have that breaks a promise of this package,
// at once. Limits of size and replicas are the operator's own.
func checkStream(have, want jetstream.StreamConfig) error {
	var errs []error
	differ := func(what string, have, want any, why string) {
		errs = append(errs, fmt.Errorf("%s is %v, want %v: %s", what, have, want, why))
	}
	if have.Retention != want.Retention {
		differ("retention", have.Retention, want.Retention, "an acked message must go")
	}
	if have.Discard != want.Discard {
		differ("discard policy", have.Discard, want.Discard, "a full queue would drop the oldest work in silence")
	}
	if have.Storage != want.Storage {
		differ("storage", have.Storage, want.Storage, "a restart would lose everything")
	}
	if have.MaxMsgs <= 0 {
		differ("max messages", have.MaxMsgs, "a limit", "a full disk is no way to refuse")
	}
	if have.MaxBytes > 0 || have.MaxMsgsPerSubject > 0 || have.MaxAge > 0 {
		differ("limits", "more than one kind", "max messages only", "combined limits have acknowledged without storing")
	}
	if have.PersistMode != want.PersistMode {
		differ("persist mode", have.PersistMode, want.PersistMode, "publishes would be acknowledged before they are stored")
	}
	if want.AllowAtomicPublish && !have.AllowAtomicPublish {
		differ("atomic publish", false, true, "batches are all or nothing; this needs nats-server 2.12 or later")
	}
	for _, s := range want.Subjects {
		if !slices.Contains(have.Subjects, s) {
			differ("subjects", have.Subjects, s, "publishes would go nowhere")
		}
	}
	return errors.Join(errs...)
}

// explainServer says in one sentence what an operator must do about err.
func explainServer(err error) error {
	switch {
	case errors.Is(err, jetstream.ErrJetStreamNotEnabled), errors.Is(err, jetstream.ErrJetStreamNotEnabledForAccount):
		return fmt.Errorf("start the server with JetStream (-js): %w", err)
	case errors.Is(err, nats.ErrNoResponders):
		return fmt.Errorf("the server has no JetStream (start it with -js): %w", err)
	}
	return err
}

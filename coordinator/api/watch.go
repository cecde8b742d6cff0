package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/oomfleet/oomfleet/storage/registry"
)

// WatchLimits bound those who watch; a zero is the default.
type WatchLimits struct {
	// Most is how many may watch one coordinator; 0 is 256.
	Most int
	// Heartbeat is how often a comment shows that the stream lives; 0 is 15 s.
	Heartbeat time.Duration
	// Patience is how long a watcher may take for what was sent to it before it
	// is dropped, with an event that says so; after twice that without one. 0
	// is 10 s. Nothing is kept for a slow watcher: it comes back with the last
	// id that it saw.
	Patience time.Duration
	// Gather is how long changes are gathered before they are sent; 0 is 100 ms.
	Gather time.Duration
}

func (l WatchLimits) withDefaults() WatchLimits {
	l.Most = or(l.Most, 256)
	l.Heartbeat, l.Patience, l.Gather = or(l.Heartbeat, 15*time.Second), or(l.Patience, 10*time.Second), or(l.Gather, 100*time.Millisecond)
	return l
}

func or[T comparable](value, otherwise T) T {
	var zero T
	if value == zero {
		return otherwise
	}
	return value
}

// Event is one message of a watch.
type Event struct {
	// Kind is coefficients, boundaries, sweeps or programs; or hello (the
	// stream begins), reset (a backup was restored: forget what you know, all
	// that is there follows), dropped (you were too slow) or end (this
	// coordinator stops).
	Kind string `json:"kind"`
	// Index is the log position since which this is so. Everything up to it was
	// sent once an event came that has it as its id.
	Index        uint64               `json:"index"`
	Coefficients *CoefficientRevision `json:"coefficients,omitempty"`
	Boundary     *BoundaryEntry       `json:"boundary,omitempty"`
	Sweep        *registry.Summary    `json:"sweep,omitempty"`
	Program      *registry.Program    `json:"program,omitempty"`
	Message      string               `json:"message,omitempty"`
	Role         string               `json:"role,omitempty"`
	// ID is the event's id; 0 for one that has none.
	ID uint64 `json:"-"`
}

// Kinds of events beside registry.ChangeKinds.
const (
	EventHello   = "hello"
	EventReset   = "reset"
	EventDropped = "dropped"
	EventEnd     = "end"
)

func (s *server) registerWatch(h huma.API, mux *http.ServeMux) {
	s.Watch = s.Watch.withDefaults()
	mux.HandleFunc("GET /v1/watch", s.watch)
	document(h, plain{"watch", "/v1/watch", "Changes as they are applied here, as server-sent events", "text/event-stream", nil})
	op := h.OpenAPI().Paths["/v1/watch"].Get
	for name, about := range map[string]string{
		"since": "the log position from which on changes are wanted, 0 for all that is there; a Last-Event-ID header counts over it; neither begins now",
		"kinds": "which kinds, separated by commas: coefficients, boundaries, sweeps, programs; all by default",
	} {
		op.Parameters = append(op.Parameters, &huma.Param{Name: name, In: "query", Schema: &huma.Schema{Type: huma.TypeString}, Description: about})
	}
}

// watch sends changes until the watcher goes, is too slow, or the process ends.
func (s *server) watch(w http.ResponseWriter, r *http.Request) {
	since, kinds, p := watched(r)
	if p == nil && !s.feed.enter(s.Watch.Most) {
		p = problem(http.StatusServiceUnavailable, CodeTooMany, fmt.Sprintf("%d watch this coordinator already: watch another one", s.Watch.Most))
	}
	if p != nil {
		writeProblem(w, p)
		return
	}
	defer s.feed.leave()
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Accel-Buffering", "no") // proxies that gather would hold events back
	view := s.Registry.View()
	if since == nil {
		since = &view.AppliedIndex
	}
	stream := &stream{w: w, control: http.NewResponseController(w), limits: s.Watch}
	if err := s.follow(r.Context(), stream, *since, kinds); err != nil {
		s.Log.Debug("watch ended", "why", err)
	}
}

// watched reads the parameters; a nil index begins now.
func watched(r *http.Request) (since *uint64, kinds []registry.ChangeKind, p *Problem) {
	query := r.URL.Query()
	text, from := query.Get("since"), "since"
	if id := r.Header.Get("Last-Event-ID"); id != "" {
		text, from = id, "Last-Event-ID"
	}
	if text != "" {
		n, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			return nil, nil, problem(http.StatusUnprocessableEntity, CodeBadRequest, fmt.Sprintf("%s is a log position, not %q", from, text))
		}
		since = &n
	}
	if query.Get("kinds") == "" {
		return since, registry.ChangeKinds(), nil
	}
	for name := range strings.SplitSeq(query.Get("kinds"), ",") {
		kind := registry.ChangeKind(strings.TrimSpace(name))
		if !slices.Contains(registry.ChangeKinds(), kind) {
			return nil, nil, problem(http.StatusUnprocessableEntity, CodeBadRequest, fmt.Sprintf("kinds are coefficients, boundaries, sweeps and programs, not %q", name))
		}
		kinds = append(kinds, kind)
	}
	return since, kinds, nil
}

// follow sends everything above since, and then what comes.
func (s *server) follow(ctx context.Context, to *stream, since uint64, kinds []registry.ChangeKind) error {
	view := s.Registry.View()
	if err := to.send(Event{Kind: EventHello, Index: view.AppliedIndex, Role: s.role()}); err != nil {
		return err
	}
	beat := time.NewTicker(s.Watch.Heartbeat)
	defer beat.Stop()
	for {
		view := s.Registry.View()
		changed := s.Registry.Changed(view.AppliedIndex)
		if view.Restored > since && since > 0 {
			if err := to.send(Event{Kind: EventReset, Index: view.Restored, Message: "a backup was restored: forget what you know, all that is there follows"}); err != nil {
				return err
			}
			since = 0
		}
		if err := to.changes(ctx, s.feed.changes(view), since, view, kinds); err != nil {
			return err
		}
		since = max(since, view.AppliedIndex)
		for waiting := true; waiting; {
			select {
			case <-ctx.Done():
				return to.send(Event{Kind: EventEnd, Index: since, Message: "this coordinator stops; go on at another one with this id as Last-Event-ID", ID: since})
			case <-beat.C:
				if err := to.write(": alive\n\n"); err != nil {
					return err
				}
			case <-changed:
				waiting = false
			}
		}
		gather := time.NewTimer(s.Watch.Gather)
		select {
		case <-ctx.Done():
		case <-gather.C:
		}
		gather.Stop()
	}
}

// errDropped ends a watch whose watcher does not keep up.
var errDropped = errors.New("the watcher is too slow")

// stream is one watcher's connection.
type stream struct {
	w       http.ResponseWriter
	control *http.ResponseController
	limits  WatchLimits
}

// changes sends those above since. All of one entry have gone before its index
// is given as an id: whoever resumes there misses none.
func (t *stream) changes(ctx context.Context, all []registry.Change, since uint64, view registry.View, kinds []registry.ChangeKind) error {
	at, _ := slices.BinarySearchFunc(all, since, func(c registry.Change, since uint64) int {
		if c.Index <= since {
			return -1
		}
		return 1
	})
	wanted := slices.DeleteFunc(slices.Clone(all[at:]), func(c registry.Change) bool { return !slices.Contains(kinds, c.Kind) })
	for i, c := range wanted {
		event := eventOf(view, c)
		if last := i == len(wanted)-1; last || wanted[i+1].Index > c.Index {
			event.ID = c.Index
		}
		if err := t.send(event); err != nil {
			return err
		}
		if ctx.Err() != nil {
			return nil // follow says the last word
		}
	}
	return nil
}

// send writes one event, and drops a watcher that took too long for it.
func (t *stream) send(e Event) error {
	text, err := json.Marshal(e)
	if err != nil {
		return fmt.Errorf("encode an event: %w", err)
	}
	var out bytes.Buffer
	if e.ID > 0 {
		fmt.Fprintf(&out, "id: %d\n", e.ID)
	}
	fmt.Fprintf(&out, "event: %s\ndata: %s\n\n", e.Kind, text)
	return t.write(out.String())
}

func (t *stream) write(text string) error {
	begin := time.Now()
	if err := t.put(text); err != nil {
		return err
	}
	if time.Since(begin) <= t.limits.Patience {
		return nil
	}
	last, err := json.Marshal(Event{Kind: EventDropped, Message: "you are too slow; come back with the last id that you saw as Last-Event-ID"})
	if err != nil {
		return fmt.Errorf("encode an event: %w", err)
	}
	return errors.Join(errDropped, t.put(fmt.Sprintf("event: %s\ndata: %s\n\n", EventDropped, last)))
}

// put hands text to the connection, within twice the patience.
func (t *stream) put(text string) error {
	if err := t.control.SetWriteDeadline(time.Now().Add(2 * t.limits.Patience)); err != nil {
		return fmt.Errorf("watch: %w", err)
	}
	if _, err := t.w.Write([]byte(text)); err != nil {
		return fmt.Errorf("watch: %w", err)
	}
	return t.control.Flush()
}

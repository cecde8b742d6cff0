package coordinator

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/oomfleet/oomfleet/allocator"
	"github.com/oomfleet/oomfleet/proto"
	"github.com/oomfleet/oomfleet/queue"
	"github.com/oomfleet/oomfleet/storage/trace"
)

// Part is what of the fleet a Trouble is about.
type Part string

const (
	// PartQueue takes tasks, and what agents report.
	PartQueue Part = "queue"
	// PartTraces is the trace store, as recordings and programs are read from it.
	PartTraces Part = "traces"
	// PartPrograms is the trace store, as programs are stored in it.
	PartPrograms Part = "programs"
)

func parts() []Part { return []Part{PartQueue, PartTraces, PartPrograms} }

// Trouble is a part of the fleet that refuses what the leader asks of it, or does
// not answer, so that sweeps stand still. It ends with the next success, with the
// term, and when nothing waits for that part any more.
type Trouble struct {
	Part Part `json:"part" doc:"queue, traces (reading the store) or programs (writing to it)"`
	// Since is when it failed first, Last when it did so again, by the leader's
	// clock.
	Since time.Time `json:"since"`
	Last  time.Time `json:"last"`
	// Message is what it said last.
	Message string `json:"message"`
}

// troubleLimit bounds what a part may say of itself.
const troubleLimit = 400

// troubles are those of this term. It is a prometheus.Collector too.
type troubles struct {
	now  func() time.Time
	desc *prometheus.Desc

	mu sync.Mutex // guards at
	at map[Part]Trouble
}

func newTroubles(now func() time.Time) *troubles {
	return &troubles{now: now, at: map[Part]Trouble{}, desc: prometheus.NewDesc("oomfleet_part_refuses",
		"1 while this node as the leader cannot use a part of the fleet that work waits for, by part; the status says why.", []string{"part"}, nil)}
}

// note takes what came of asking a part for something. What ended with ctx says
// nothing about it.
func (t *troubles) note(ctx context.Context, p Part, err error) {
	switch {
	case err == nil:
		t.over(p)
		return
	case ctx.Err() != nil:
		return
	}
	text := err.Error()
	if len(text) > troubleLimit {
		text = strings.ToValidUTF8(text[:troubleLimit], "") + "..."
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	trouble := Trouble{Part: p, Since: t.now(), Last: t.now(), Message: text}
	if before, ok := t.at[p]; ok {
		trouble.Since = before.Since
	}
	t.at[p] = trouble
}

// over ends the troubles with some parts.
func (t *troubles) over(of ...Part) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, p := range of {
		delete(t.at, p)
	}
}

// list is in the order of parts.
func (t *troubles) list() []Trouble {
	t.mu.Lock()
	defer t.mu.Unlock()
	var out []Trouble
	for _, p := range parts() {
		if trouble, ok := t.at[p]; ok {
			out = append(out, trouble)
		}
	}
	return out
}

// Troubles are those that this node has while it leads; none for none.
func (c *Coordinator) Troubles() []Trouble { return c.troubles.list() }

// Describe implements prometheus.Collector.
func (t *troubles) Describe(to chan<- *prometheus.Desc) { to <- t.desc }

// Collect implements prometheus.Collector.
func (t *troubles) Collect(to chan<- prometheus.Metric) {
	now := t.list()
	for _, p := range parts() {
		value := 0.0
		if slices.ContainsFunc(now, func(trouble Trouble) bool { return trouble.Part == p }) {
			value = 1
		}
		to <- prometheus.MustNewConstMetric(t.desc, prometheus.GaugeValue, value, string(p))
	}
}

// watchedQueue notes whether tasks could be published.
type watchedQueue struct {
	Queue
	troubles *troubles
}

// Publish adds tasks. A queue that holds as many as it may, or a task that no
// queue takes, is no trouble with the queue.
func (q watchedQueue) Publish(ctx context.Context, tasks []proto.Task) (int, error) {
	n, err := q.Queue.Publish(ctx, tasks)
	q.note(ctx, err)
	return n, err
}

// prober is a queue that can try whether it would take a task.
type prober interface {
	Room(ctx context.Context) error
}

// probe finds out whether the queue takes anything while nothing is published:
// with all tasks handed out, what agents report is all that it refuses. Where no
// task is open there is nothing that could be refused.
func (q watchedQueue) probe(ctx context.Context, open bool) {
	var err error
	if p, ok := q.Queue.(prober); ok && open {
		err = p.Room(ctx)
	}
	q.note(ctx, err)
}

func (q watchedQueue) note(ctx context.Context, err error) {
	if errors.Is(err, queue.ErrFull) || errors.Is(err, queue.ErrTooLarge) {
		q.troubles.over(PartQueue)
	} else {
		q.troubles.note(ctx, PartQueue, err)
	}
}

// watchedTraces notes whether the trace store could be used.
type watchedTraces struct {
	Traces
	troubles *troubles
}

// read notes what came of reading. An object that is not there or not whole is no
// trouble with the store.
func (s watchedTraces) read(ctx context.Context, err error) {
	if errors.Is(err, trace.ErrNotFound) || errors.Is(err, trace.ErrCorrupt) || errors.Is(err, trace.ErrFormat) {
		err = nil
	}
	s.troubles.note(ctx, PartTraces, err)
}

// GetTrace reads a recording.
func (s watchedTraces) GetTrace(ctx context.Context, digest proto.Digest) ([]allocator.Event, trace.Meta, error) {
	events, meta, err := s.Traces.GetTrace(ctx, digest)
	s.read(ctx, err)
	return events, meta, err
}

// GetProgram reads a program.
func (s watchedTraces) GetProgram(ctx context.Context, digest proto.Digest) ([]byte, error) {
	text, err := s.Traces.GetProgram(ctx, digest)
	s.read(ctx, err)
	return text, err
}

// PutProgram stores a program.
func (s watchedTraces) PutProgram(ctx context.Context, text []byte) (proto.Digest, error) {
	digest, err := s.Traces.PutProgram(ctx, text)
	s.troubles.note(ctx, PartPrograms, err)
	return digest, err
}

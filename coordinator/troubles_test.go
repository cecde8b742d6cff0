package coordinator

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/oomfleet/oomfleet/proto"
	"github.com/oomfleet/oomfleet/queue"
)

// refusals are an error that is given out while on, and how often it was.
type refusals struct {
	on    atomic.Bool
	given chan struct{}
}

func refusing() *refusals {
	r := &refusals{given: make(chan struct{}, 1)}
	r.on.Store(true)
	return r
}

func (r *refusals) next(err error) error {
	if !r.on.Load() {
		return nil
	}
	select {
	case r.given <- struct{}{}:
	default:
	}
	return err
}

// await returns when a refusal that began after its call has been noted: one may
// have waited here, one may be under way, and one begins behind the noted one.
func (r *refusals) await(ctx context.Context, t *testing.T) {
	t.Helper()
	for range 4 {
		select {
		case <-r.given:
		case <-ctx.Done():
			t.Fatal("nobody asked")
		}
	}
}

// roomless is a queue that takes tasks, and has been filled up since by others.
type roomless struct {
	queue.Queue
	room func() error
}

func (q *roomless) Room(context.Context) error { return q.room() }

// TestTroubles: what the leader cannot use is known while it lasts, with the
// reason, and gone with the next success.
func TestTroubles(t *testing.T) {
	for _, tt := range []struct {
		part  Part
		err   error
		spoil func(f *fleet, r *refusals, err error)
	}{
		{PartQueue, fmt.Errorf("publish tasks: %w: atomic publish batch is incomplete", queue.ErrNoRoom), func(f *fleet, r *refusals, err error) {
			f.queue = &stuffed{f.queue, func([]proto.Task) error { return r.next(err) }}
		}},
		{PartQueue, fmt.Errorf("look for room in the queue: %w", queue.ErrNoRoom), func(f *fleet, r *refusals, err error) {
			f.queue = &roomless{f.queue, func() error { return r.next(err) }}
		}},
		{PartTraces, errors.New("connection refused by the store"), func(f *fleet, r *refusals, err error) {
			f.traces.fail = func(int) error { return r.next(err) }
		}},
	} {
		t.Run(tt.err.Error(), func(t *testing.T) {
			f, r := newFleet(t), refusing()
			tt.spoil(f, r, tt.err)
			c, stop := f.start()
			if tt.part == PartTraces { // else nobody takes what is published before the look
				f.agents(1, f.honest)
			}
			id := f.submit(c, "[64]")
			r.await(f.ctx, t)
			got := c.Troubles()
			if len(got) != 1 || got[0].Part != tt.part || !strings.Contains(got[0].Message, tt.err.Error()) || got[0].Since.IsZero() || got[0].Last.Before(got[0].Since) {
				t.Errorf("%+v", got)
			}
			series := fmt.Sprintf("oomfleet_part_refuses{part=%q}", tt.part)
			f.counted(map[string]float64{series: 1})
			r.on.Store(false)
			if tt.part != PartTraces {
				f.agents(1, f.honest)
			}
			f.check(f.settled(id))
			if got := c.Troubles(); len(got) > 0 {
				t.Errorf("after a success: %+v", got)
			}
			f.counted(map[string]float64{series: 0})
			stop()
		})
	}
}

// TestTroublesEnd: with nothing that waits for the queue, and with the term, there
// is no trouble, though nothing has succeeded.
func TestTroublesEnd(t *testing.T) {
	for name, end := range map[string]func(f *fleet, c *Coordinator, id proto.MatrixID) error{
		"cancelled":   func(f *fleet, c *Coordinator, id proto.MatrixID) error { _, err := c.Cancel(f.ctx, id); return err },
		"deposed":     func(f *fleet, _ *Coordinator, _ proto.MatrixID) error { f.registry.lead(false); return nil },
		"it was full": nil,
	} {
		t.Run(name, func(t *testing.T) {
			f, r := newFleet(t), refusing()
			var full atomic.Bool
			audited := make(chan struct{}, 1)
			f.queue = &looked{&stuffed{f.queue, func([]proto.Task) error {
				if full.Load() {
					return r.next(queue.ErrFull)
				}
				return r.next(queue.ErrNoRoom)
			}}, audited}
			c, stop := f.start()
			id := f.submit(c, "[64]")
			r.await(f.ctx, t)
			if len(c.Troubles()) != 1 {
				t.Fatal("there was none")
			}
			switch {
			case end == nil:
				full.Store(true)
				r.await(f.ctx, t)
			case end(f, c, id) != nil:
				t.Fatal("it did not end")
			case name == "deposed":
				stop() // joins the term
			default:
				for range 4 { // one that was told before, one that began before, one from its begin to its end
					<-audited
				}
			}
			if got := c.Troubles(); len(got) > 0 {
				t.Errorf("%+v", got)
			}
		})
	}
}

// TestTroubleOfAnEndingTerm: what ends with its context says nothing of a part,
// and a long message is cut.
func TestTroubleOfAnEndingTerm(t *testing.T) {
	list := newTroubles(time.Now)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	list.note(ended, PartQueue, ended.Err())
	if got := list.list(); len(got) > 0 {
		t.Errorf("%+v", got)
	}
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() { list.note(t.Context(), PartPrograms, errors.New(strings.Repeat("x", 10_000))) })
	}
	wg.Wait()
	if got := list.list(); len(got) != 1 || len(got[0].Message) > troubleLimit+3 {
		t.Errorf("%+v", got)
	}
}

package queuetest

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/oomfleet/oomfleet/proto"
	"github.com/oomfleet/oomfleet/queue"
)

// listening is one that listens to a pool; said is what it hears.
type listening struct {
	said chan proto.Control
	end  context.CancelFunc
	done chan error
}

func (b *bench) listen(q queue.Queue, pool proto.Pool) *listening {
	ctx, end := context.WithCancel(b.ctx)
	l := &listening{make(chan proto.Control, 1000), end, make(chan error, 1)}
	go func() { l.done <- q.Listen(ctx, pool, func(c proto.Control) { l.said <- c }) }() // joined by its test
	return l
}

// until tells until it is heard: a listener is not there from its first line on.
func (b *bench) until(pool proto.Pool, c proto.Control, l *listening) proto.Control {
	b.Helper()
	again := time.NewTicker(50 * time.Millisecond)
	defer again.Stop()
	late := time.NewTimer(soon)
	defer late.Stop()
	for {
		b.ok("Tell", b.q.Tell(b.ctx, pool, c))
		select {
		case heard := <-l.said:
			return heard
		case <-again.C:
		case <-late.C:
			b.Fatal("what was told is not heard")
		}
	}
}

func toldToListeners(b *bench) {
	mine, theirs := NewTask("580.1", 1, 7), NewTask("580.2", 2, 8)
	first, second, other := b.listen(b.open(), mine.Pool()), b.listen(b.open(), mine.Pool()), b.listen(b.open(), theirs.Pool())
	said := proto.Control{Stop: []proto.TaskID{mine.ID}, Seen: 9, Drain: []proto.AgentID{"gpu-1"}}
	for _, l := range []*listening{first, second} {
		heard := b.until(mine.Pool(), said, l)
		if !heard.Stops(mine) || heard.Seen != 9 || !slices.Equal(heard.Drain, said.Drain) {
			b.Errorf("heard %+v", heard)
		}
	}
	b.until(theirs.Pool(), proto.Control{Stop: []proto.TaskID{theirs.ID}}, other)
	for len(other.said) > 0 {
		if heard := <-other.said; heard.Stops(mine) {
			b.Errorf("another pool heard %+v", heard)
		}
	}
	for _, l := range []*listening{first, second, other} {
		l.end()
		if err := <-l.done; err != nil {
			b.Errorf("Listen: %v", err)
		}
	}
	b.ok("Tell with nobody there", b.q.Tell(b.ctx, mine.Pool(), said))
}

func closeEndsListening(b *bench) {
	task := NewTask("580.1", 1, 7)
	q := b.open()
	l := b.listen(q, task.Pool())
	defer l.end()
	b.until(task.Pool(), proto.Control{Seen: 1}, l)
	b.ok("Close", q.Close())
	select {
	case err := <-l.done:
		if !errors.Is(err, queue.ErrClosed) {
			b.Errorf("Listen: %v", err)
		}
	case <-time.After(soon):
		b.Error("Listen goes on after Close")
	}
}

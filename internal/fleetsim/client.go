package fleetsim

import (
	"context"
	"errors"
	"time"

	"github.com/oomfleet/oomfleet/allocator"
	"github.com/oomfleet/oomfleet/proto"
	"github.com/oomfleet/oomfleet/queue"
	"github.com/oomfleet/oomfleet/storage/trace"
)

// queueClient is the queue in a coordinator's hands. Its calls may arrive long
// after they were made, when another node leads: that is how a deposed leader
// publishes.
type queueClient struct{ node *node }

// call takes a request to the queue and its answer back. An error says nothing
// about whether the request arrived.
func (c queueClient) call(do func()) error {
	n := c.node
	var failed bool
	err := n.await(func(done func()) {
		there := n.latency("queue", time.Millisecond, 10*time.Millisecond)
		if n.trouble.hits(n.now, FaultLeader, 40) {
			there = n.dice.between("stale", time.Second, 20*time.Second)
		}
		n.after(there, func() {
			if failed = n.queue.down; !failed {
				do()
			}
			n.after(n.latency("queue", time.Millisecond, 5*time.Millisecond), done)
		})
		if there > time.Second { // the caller does not wait that long
			n.after(time.Second, func() { failed = true; done() })
		}
	})
	if err == nil && failed {
		err = errNoQueue
	}
	return err
}

func (c queueClient) Publish(_ context.Context, tasks []proto.Task) (int, error) {
	node := c.node
	if err := c.call(func() {
		if node.leader != node {
			node.note("node %d publishes %d tasks and does not lead any more", node.id, len(tasks))
			node.check.books.StalePublishes++
			if node.cfg.mutation == uncommitted {
				tasks = invent(tasks)
			}
		}
		node.queue.publish(tasks)
	}); err != nil {
		return 0, err
	}
	return len(tasks), nil
}

func (c queueClient) Waiting(context.Context) (ids map[proto.TaskID]bool, err error) {
	err = c.call(func() {
		ids = c.node.queue.waiting()
		if c.node.cfg.mutation == lostTask { // an audit that is told that lost tasks are there
			for _, rec := range c.node.machine.View().Records {
				for _, o := range rec.Open {
					ids[o.Task.ID] = true
				}
			}
		}
	})
	return ids, err
}

func (c queueClient) Remove(_ context.Context, _ proto.Pool, ids []proto.TaskID) error {
	return c.call(func() { c.node.queue.remove(ids) })
}

func (c queueClient) ReportsPending(context.Context) (n int, err error) {
	err = c.call(func() { n = len(c.node.queue.reports) })
	return n, err
}

func (c queueClient) Tell(_ context.Context, pool proto.Pool, said proto.Control) error {
	return c.call(func() { c.node.queue.tell(pool, said) })
}

func (c queueClient) Agents(context.Context) (list []proto.AgentInfo, err error) {
	err = c.call(func() { list = c.node.queue.present() })
	return list, err
}

// NextReport waits until there is a report and this node is the one to take it.
func (c queueClient) NextReport(context.Context) (queue.Report, error) {
	n := c.node
	var got *letter
	err := n.await(func(done func()) {
		var look func()
		look = func() {
			if got == nil {
				if got = n.queue.take(); got != nil {
					n.after(n.latency("queue", time.Millisecond, 5*time.Millisecond), done)
					return
				}
			}
			n.queue.takers = append(n.queue.takers, look)
		}
		look()
	})
	if err != nil {
		return nil, err
	}
	return report{c, got}, nil
}

type report struct {
	queueClient
	letter *letter
}

func (r report) Result() (proto.Result, error) { return r.letter.result, nil }

func (r report) Ack(context.Context) error {
	var ok bool
	if err := r.call(func() { ok = r.node.queue.ackReport(r.letter) }); err != nil {
		return err
	}
	if !ok {
		return errNoQueue
	}
	return nil
}

// store is the trace store as its users see it: whole objects under the hash of
// what they hold.
type store struct {
	traces   map[proto.Digest][]allocator.Event
	programs map[proto.Digest][]byte
	// modified is when each object was put last.
	modified map[proto.Digest]time.Duration
	down     bool
}

func newStore() *store {
	return &store{traces: make(map[proto.Digest][]allocator.Event), programs: make(map[proto.Digest][]byte), modified: make(map[proto.Digest]time.Duration)}
}

var errNoStore = errors.New("the trace store does not answer")

// storeClient is the trace store in a coordinator's hands.
type storeClient struct{ *sim }

func (c storeClient) call(do func()) error {
	var failed bool
	err := c.await(func(done func()) {
		c.after(c.latency("store", 5*time.Millisecond, 80*time.Millisecond), func() {
			if failed = c.store.down; !failed {
				do()
			}
			done()
		})
	})
	if err == nil && failed {
		err = errNoStore
	}
	return err
}

func (c storeClient) GetTrace(_ context.Context, digest proto.Digest) (events []allocator.Event, _ trace.Meta, err error) {
	if err := c.call(func() { events = c.store.traces[digest] }); err != nil {
		return nil, trace.Meta{}, err
	}
	if events == nil {
		return nil, trace.Meta{}, trace.ErrNotFound
	}
	return events, trace.Meta{}, nil
}

func (c storeClient) GetProgram(_ context.Context, digest proto.Digest) (text []byte, err error) {
	if err := c.call(func() { text = c.store.programs[digest] }); err != nil {
		return nil, err
	}
	if text == nil {
		return nil, trace.ErrNotFound
	}
	return text, nil
}

func (c storeClient) PutProgram(_ context.Context, text []byte) (digest proto.Digest, err error) {
	digest = digestOf(string(text))
	return digest, c.call(func() {
		c.store.programs[digest] = text
		c.put(digest)
	})
}

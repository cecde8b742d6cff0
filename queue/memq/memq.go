package memq

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/oomfleet/oomfleet/proto"
	"github.com/oomfleet/oomfleet/queue"
)

// Config limits a queue. The zero value of every field is a working default.
type Config struct {
	// Lease is how long a task stays with its agent without Extend (30 s),
	// ReportLease how long a report stays with the leader (5 s).
	Lease, ReportLease time.Duration
	// MaxTasks is how many tasks, and how many reports, are taken (100,000).
	MaxTasks int
	// MaxMessage is the largest task or report in bytes (1 MiB).
	MaxMessage int
	// Clock is wall time unless set.
	Clock Clock
}

// Validate returns every problem of c at once.
func (c Config) Validate() error {
	if c.Lease < 0 || c.ReportLease < 0 || c.MaxTasks < 0 || c.MaxMessage < 0 {
		return errors.New("leases and limits cannot be negative")
	}
	return nil
}

func (c Config) withDefaults() Config {
	for _, d := range []struct {
		field *time.Duration
		value time.Duration
	}{{&c.Lease, 30 * time.Second}, {&c.ReportLease, 5 * time.Second}} {
		if *d.field == 0 {
			*d.field = d.value
		}
	}
	if c.MaxTasks == 0 {
		c.MaxTasks = 100_000
	}
	if c.MaxMessage == 0 {
		c.MaxMessage = 1 << 20
	}
	if c.Clock == nil {
		c.Clock = wall{}
	}
	return c
}

// Queue is one client of a queue in memory. All methods are safe for concurrent
// use. It starts no goroutine.
type Queue struct {
	s    *store
	once *sync.Once
	done chan struct{} // closed by Close
}

// store is what all clients share.
type store struct {
	cfg Config

	mu      sync.Mutex // guards the rest
	seq     uint64
	pools   map[proto.Pool]*lane
	tasks   int // in all pools
	reports *lane
	seen    map[string]bool // ids of all reports ever stored
	agents  map[proto.AgentID]announced
	ears    map[*ear]bool
	changed chan struct{} // closed and replaced when something became ready
}

// New returns the first client of a new queue.
func New(cfg Config) (*Queue, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("new queue: %w", err)
	}
	s := &store{cfg: cfg.withDefaults(), pools: map[proto.Pool]*lane{}, reports: newLane(),
		seen: map[string]bool{}, agents: map[proto.AgentID]announced{}, changed: make(chan struct{})}
	return s.client(), nil
}

func (s *store) client() *Queue {
	return &Queue{s: s, once: &sync.Once{}, done: make(chan struct{})}
}

// Client returns one more client of the same queue, as another process would
// have it. Closing one leaves the others.
func (q *Queue) Client() *Queue { return q.s.client() }

// Close implements queue.Queue.
func (q *Queue) Close() error {
	q.once.Do(func() { close(q.done) })
	return nil
}

// open returns why op cannot be done: the queue is closed or ctx has ended.
func (q *Queue) open(ctx context.Context, op string) error {
	select {
	case <-q.done:
		return fmt.Errorf("%s: %w", op, queue.ErrClosed)
	default:
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%s: %w", op, err)
	}
	return nil
}

// wakeLocked ends the waits, which then look again.
func (s *store) wakeLocked() {
	close(s.changed)
	s.changed = make(chan struct{})
}

func (s *store) poolLocked(pool proto.Pool) *lane {
	l := s.pools[pool]
	if l == nil {
		l = newLane()
		s.pools[pool] = l
	}
	return l
}

// wait takes the next item of a lane for lease. The data comes with it: it is
// read under the lock, since whoever removes the item takes the data out of it.
func (q *Queue) wait(ctx context.Context, op string, lane func() *lane, lease time.Duration) (*item, []byte, error) {
	for {
		if err := q.open(ctx, op); err != nil {
			return nil, nil, err
		}
		q.s.mu.Lock()
		now := q.s.cfg.Clock.Now()
		if it := lane().take(now, now.Add(lease)); it != nil {
			data := it.data
			q.s.mu.Unlock()
			return it, data, nil
		}
		due, held := lane().next()
		changed := q.s.changed
		q.s.mu.Unlock()
		var alarm <-chan time.Time
		if held {
			alarm = q.s.cfg.Clock.After(due.Sub(now))
		}
		select {
		case <-ctx.Done():
		case <-q.done:
		case <-changed:
		case <-alarm:
		}
	}
}

// encode is v as JSON within the message limit.
func (s *store) encode(what string, v any) ([]byte, error) {
	data, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	if len(data) > s.cfg.MaxMessage {
		return nil, fmt.Errorf("%w: %s is %d bytes, the limit is %d", queue.ErrTooLarge, what, len(data), s.cfg.MaxMessage)
	}
	return data, nil
}

// checkToken refuses what a queue with subjects could not carry.
func checkToken(what, s string) error {
	bad := strings.IndexFunc(s, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '-'
	})
	if s == "" || bad >= 0 {
		return fmt.Errorf("%s %q is not made of a-z, 0-9 and - alone", what, s)
	}
	return nil
}

package devfleet

import (
	"context"
	"sync"
)

// stage holds the processes that run, in order of starting.
type stage struct {
	fleet  *Fleet
	cancel context.CancelCauseFunc
	actors []actor

	// mu guards err.
	mu  sync.Mutex
	err error
}

// actor is one supervised process with its own end, so that a fleet can be
// taken down in order.
type actor struct {
	cancel context.CancelFunc
	done   chan struct{}
}

// start supervises a process of its own. Should it fail for good, the whole
// fleet ends with its error. The process outlives ctx: stop ends it in order.
func (s *stage) start(ctx context.Context, sp spec) *process {
	p := newProcess(s.fleet.cfg.Binary, s.fleet.Logs(), sp)
	s.fleet.procs[sp.name] = p
	s.fleet.order = append(s.fleet.order, sp.name)
	own, cancel := context.WithCancel(context.WithoutCancel(ctx))
	a := actor{cancel: cancel, done: make(chan struct{})}
	s.actors = append(s.actors, a)
	go func() { // joined by stop
		defer close(a.done)
		if err := p.run(own); err != nil {
			s.mu.Lock()
			if s.err == nil {
				s.err = err
			}
			s.mu.Unlock()
			s.cancel(err)
		}
	}()
	return p
}

// stop ends the processes in the reverse order of their start, so that agents
// can still hand their task back.
func (s *stage) stop() {
	for i := len(s.actors) - 1; i >= 0; i-- {
		s.actors[i].cancel()
		<-s.actors[i].done
	}
}

func (s *stage) failure() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

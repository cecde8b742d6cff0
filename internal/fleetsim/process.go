package fleetsim

import (
	"context"
	"iter"

	"github.com/oomfleet/oomfleet/storage/registry"
)

// kernel runs processes, one at a time.
type kernel struct {
	*clock
	// current is the process that runs now; nil while the simulator itself does.
	current *process
	all     []*process
	// root is what all processes' contexts come from.
	root   context.Context
	endAll context.CancelFunc
}

func newKernel(ctx context.Context) *kernel {
	k := &kernel{clock: &clock{}}
	k.root, k.endAll = context.WithCancel(ctx)
	return k
}

// process is sequential code that was written to block: a coroutine which gives
// way whenever it waits.
type process struct {
	kernel *kernel
	ctx    context.Context
	next   func() (begin, bool)
	yield  func(begin) bool
	stop   func()
	// round numbers the waits, so that an answer that comes twice or too late
	// wakes nobody.
	round       int
	waiting     bool
	interrupted bool
	// dead: the machine that it ran on is gone; nothing it does has an effect.
	dead  bool
	ended func()
}

// begin starts what a process waits for; it must call done, then or later.
type begin func(done func())

// start makes a process, which runs as soon as the simulator comes to it. ended
// is called after its end.
func (k *kernel) start(ctx context.Context, body func(), ended func()) *process {
	p := &process{kernel: k, ctx: ctx, ended: ended}
	p.next, p.stop = iter.Pull(func(yield func(begin) bool) {
		p.yield = yield
		body()
	})
	k.all = append(k.all, p)
	k.after(0, func() {
		if !p.dead {
			k.resume(p)
		}
	})
	return p
}

func (k *kernel) resume(p *process) {
	p.waiting = false
	k.current = p
	start, more := p.next()
	k.current = nil
	if !more {
		p.dead = true
		p.ended()
		return
	}
	p.waiting = true
	p.round++
	round := p.round
	start(func() {
		k.after(0, func() {
			if p.waiting && p.round == round {
				k.resume(p)
			}
		})
	})
}

// await lets the running process wait for what start begins. It returns the
// context's error when the process was interrupted, and registry.ErrClosed when
// its machine is gone.
func (k *kernel) await(start begin) error {
	p := k.current
	if p.dead || !p.yield(start) {
		p.dead = true
		return registry.ErrClosed
	}
	if p.interrupted {
		p.interrupted = false
		if err := context.Cause(p.ctx); err != nil {
			return err
		}
	}
	return nil
}

// interrupt wakes a process whose context has ended. What it waited for goes on
// without it.
func (p *process) interrupt() {
	if p.waiting {
		p.interrupted, p.waiting = true, false
		p.kernel.after(0, func() {
			if !p.dead {
				p.kernel.resume(p)
			}
		})
	}
}

// kill ends a process where it stands. It must not be the running one.
func (p *process) kill() {
	p.dead, p.waiting = true, false
	p.kernel.current = p
	p.stop() // unwinds: every wait fails at once
	p.kernel.current = nil
}

// end kills what still runs.
func (k *kernel) end() {
	k.endAll()
	for _, p := range k.all {
		p.dead = true
	}
	for _, p := range k.all {
		p.kill()
	}
}

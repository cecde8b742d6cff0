package devfleet

import (
	"context"
	"fmt"
	"syscall"
)

// The methods here are for tests that break things. A process is named "queue",
// "s3", "coordinator-a", "agent-0" and so on; they hold once the fleet is ready.

// Signal sends a signal to a process and returns its id.
func (f *Fleet) Signal(name string, sig syscall.Signal) (pid int, err error) {
	p, err := f.process(name)
	if err != nil {
		return 0, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd == nil {
		return 0, fmt.Errorf("%s is not running", name)
	}
	return p.cmd.Process.Pid, p.cmd.Process.Signal(sig)
}

// Down kills a process with SIGKILL, waits until it is gone, and keeps it down
// until Up. It fails when ctx ends first.
func (f *Fleet) Down(ctx context.Context, name string) error {
	p, err := f.process(name)
	if err != nil {
		return err
	}
	p.mu.Lock()
	if p.up == nil {
		p.up = make(chan struct{})
	}
	ended := p.ended
	if ended != nil {
		p.cmd.Process.Kill() //nolint:errcheck // gone already is as good
	}
	p.mu.Unlock()
	if ended == nil {
		return nil
	}
	select {
	case <-ended:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("kill %s: %w", name, context.Cause(ctx))
	}
}

// Up starts a process again that Down has ended; it does not wait for it.
func (f *Fleet) Up(name string) error {
	p, err := f.process(name)
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.up != nil {
		close(p.up)
		p.up = nil
	}
	return nil
}

// Starts is how often a process was started so far.
func (f *Fleet) Starts(name string) int {
	p, err := f.process(name)
	if err != nil {
		return 0
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.starts
}

func (f *Fleet) process(name string) (*process, error) {
	if p := f.procs[name]; p != nil {
		return p, nil
	}
	return nil, fmt.Errorf("the fleet has no process %q", name)
}

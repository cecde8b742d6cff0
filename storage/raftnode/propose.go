package raftnode

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/hashicorp/raft"
	"github.com/oomfleet/oomfleet/storage/registry"
)

// Propose writes a command to the log and returns what the registry made of it,
// once a majority has it on disk and this node has applied it. Version 0 is
// filled in with the lowest that the command can be written in, so that members
// of older builds read it too: one that could not would stop.
//
// It returns a *registry.NotLeaderError when another node leads and nothing was
// written, registry.ErrTooLarge for a command that can never fit,
// registry.ErrOldMember for one that a member could not apply, registry.ErrUncertain when leadership was lost or ctx ended on the way, and
// registry.ErrClosed after Close.
func (n *Node) Propose(ctx context.Context, cmd registry.Command) (registry.Reply, error) {
	start := time.Now()
	reply, err := n.propose(ctx, cmd)
	n.metrics.observe(time.Since(start), err)
	if err != nil {
		return registry.Reply{}, fmt.Errorf("propose: %w", err)
	}
	return reply, nil
}

func (n *Node) propose(ctx context.Context, cmd registry.Command) (registry.Reply, error) {
	if err := n.mayPropose(ctx); err != nil {
		return registry.Reply{}, err
	}
	if cmd.Version == 0 {
		version, err := n.version(cmd)
		if err != nil {
			return registry.Reply{}, err
		}
		cmd.Version = version
	}
	entry, err := n.fsm.packer.pack(cmd)
	if err != nil {
		return registry.Reply{}, err
	}
	var future raft.ApplyFuture
	err = n.call(ctx, func() raft.Future {
		future = n.raft.Apply(entry, enqueueWait(ctx))
		return future
	})
	if err != nil {
		return registry.Reply{}, err
	}
	return future.Response().(registry.Reply), nil
}

// version is the one under which a command may go into the log of this cluster.
// A member that has announced none, or that the registry does not know yet,
// counts as one of the first build.
func (n *Node) version(cmd registry.Command) (int, error) {
	servers, err := n.servers()
	if err != nil {
		return 0, n.translate(err)
	}
	known, members := n.View().Members, map[string]registry.Member{}
	for _, s := range servers {
		members[string(s.ID)] = known[string(s.ID)]
	}
	return registry.Gate(cmd, members)
}

// mayPropose fails early where nothing would be written.
func (n *Node) mayPropose(ctx context.Context) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	switch n.raft.State() {
	case raft.Leader:
		return nil
	case raft.Shutdown:
		return registry.ErrClosed
	}
	return &registry.NotLeaderError{Leader: n.LeaderID()}
}

// enqueueWait is how long a call may wait for room in raft's queue.
func enqueueWait(ctx context.Context) time.Duration {
	if deadline, ok := ctx.Deadline(); ok {
		return max(time.Until(deadline), time.Nanosecond)
	}
	return ioTimeout
}

// call begins something in raft and waits for it or for ctx.
func (n *Node) call(ctx context.Context, begin func() raft.Future) error {
	done, ok := n.calls.start(begin)
	if !ok {
		return registry.ErrClosed
	}
	select {
	case err := <-done:
		return n.translate(err)
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", registry.ErrUncertain, context.Cause(ctx))
	}
}

// calls are the goroutines that wait for raft's futures, which know no context.
// Close joins them before it shuts raft down: a proposal that lies in raft's
// queue at that moment would never be answered. Until then each is, because a
// leader without a majority steps down.
type calls struct {
	mu     sync.Mutex // guards closed and reads, and Add against Wait
	closed bool
	wg     sync.WaitGroup
	reads  reads
}

// start is false once join was called.
func (c *calls) start(begin func() raft.Future) (done <-chan error, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, false
	}
	result := make(chan error, 1)
	c.wg.Go(func() { result <- begin().Error() })
	return result, true
}

func (c *calls) join() {
	c.refuse()
	c.wg.Wait()
}

// refuse makes start fail from now on.
func (c *calls) refuse() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
}

// translate turns raft's errors into the registry's.
func (n *Node) translate(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, raft.ErrNotLeader), errors.Is(err, raft.ErrLeadershipTransferInProgress):
		return &registry.NotLeaderError{Leader: n.LeaderID()}
	case errors.Is(err, raft.ErrLeadershipLost), errors.Is(err, raft.ErrAbortedByRestore):
		return fmt.Errorf("%w: %w", registry.ErrUncertain, err)
	case errors.Is(err, raft.ErrRaftShutdown):
		return fmt.Errorf("%w: %w", registry.ErrUncertain, registry.ErrClosed)
	}
	return err
}

// Barrier waits until everything that was committed before it is in View. A new
// leader calls it once before it plans. It costs one write to the log.
func (n *Node) Barrier(ctx context.Context) error {
	if err := n.mayPropose(ctx); err != nil {
		return fmt.Errorf("barrier: %w", err)
	}
	if err := n.call(ctx, func() raft.Future { return finished{n.barrier()} }); err != nil {
		return fmt.Errorf("barrier: %w", err)
	}
	return nil
}

// VerifyLeader asks a majority whether this node still leads. An answer that was
// under way already counts; a read that must be of now needs Consistent.
func (n *Node) VerifyLeader(ctx context.Context) error {
	if err := n.mayPropose(ctx); err != nil {
		return fmt.Errorf("verify leader: %w", err)
	}
	if err := n.call(ctx, n.raft.VerifyLeader); err != nil {
		return fmt.Errorf("verify leader: %w", err)
	}
	return nil
}

// Transfer hands leadership to the most current of the other servers and returns
// when that one leads. It is an error when this node does not lead or is alone.
func (n *Node) Transfer(ctx context.Context) error {
	if err := n.mayPropose(ctx); err != nil {
		return fmt.Errorf("transfer leadership: %w", err)
	}
	if err := n.call(ctx, n.raft.LeadershipTransfer); err != nil {
		return fmt.Errorf("transfer leadership: %w", err)
	}
	return nil
}

// Snapshot writes a snapshot now; raft takes them by itself as the log grows.
// With nothing new since the last one it does nothing.
func (n *Node) Snapshot(ctx context.Context) error {
	err := n.call(ctx, func() raft.Future { return n.raft.Snapshot() })
	if err != nil && !errors.Is(err, raft.ErrNothingNewToSnapshot) {
		return fmt.Errorf("snapshot: %w", err)
	}
	return nil
}

package raftnode

import (
	"context"
	"fmt"
	"time"

	"github.com/hashicorp/raft"
	"github.com/oomfleet/oomfleet/storage/registry"
)

// Consistent returns once View holds everything that was acknowledged, by any
// node, before the call. Only the leader can say so; it fails as Barrier does.
//
// It costs an entry of the log, which those who ask at the same time share. A
// round of heartbeats (VerifyLeader) is cheaper and not enough: raft counts an
// answer that was under way when it was asked, so a leader that was stopped for
// a while and goes on may take an answer of before for one of now
// (TestConsistentOnTheLeaderOnly has failed with it).
func (n *Node) Consistent(ctx context.Context) error {
	if err := n.mayPropose(ctx); err != nil {
		return fmt.Errorf("consistent read: %w", err)
	}
	read, ok := n.calls.read(n.barrier)
	if !ok {
		return fmt.Errorf("consistent read: %w", registry.ErrClosed)
	}
	select {
	case <-read.done:
	case <-ctx.Done():
		return fmt.Errorf("consistent read: %w", context.Cause(ctx))
	}
	if read.err != nil {
		return fmt.Errorf("consistent read: %w", n.translate(read.err))
	}
	return nil
}

// barrier is Barrier for whoever has a goroutine to wait in.
func (n *Node) barrier() error {
	term := n.Term()
	err := n.raft.Barrier(ioTimeout).Error()
	if err == nil {
		n.lead.complete.Store(term) // not a later one, in which other entries may wait
	}
	return err
}

// read is one barrier on which consistent reads wait.
type read struct {
	done chan struct{}
	err  error // once done
}

// reads are the barriers of consistent reads: at most one is under way, and
// those who come meanwhile share the next, which begins after they came.
type reads struct {
	next    *read
	running bool
}

// read joins the next barrier. It is false once join was called.
func (c *calls) read(barrier func() error) (*read, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, false
	}
	if c.reads.next == nil {
		c.reads.next = &read{done: make(chan struct{})}
	}
	mine := c.reads.next
	if !c.reads.running {
		c.reads.running = true
		c.wg.Go(func() {
			for next := c.takeRead(); next != nil; next = c.takeRead() {
				next.err = barrier()
				close(next.done)
			}
		})
	}
	return mine, true
}

func (c *calls) takeRead() *read {
	c.mu.Lock()
	defer c.mu.Unlock()
	next := c.reads.next
	c.reads.next, c.reads.running = nil, next != nil
	return next
}

// steady is how far behind a node may be that counts as caught up: one that
// follows a busy log is always an entry behind.
const steady = 5 * time.Second

// Standing is how old View may be at most, and whether this node is of use: it
// leads and has applied all of its log, or it follows a leader and is at most
// some seconds behind. A node that has just started on a long log is not.
//
// A leader's View has age 0 as long as it leads, which only Consistent proves.
// A follower that has applied all that it knows to be committed is as old as its
// last contact with the leader, give or take the time that a message takes. One
// that has more to apply is as old as the last entry that it has, by the clocks
// of the two machines.
func (n *Node) Standing() (age time.Duration, ready bool) {
	if n.IsLeader() {
		return 0, n.lead.complete.Load() == n.Term()
	}
	behind, leader := n.behind(), n.LeaderID() != ""
	age = time.Since(n.raft.LastContact())
	if !leader {
		// Raft counts a vote as a contact, so the leader's going counts. Before
		// a node gives its leader up, it waits for up to two heartbeats.
		age = time.Since(n.lead.lostAt()) + 2*n.cfg.heartbeat()
	}
	if behind || !n.lead.heard.Load() { // what it holds is of before
		age = max(age, time.Since(n.View().AppliedTime))
	}
	return max(age, 0), leader && n.lead.heard.Load() && (!behind || age < steady)
}

// behind reports whether a committed command was not applied yet. Raft's own
// count of applied entries runs ahead of the registry: it counts what was handed
// over.
func (n *Node) behind() bool {
	applied, top := n.View().AppliedIndex, n.raft.CommitIndex()
	for index := top; index > max(applied, n.lead.quiet.Load()); index-- {
		var entry raft.Log
		if err := n.disk.GetLog(index, &entry); err != nil {
			break // compacted, hence in a snapshot, which was applied
		}
		if entry.Type == raft.LogCommand {
			return true
		}
	}
	n.lead.quiet.Store(top) // raft's own entries are looked at once
	return false
}

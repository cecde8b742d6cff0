// Package queue owns what a delivery is: the portable types and errors that
// coordinator and agent share with any queue. The adapters natsq (NATS
// JetStream) and memq (in memory) implement Queue, and queuetest is one suite
// for both. It refuses to know what is done with a task.
//
// Two streams exist. Tasks is a work queue: each task lies under its pool and
// its own id, and is gone once acked. Results keeps each report until the
// coordinator has committed it. The queue is a cache of work, not the record:
// acks are not fenced and can be lost in a crash, so a second execution of a
// task must be harmless, and the coordinator publishes again what is missing.
package queue

import (
	"context"
	"errors"
	"time"

	"github.com/oomfleet/oomfleet/proto"
)

var (
	// ErrTooLarge is returned when a task or result exceeds the queue's
	// message limit. It is permanent: retrying can never work.
	ErrTooLarge = errors.New("message is larger than the queue takes")
	// ErrFull is returned when the queue holds as many tasks, or results, as it
	// may; those that are in stay, the rest can be published later.
	ErrFull = errors.New("queue is full")
	// ErrNoRoom is returned when the queue takes nothing more although it holds
	// less than it may: its server's disk is full, or a limit of its account is
	// reached. The same can be sent again later.
	ErrNoRoom = errors.New("the queue takes nothing more (its disk or its limit is full?)")
	// ErrClosed is returned by calls after Close.
	ErrClosed = errors.New("queue is closed")
	// ErrForeign is returned by Report.Result for a result whose sender is not
	// the agent, or not of the stack, that it speaks for.
	ErrForeign = errors.New("result speaks for another agent or stack than its sender's")
)

// Delivery is one task in an agent's hands. Its lease runs out unless Extend is
// called well within Lease; then another agent gets the task too.
type Delivery interface {
	// Task decodes the task. An error means that its bytes are not one: Drop
	// it. That its fields make sense is proto.Task.Validate's to say.
	Task() (proto.Task, error)
	// Lease is how long the task stays ours without Extend.
	Lease() time.Duration
	// Extend renews the lease. An error means only that the queue could not
	// be told; the run goes on, since results are fenced by the registry. nil
	// means that it was told, not that the task is still ours: after a lease
	// ran out another agent may hold it too.
	Extend(ctx context.Context) error
	// Ack removes the task, after its result was reported. nil proves nothing
	// about ownership.
	Ack(ctx context.Context) error
	// Retry gives the task back, not to be delivered before delay has passed.
	Retry(ctx context.Context, delay time.Duration) error
	// Drop removes a task that can never be run (undecodable, other protocol).
	Drop(ctx context.Context, reason string) error
}

// Report is one result in the coordinator's hands. Reports come in the order in
// which they were stored; one that is not acked within a few seconds is
// delivered again, to whoever asks then.
type Report interface {
	// Result decodes the result. An error means that its bytes are not one, or
	// with ErrForeign that its sender had no right to it: Ack it, or it comes
	// back for ever.
	Result() (proto.Result, error)
	Ack(ctx context.Context) error
}

// Queue is all that an adapter offers. Callers declare the part they use.
type Queue interface {
	// Publish adds tasks in batches of at most 1000, each all or nothing but
	// for a queue that becomes full, and durable when it returns. n is how
	// many are in; with an error tasks[n] is the first that is not: the
	// culprit with ErrTooLarge, the first that found no room with ErrFull,
	// and not known to be out with ErrNoRoom or when the queue did not answer. A
	// task that lies
	// in the queue already (same id and fence) is counted and not doubled; one
	// of the same id and another fence is replaced; one that was taken and
	// acked before is delivered again.
	Publish(ctx context.Context, tasks []proto.Task) (n int, err error)
	// Waiting returns the ids of all tasks that lie in the queue, delivered
	// or not. An empty answer never means that the work is done.
	Waiting(ctx context.Context) (map[proto.TaskID]bool, error)
	// Remove takes tasks out of the queue, delivered or not; unknown ids are
	// no error.
	Remove(ctx context.Context, pool proto.Pool, ids []proto.TaskID) error
	// Next waits for the next task of a pool. It returns ctx's error when the
	// wait ends. It survives restarts of the queue's server. Each task goes to
	// one of those who wait; it may be one that was delivered before.
	Next(ctx context.Context, pool proto.Pool) (Delivery, error)

	// Report stores a result, durable when it returns. A result that was
	// reported already (the same in all it says) is stored once. With
	// ErrFull and ErrNoRoom it can be reported later, with ErrTooLarge never as it is.
	Report(ctx context.Context, r proto.Result) error
	// NextReport waits for the next result, as Next does. It may be called
	// again before the last report is acked, up to some tens of reports. One
	// caller at a time (the leader); reports that an earlier leader left
	// unacked come within a few seconds.
	NextReport(ctx context.Context) (Report, error)
	// ReportsPending is how many results are stored and not yet acked.
	ReportsPending(ctx context.Context) (int, error)

	// Announce makes an agent known until ttl has passed (in whole seconds,
	// at least one), in place of what it announced before.
	Announce(ctx context.Context, a proto.AgentInfo, ttl time.Duration) error
	// Retire removes an agent's announcement at once.
	Retire(ctx context.Context, id proto.AgentID) error
	// Agents lists the agents that are announced now, sorted by id.
	Agents(ctx context.Context) ([]proto.AgentInfo, error)

	// Tell says something to the agents of a pool that listen now. Nothing is
	// kept of it: nil means that it was said, not that anybody heard it.
	Tell(ctx context.Context, pool proto.Pool, c proto.Control) error
	// Listen hands on what is told to a pool, one call after another, until
	// ctx ends (nil) or the queue is closed (ErrClosed). It survives restarts
	// of the queue's server; what is told meanwhile is not heard.
	Listen(ctx context.Context, pool proto.Pool, heard func(proto.Control)) error

	// Close ends all waits with ErrClosed and releases the connection. What
	// was delivered and not acked goes to others when its lease is up.
	Close() error
}

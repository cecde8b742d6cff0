// Package natsq owns the mapping of package queue onto NATS JetStream: two
// streams and one key-value bucket, made by whoever needs them first. It
// refuses to judge a task or a result, and to use a stream whose settings can
// lose work.
//
// # Streams
//
// OOMFLEET_TASKS is a work queue on files with one limit only, MaxMsgs, and
// discard policy "new": a full queue refuses, it never drops. A task lies under
// oomfleet.task.<pool>.<task id>, one subject per task, published on the
// condition that its subject is empty. That condition, not a Nats-Msg-Id, keeps
// a task from lying in the queue twice: Msg-Id remembers for a window of time,
// so it would also swallow the task that the coordinator publishes again after
// an agent lost it, and one known id fails a whole atomic batch.
//
// OOMFLEET_RESULTS is a work queue on files too, with one durable consumer for
// the leader. A result carries a Nats-Msg-Id of task, fence and agent, since a
// report that is repeated after it was taken must not come back.
//
// oomfleet_agents holds one key per agent with a time to live of its own.
// History is 1, without which the server raises a short time to live to that
// of its delete markers.
//
// # Deliveries
//
// One durable pull consumer per pool, pool-<pool>: filters of a work queue may
// not overlap. It has no back-off list (its first entry would replace the
// lease), no limit of deliveries (the server forgets counts in a crash and
// leaves what it gave up in the stream for ever; attempts are counted in the
// registry) and room for as many unacked tasks as the stream holds, so that
// delayed retries never block the rest. Each pull is one request with an
// inbox of its own and a short end: there is no long-lived subscription that a
// server's restart could silence.
//
// Start reading at Open, then publish.go and pull.go.
package natsq

// Package agent owns the service that works for one card: it announces itself,
// pulls tasks of its own stack, runs each through a prober, and carries trace
// and result home. It refuses to judge what it saw (package outcome names the
// outcome) and to know how a run is made (a Prober does).
//
// The order is what makes a crash harmless: a finished run goes into the outbox
// on disk, its trace into the store, its result into the queue; only then is
// the task acked and the outbox emptied. Before it takes work an agent delivers
// what lies in the outbox, its own or an earlier agent's, and while something
// there cannot be delivered it stays in quarantine and says why. The registry
// takes the first result under a task's fence, so that anything may happen twice.
//
// After a run that was a fault of its own an agent is suspect: it takes no task
// until its card passes a check (Agent.clear).
//
// Start reading at Agent.Run (loop.go), then Agent.work.
package agent

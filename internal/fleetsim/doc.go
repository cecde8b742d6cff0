// Package fleetsim owns the fleet simulator: whole fleets (three coordinators on a
// replicated log, a queue, a trace store, agents with cards) in simulated time,
// drawn from a seed and disturbed by faults, and the checks that no fault may
// break. It refuses to decide anything that the fleet decides: plan.Planner,
// registry.Machine, the coordinator's round and intake (coordinator.Term), the
// allocator's replay and outcome.Classify are the real ones. Around them stand
// models of what is not ours: raft, JetStream, S3, processes, a card.
//
// Everything runs on one goroutine at a time. The real code is written to block;
// it runs in coroutines (iter.Pull), which give way wherever it waits for the log,
// the queue or the store, so that a leader can lose its office between any two
// steps. An event heap says what comes next; there is no clock, no network and no
// chance but the seed's. The same Config always gives the same History.
//
// Start reading at Run, then sim (what there is), fault (what goes wrong) and
// checker (what must hold).
package fleetsim

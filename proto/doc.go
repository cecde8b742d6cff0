// Package proto owns the words of OOMFleet and the documents that cross a
// process boundary: the queue, the HTTP API, the registry's log and the JSON
// that fleetctl prints. It holds data and small pure rules about that data; it
// refuses to do I/O, to read a clock or to import any other package of ours.
//
// The words, once and for every package, log line, metric and page:
//
//   - A cell is one combination of a test matrix: sequence length x batch x
//     chunk size x driver x environment, for one workload on one GPU model and
//     one quota kind. Cell.ID names it; neither agent nor submission is in it.
//   - A quota is a limit on GPU memory of one QuotaKind, a multiple of the step.
//   - The boundary is the smallest quota on the grid from which on every quota
//     passes (the survive quota). A boundary without its kind is meaningless.
//   - A sweep is one submission of a matrix.
//   - A task is one run that an agent is asked for: a recording (uncapped, with
//     the allocator's trace) or a probe under a quota. An attempt is one try.
//   - Evidence is what an agent saw; an Outcome is what it means; a Result
//     carries both back. An out-of-memory is a result, never an error.
//   - A fence is the raft index of the entry that issued a task. The registry
//     takes the first result under the current fence.
//   - A stack is GPU model, driver, CUDA, torch and library versions. The
//     card's UUID identifies the agent's card and is never part of a stack.
//   - An origin says how a number came to be: measured, simulated or imported.
//     The three never mix in a group and never overwrite one another.
//
// Start reading at Cell, then Task, Result and Boundary.
package proto

// Version is the protocol version. It is part of every cell id, so results of
// another protocol can never be mistaken for results of this one.
const Version = 1

// Package registry owns the replicated state of OOMFleet: sweeps, cells and
// their runs, predictions, settlements and coefficients. It is pure: Machine
// applies commands, View reads them, and a snapshot codec stores them. It
// refuses to read a clock or a random source, to compute a float and to depend
// on map order; package raftnode hosts it on hashicorp/raft.
//
// Where Apply panics, the replica cannot be trusted any more and its process has
// to end: nobody recovers there. The leader's other work is guarded, see
// coordinator; its proposals are not.
//
// Start reading at View, then Command, then Machine.Apply.
package registry

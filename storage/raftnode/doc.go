// Package raftnode hosts the registry (package storage/registry) on
// hashicorp/raft with a raft-wal log: one Node is one server of the cluster,
// and a cluster of one is the default. It owns the data folder, the transport
// and the entry's bytes in the log. It refuses to know what a command means, to
// start on a damaged or incomplete data folder, and to bootstrap a folder that
// is not empty.
//
//	DataDir/lock        held while a process uses the folder
//	DataDir/log/        the log, with term and vote
//	DataDir/snapshots/  the newest snapshots, at least two
//
// Ids are stable, addresses are not: the addresses in Config.Servers count over
// those stored in the log, so a cluster may come back under other addresses,
// all of them at once. The set of servers is fixed at the first start.
//
// Start reading at Config and Open, then Node.Propose and fsm.
package raftnode

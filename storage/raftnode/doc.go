// Package raftnode hosts the registry (package storage/registry) on
// hashicorp/raft with a raft-wal log: one Node is one server of the cluster,
// and a cluster of one is the default. It owns the data folder, the transport
// and the entry's bytes in the log. It refuses to know what a command means, to
// start on a damaged or incomplete data folder, and to bootstrap a folder that
// is not empty.
//
//	DataDir/lock            held while a process uses the folder
//	DataDir/log/            the log, with term and vote
//	DataDir/snapshots/      the newest snapshots, at least two
//	DataDir/reached         an entry that was committed; a shorter log was cut
//	DataDir/addresses.json  what the configuration said of addresses, and when
//
// Ids are stable, addresses are not: of the addresses in Config.Servers and
// those in the log the newer count, so a cluster may come back under other
// addresses, all of them at once, and one node may move by Node.Add. The servers
// of the first start form the cluster; Node.Add and Node.Remove change it, and
// the leader's keeper (keep.go) gives votes, removes the dead, and compares
// states. Recover is for a node whose cluster is gone.
//
// Start reading at Config and Open, then Node.Propose and fsm.
package raftnode

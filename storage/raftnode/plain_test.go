package raftnode

import (
	"io"
	"log/slog"
	"net"
	"testing"
	"time"

	"github.com/hashicorp/raft"
)

// TestPlainPeerIsRefused: a peer without TLS can neither vote, nor write to the
// log, nor make a member step down, though it knows everybody's name and address.
func TestPlainPeerIsRefused(t *testing.T) {
	t.Parallel()
	cfgs := configs(t, t.TempDir(), t.TempDir(), t.TempDir())
	for i := range cfgs {
		cfgs[i].Heartbeat = 3 * time.Second // no election but a forced one
	}
	nodes := cluster(t, cfgs, mutual(t))
	l := leader(t, nodes...)
	propose(t, l, sweep("a", 1))
	term := l.raft.CurrentTerm()

	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	wire, err := listen(Config{ID: "n1", Listener: listener}) // no TLS
	if err != nil {
		t.Fatal(err)
	}
	intruder := raft.NewNetworkTransportWithConfig(&raft.NetworkTransportConfig{Stream: wire, MaxPool: 1, Timeout: 2 * time.Second,
		Logger: newLogger(slog.New(slog.DiscardHandler))})
	defer intruder.Close() //nolint:errcheck // the stream's listener is closed with it

	for _, n := range nodes {
		id, address := raft.ServerID(n.cfg.ID), raft.ServerAddress(n.Addr())
		header := raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax, ID: []byte("n1"), Addr: []byte(l.Addr())}
		for what, ask := range map[string]func() error{
			"vote": func() error {
				return intruder.RequestVote(id, address, &raft.RequestVoteRequest{RPCHeader: header, Term: term + 100, LastLogIndex: 1 << 40, LastLogTerm: term + 99, LeadershipTransfer: true}, &raft.RequestVoteResponse{})
			},
			"append": func() error {
				entry := &raft.Log{Index: n.raft.LastIndex() + 1, Term: term + 100, Type: raft.LogCommand, Data: []byte("forged")}
				return intruder.AppendEntries(id, address, &raft.AppendEntriesRequest{RPCHeader: header, Term: term + 100, Entries: []*raft.Log{entry}, LeaderCommitIndex: entry.Index}, &raft.AppendEntriesResponse{})
			},
			"snapshot": func() error {
				return intruder.InstallSnapshot(id, address, &raft.InstallSnapshotRequest{RPCHeader: header, Term: term + 100, Size: 0}, &raft.InstallSnapshotResponse{}, io.LimitReader(nil, 0))
			},
			"timeout now": func() error {
				return intruder.TimeoutNow(id, address, &raft.TimeoutNowRequest{RPCHeader: header}, &raft.TimeoutNowResponse{})
			},
		} {
			if err := ask(); err == nil {
				t.Errorf("%s of %s was answered", what, n.cfg.ID)
			}
		}
	}
	if now := leader(t, nodes...); now != l || l.raft.CurrentTerm() != term {
		t.Errorf("%s leads term %d, it was %s in term %d", now.cfg.ID, l.raft.CurrentTerm(), l.cfg.ID, term)
	}
	propose(t, l, sweep("b", 1))
	for _, n := range others(nodes, l) {
		caughtUp(t, n, l)
	}
}

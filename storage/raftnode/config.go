package raftnode

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	"github.com/oomfleet/oomfleet/storage/registry"
	"github.com/prometheus/client_golang/prometheus"
)

// Server is one member of the cluster.
type Server struct {
	// ID never changes; RaftAddr is how the others reach it now, host:port.
	ID       string `json:"id"`
	RaftAddr string `json:"raft_addr"`
	// Join is for a server that does not form the cluster but is added to it
	// by Node.Add: with an empty folder it waits for that.
	Join bool `json:"join,omitempty"`
}

// Config says how a node runs. ID and DataDir are needed; the zero value of the
// rest is a cluster of one.
type Config struct {
	// ID is this server's stable name.
	ID string
	// RaftAddr is where this node listens, host:port. Empty takes the own
	// entry of Servers, which is in any case what the others dial; for a
	// cluster of one it is a random port of the loopback interface.
	RaftAddr string
	// Listener is used instead of listening on RaftAddr, when it is already
	// open; the node closes it.
	Listener net.Listener
	// DataDir is this node's own folder; it is made when it is missing.
	DataDir string
	// Servers is the full list, the same on every node, this one included.
	// Empty is a cluster of this node alone. It forms the cluster at the
	// first start; later only its addresses count, where they are newer than
	// those that Add has written.
	Servers []Server
	// Keep says how a leader tends the others.
	Keep Keep
	// TLS secures the raft port, both ways: it needs a certificate that is
	// good as server and as client and names this node's host, and the
	// authority of the others'. One of that authority for a host that is no
	// member's is refused. Without TLS, whoever reaches the port can write to
	// the registry.
	TLS *tls.Config
	// Heartbeat is how long a follower waits for its leader before it calls
	// an election; 0 is 250 ms, at which a crashed leader is replaced within
	// about half a second. Slow disks or far machines want more.
	Heartbeat time.Duration
	// SnapshotEvery is after how many entries a snapshot is taken; 0 is 2048.
	// A registry is written to a few times a minute, so that is hours of log
	// and less than a second of replay.
	SnapshotEvery uint64
	// build is the newest command version that this build applies, for tests of
	// mixed versions; 0 is registry.CommandVersion.
	build int
	// Logger takes what raft has to say; nil discards it.
	Logger *slog.Logger
	// Registerer takes the node's metrics until it is closed; nil takes none.
	Registerer prometheus.Registerer
}

// Limits that raftnode fixes.
const (
	// MaxEntry is the most bytes that a command may have in the log, packed.
	// 10,000 cells need less than 512 KiB. The log's own limit is 64 MiB, but
	// an entry has to reach the followers well within one election.
	MaxEntry = 4 << 20
	// retained snapshots: one to fall back to when the newest is damaged.
	retained = 2
	// trailing entries stay in the log behind a snapshot: enough for a
	// follower that was away for a while, and for the older snapshot to meet
	// the log as long as fewer entries lie between the two.
	trailing = 10_240
	// segmentSize is allocated on disk at once; a log shrinks by whole ones.
	segmentSize = 8 << 20
	// ioTimeout ends a call to another server that does not answer.
	ioTimeout = 10 * time.Second
)

// Validate reports everything that is wrong with c, at once.
func (c Config) Validate() error {
	var errs []error
	if c.ID == "" {
		errs = append(errs, errors.New("raft: ID is missing"))
	}
	if c.DataDir == "" {
		errs = append(errs, errors.New("raft: DataDir is missing"))
	}
	if c.Heartbeat < 0 || c.Heartbeat > 0 && c.Heartbeat < 50*time.Millisecond {
		errs = append(errs, fmt.Errorf("raft: Heartbeat %s is below 50ms", c.Heartbeat))
	}
	ids, addrs := map[string]bool{}, map[string]bool{}
	for _, s := range c.Servers {
		if s.ID == "" || ids[s.ID] {
			errs = append(errs, fmt.Errorf("raft: server id %q is empty or there twice", s.ID))
		}
		if _, _, err := net.SplitHostPort(s.RaftAddr); err != nil || addrs[s.RaftAddr] {
			errs = append(errs, fmt.Errorf("raft: address %q of server %q is not host:port or there twice", s.RaftAddr, s.ID))
		}
		ids[s.ID], addrs[s.RaftAddr] = true, true
	}
	if len(c.Servers) > 0 && !ids[c.ID] {
		errs = append(errs, fmt.Errorf("raft: servers do not list this node, %q; the list is the same on every node", c.ID))
	}
	return errors.Join(errs...)
}

// listenAddr is where to listen.
func (c Config) listenAddr() string {
	if own := c.own(); c.RaftAddr == "" && own != nil {
		return own.RaftAddr
	}
	return cmp.Or(c.RaftAddr, "127.0.0.1:0")
}

// own is this node's entry of Servers, nil for a cluster of one.
func (c Config) own() *Server {
	if i := slices.IndexFunc(c.Servers, func(s Server) bool { return s.ID == c.ID }); i >= 0 {
		return &c.Servers[i]
	}
	return nil
}

// cluster is the configuration to form, addr being this node's real address.
func (c Config) cluster(addr string) raft.Configuration {
	servers := c.Servers
	if len(servers) == 0 {
		servers = []Server{{ID: c.ID, RaftAddr: addr}}
	}
	var out raft.Configuration
	for _, s := range servers {
		if s.Join {
			continue
		}
		out.Servers = append(out.Servers, raft.Server{ID: raft.ServerID(s.ID), Address: raft.ServerAddress(s.RaftAddr)})
	}
	return out
}

// joins is whether this node waits to be added to a cluster.
func (c Config) joins() bool {
	own := c.own()
	return own != nil && own.Join
}

func (c Config) applies() int { return cmp.Or(c.build, registry.CommandVersion) }

func (c Config) heartbeat() time.Duration { return cmp.Or(c.Heartbeat, 250*time.Millisecond) }

func (c Config) raft(logger hclog.Logger) *raft.Config {
	heartbeat := c.heartbeat()
	out := raft.DefaultConfig() // pre-vote is on
	out.LocalID = raft.ServerID(c.ID)
	out.HeartbeatTimeout, out.ElectionTimeout, out.LeaderLeaseTimeout = heartbeat, heartbeat, heartbeat
	out.CommitTimeout = min(out.CommitTimeout, heartbeat/5)
	out.BatchApplyCh = true
	out.SnapshotThreshold = cmp.Or(c.SnapshotEvery, 2048)
	out.SnapshotInterval = 30 * time.Second
	out.TrailingLogs = trailing
	out.NoLegacyTelemetry = true
	out.Logger = logger
	return out
}

package raftnode

import (
	"errors"
	"fmt"
	"log/slog"
	"sync"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	"github.com/oomfleet/oomfleet/storage/registry"
)

// Node is one server of the registry's cluster. All methods are safe for
// concurrent use.
type Node struct {
	cfg     Config
	logger  *slog.Logger
	raft    *raft.Raft
	fsm     *fsm
	store   *store
	stream  *stream
	group   *group
	metrics *metrics
	lead    lead
	calls   calls
	disk    *disk
	close   func() error // once
}

// Open opens the data folder, forms the cluster if the folder is empty, and
// starts the node; it does not wait for a leader. What the folder held is in
// View once the node has heard from a leader, or leads.
//
// A folder that is damaged or incomplete is refused with the file's name and
// the steps to recover, one that is in use by another process at once. The
// caller must Close the node.
func Open(cfg Config) (_ *Node, err error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	n := &Node{cfg: cfg, logger: cfg.Logger}
	n.close = sync.OnceValue(n.shutdown)
	if n.logger == nil {
		n.logger = slog.New(slog.DiscardHandler)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, n.release())
		}
	}()
	if n.stream, err = listen(cfg); err != nil {
		return nil, err
	}
	logger := newLogger(n.logger)
	if n.store, err = openStore(cfg.DataDir, logger); err != nil {
		return nil, err
	}
	known, err := openAddresses(cfg.DataDir)
	if err != nil {
		return nil, err
	}
	n.group = newGroup(known)
	hosts := n.memberHosts
	n.stream.hosts.Store(&hosts)
	packer, err := newPacker()
	if err != nil {
		return nil, err
	}
	n.fsm = &fsm{machine: registry.New(), packer: packer, waiters: map[uint64]chan struct{}{},
		snapshotted: func(err error) { n.group.unwritten.note("a snapshot", err) }}
	if err := n.start(logger); err != nil {
		return nil, err
	}
	if n.metrics, err = newMetrics(n); err != nil {
		return nil, errors.Join(err, n.Close())
	}
	return n, nil
}

func (n *Node) start(logger hclog.Logger) error {
	cluster := n.cfg.cluster(n.Addr())
	transport := raft.NewNetworkTransportWithConfig(&raft.NetworkTransportConfig{
		Stream: n.stream, MaxPool: 3, Timeout: ioTimeout, Logger: logger.Named("transport"), ServerAddressProvider: n,
		// One call at a time to each follower: with pipelining, a slow
		// follower's calls pile up and it falls behind for good
		// (hashicorp/raft#612). Our writes are few; nothing is lost.
		MaxRPCsInFlight: 1,
	})
	config := n.cfg.raft(logger)
	if err := n.bootstrap(config, transport, cluster); err != nil {
		return errors.Join(err, transport.Close())
	}
	n.disk = newDisk(n.store)
	n.fsm.stop = n.disk.unreadable
	r, err := raft.NewRaft(config, n.fsm, n.disk, n.disk, n.store.snapshots, watchedTransport{transport, n.group})
	if err != nil {
		file, openErr := n.store.snapshots.lastOpened()
		if why := errors.Join(openErr, n.fsm.restoreErr); why != nil {
			err = n.store.damaged(file, why)
		}
		return errors.Join(fmt.Errorf("start raft: %w", err), transport.Close())
	}
	n.disk.running.Store(true)
	n.raft = r
	n.lead.start(r)
	if err := n.compareServers(); err != nil {
		close(n.group.joined) // no keeper was started
		return errors.Join(err, n.Close())
	}
	stand := n.stand
	n.stream.stand.Store(&stand)
	go n.keep() // joined by Close
	return nil
}

// bootstrap forms the cluster, once: every node writes the same first entry, and
// only into an empty folder.
func (n *Node) bootstrap(config *raft.Config, transport raft.Transport, cluster raft.Configuration) error {
	has, err := raft.HasExistingState(n.store.log, n.store.log, n.store.snapshots)
	if err != nil {
		return fmt.Errorf("look for an existing cluster: %w", err)
	}
	if n.cfg.joins() {
		return nil
	}
	if !has {
		if err := raft.BootstrapCluster(config, n.store.log, n.store.log, n.store.snapshots, transport, cluster); err != nil {
			return fmt.Errorf("form the cluster: %w", err)
		}
		if len(cluster.Servers) == 2 {
			n.logger.Warn("a cluster of two stops when either of them does; use one or three")
		}
		return nil
	}
	return n.finishBootstrap(cluster)
}

// finishBootstrap writes the first entry when a crash came between the two
// writes of a bootstrap, the term and that entry. Without it the node would wait
// for a configuration for ever. In term 1 nothing else can have been written:
// the first election begins term 2.
func (n *Node) finishBootstrap(cluster raft.Configuration) error {
	last, err := n.store.log.LastIndex()
	if err != nil {
		return fmt.Errorf("find the last entry: %w", err)
	}
	term, err := n.store.term()
	if err != nil {
		return fmt.Errorf("find the current term: %w", err)
	}
	if last > 0 || term > 1 {
		return nil
	}
	entry := &raft.Log{Index: 1, Term: 1, Type: raft.LogConfiguration, Data: raft.EncodeConfiguration(cluster)}
	if err := n.store.log.StoreLog(entry); err != nil {
		return fmt.Errorf("form the cluster: %w", err)
	}
	return nil
}

// compareServers takes in the configured addresses, and says when the list of
// servers was changed after the cluster was formed, which has no other effect.
func (n *Node) compareServers() error {
	stored, err := n.servers()
	if err != nil {
		return nil // shut down already
	}
	forming := 0
	listed := map[raft.ServerID]bool{}
	for _, s := range n.cfg.Servers {
		listed[raft.ServerID(s.ID)] = true
		if !s.Join {
			forming++
		}
	}
	missing := false
	for _, s := range stored {
		missing = missing || !listed[s.ID]
	}
	if len(n.cfg.Servers) > 0 && len(stored) > 0 && (missing || len(stored) < forming) {
		n.logger.Warn("the configured servers are not those of the cluster; the cluster's count", "configured", len(n.cfg.Servers), "cluster", len(stored))
	}
	if err := n.group.addresses.note(n.cfg.Servers, stored); err != nil {
		return err
	}
	n.group.raft.Store(n.raft)
	return nil
}

// servers are the cluster's members as the log has them.
func (n *Node) servers() ([]raft.Server, error) {
	future := n.raft.GetConfiguration()
	if err := future.Error(); err != nil {
		return nil, fmt.Errorf("the cluster's members: %w", err)
	}
	return future.Configuration().Servers, nil
}

// ServerAddr is where a server is now; raft falls back to the address in its
// log for an error. It makes new addresses in Config.Servers take effect.
func (n *Node) ServerAddr(id raft.ServerID) (raft.ServerAddress, error) {
	r := n.group.raft.Load()
	if r == nil {
		return "", errors.New("the node is not open yet")
	}
	for _, s := range r.GetConfiguration().Configuration().Servers {
		if s.ID == id {
			return n.group.addresses.of(id, s.Address), nil
		}
	}
	if addr := n.group.addresses.of(id, ""); addr != "" {
		return addr, nil
	}
	return "", fmt.Errorf("server %q is not in the configuration", id)
}

// Addr is the address that the node really listens on.
func (n *Node) Addr() string { return n.stream.Listener.Addr().String() }

// View is what this node has applied. On a follower it may be behind; View's
// AppliedIndex and AppliedTime say how far.
func (n *Node) View() registry.View { return n.fsm.machine.View() }

// Changed returns a channel that is closed once the applied index of View is
// above after. It stays open when the node is closed.
func (n *Node) Changed(after uint64) <-chan struct{} { return n.fsm.changed(after) }

// Close hands leadership to another server if there is one, ends everything
// that Open started and waits for it. Proposals under way return. It may be
// called again and then returns the same.
func (n *Node) Close() error { return n.close() }

func (n *Node) shutdown() error {
	n.metrics.unregister()
	if n.disk.isBroken() {
		n.calls.refuse() // raft answers nobody any more
	} else {
		n.calls.join()
	}
	close(n.disk.ended)
	close(n.group.ended)
	if !n.disk.isBroken() { // else raft may never answer it
		<-n.group.joined
	}
	n.noteReached()
	if servers, err := n.servers(); err == nil && n.raft.State() == raft.Leader && len(servers) > 1 && !n.disk.isBroken() {
		if err := n.raft.LeadershipTransfer().Error(); err != nil {
			n.logger.Info("leadership was not handed over; the others will elect", "error", err)
		}
	}
	done := n.raft.Shutdown()
	err := n.stream.Close() // ends calls under way, or Shutdown would wait for them
	err = errors.Join(err, done.Error())
	n.lead.stop()
	return errors.Join(err, n.release())
}

// release gives back files and the port, as far as they were opened.
func (n *Node) release() error {
	var errs []error
	if n.stream != nil {
		errs = append(errs, n.stream.Close())
	}
	if n.store != nil {
		errs = append(errs, n.store.close())
		n.store = nil
	}
	return errors.Join(errs...)
}

package raftnode

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/hashicorp/raft"
)

// disk is the log as raft gets it, watched: the first write that fails ends the
// node, and so does an entry that this build cannot read. The log's writer counts entries that it could not write, so it refuses
// every later one ("non-monotonic append") until it is opened again; and where
// raft itself cannot write its term, it panics.
type disk struct {
	checkedLog
	dir string

	running atomic.Bool // raft has goroutines of its own, and none of ours

	once   sync.Once
	broken chan struct{} // closed when the node cannot go on
	why    error         // of broken
	ended  chan struct{} // closed by Close
}

func newDisk(s *store) *disk {
	return &disk{checkedLog: s.log, dir: s.dir, broken: make(chan struct{}), ended: make(chan struct{})}
}

// breaks ends the node, because it cannot write.
func (d *disk) breaks(err error) {
	d.end(fmt.Errorf("the registry cannot be written in %s: free disk space there and start again, nothing is lost: %w", d.dir, err))
}

func (d *disk) end(why error) {
	d.once.Do(func() {
		d.why = why
		close(d.broken)
	})
}

// unreadable ends the node, and the goroutine of raft that calls it with Close.
func (d *disk) unreadable(why error) {
	d.end(why)
	<-d.ended
	runtime.Goexit() // runs raft's own cleanup
}

// StoreLog writes one entry.
func (d *disk) StoreLog(entry *raft.Log) error { return d.StoreLogs([]*raft.Log{entry}) }

// StoreLogs writes entries. Raft takes a failure well: a leader steps down. After
// one nothing is written any more, though it might be: on a full disk there may be
// room for a small entry, with which a node that is about to end was elected again
// and led.
func (d *disk) StoreLogs(entries []*raft.Log) error {
	if d.isBroken() {
		return d.why
	}
	err := d.checkedLog.StoreLogs(entries)
	if err != nil {
		d.breaks(err)
	}
	return err
}

// GetLog reads an entry. Raft panics when one that it is to apply cannot be read;
// its goroutine waits here instead, as in SetUint64. A start has read them all.
func (d *disk) GetLog(index uint64, out *raft.Log) error {
	err := d.checkedLog.GetLog(index, out)
	if errors.Is(err, errRotten) && d.running.Load() {
		d.unreadable(fmt.Errorf("%s is damaged: %w; start it again, and it says what to do", d.dir, err))
	}
	return err
}

// SetUint64 writes a number. Raft panics when it cannot write its term; its
// goroutine waits here instead, and ends with Close.
func (d *disk) SetUint64(key []byte, value uint64) error {
	err := d.WAL.SetUint64(key, value)
	if err == nil || string(key) != termKey {
		return err
	}
	d.breaks(err)
	<-d.ended
	runtime.Goexit() // runs raft's own cleanup
	return err
}

// isBroken is whether the node cannot go on.
func (d *disk) isBroken() bool {
	select {
	case <-d.broken:
		return true
	default:
		return false
	}
}

// Wait blocks until ctx ends, and returns nil then, or until this node can never
// go on, and returns a sentence that says why. The node must then be closed.
func (n *Node) Wait(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case <-n.disk.broken:
		return n.disk.why
	}
}

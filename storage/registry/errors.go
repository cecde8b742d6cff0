package registry

import "errors"

// The errors of whoever hosts a Machine live here, so that services can test
// for them without importing an adapter.
var (
	// ErrNotLeader is returned when this node may not propose; the error is a
	// *NotLeaderError. Nothing was written.
	ErrNotLeader = errors.New("this node is not the leader")
	// ErrUncertain is returned when leadership was lost or the wait ended
	// while a command was in flight: it may or may not have been committed.
	// Look at the view and propose again: a command that comes twice does no harm.
	ErrUncertain = errors.New("the command may or may not have been committed")
	// ErrTooLarge is returned when a command is larger than the log takes. It
	// is permanent: proposing it again can never work.
	ErrTooLarge = errors.New("the command is larger than the log takes")
	// ErrClosed is returned by calls after the node was closed.
	ErrClosed = errors.New("the registry's node is closed")
	// ErrSnapshotDamaged is returned when a snapshot is cut or altered.
	ErrSnapshotDamaged = errors.New("the snapshot is damaged")
	// ErrNotEmpty is returned when a backup would replace what is there, and
	// nobody said that it may.
	ErrNotEmpty = errors.New("the registry is not empty")
	// ErrSnapshotVersion is returned when a newer build wrote a snapshot.
	ErrSnapshotVersion = errors.New("the snapshot was written by another version")
)

// NotLeaderError says who leads instead. It matches ErrNotLeader.
type NotLeaderError struct {
	// Leader is the leader's id, a key of View.Members; empty when nobody
	// leads at the moment.
	Leader string
}

// Error names the leader.
func (e *NotLeaderError) Error() string {
	if e.Leader == "" {
		return "this node is not the leader, and none is known at the moment"
	}
	return "this node is not the leader; " + e.Leader + " is"
}

// Is reports whether target is ErrNotLeader.
func (e *NotLeaderError) Is(target error) bool { return target == ErrNotLeader }

package trace

import "errors"

var (
	// ErrNotFound is returned when the store has no such object.
	ErrNotFound = errors.New("not in the trace store")
	// ErrCorrupt is returned when a stored object is not what its name says:
	// another size or another hash. Putting the same content again heals it.
	ErrCorrupt = errors.New("stored object is corrupt")
	// ErrFull is returned when the store has no room: disk full or a quota.
	ErrFull = errors.New("trace store is full")
	// ErrRefused is returned when the store turns us away for good: wrong
	// credentials, region, bucket or permissions. The message names the option
	// to change; trying again without changing it is useless.
	ErrRefused = errors.New("trace store cannot be used")
	// ErrNoLink is returned by Link when others cannot fetch from the store by
	// themselves. The message says why.
	ErrNoLink = errors.New("the trace store has no address for others")
	// ErrClockSkew is returned when this machine's clock is too far from the
	// store's. The message shows both times.
	ErrClockSkew = errors.New("clock differs from the trace store's")
	// ErrFormat is returned by Decode when bytes are not a trace that this
	// build can read.
	ErrFormat = errors.New("not a readable trace")
)

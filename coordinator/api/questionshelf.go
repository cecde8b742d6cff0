package api

import (
	"context"
	"encoding/json"
	"errors"
	"sync"

	"github.com/oomfleet/oomfleet/allocator"
	"github.com/oomfleet/oomfleet/coordinator/quota"
	"github.com/oomfleet/oomfleet/proto"
	"github.com/oomfleet/oomfleet/storage/trace"
)

// keptOnShelf is how many programs and how many recordings are kept decoded, some
// MiB each, and keptEvents how many events the recordings may have together, 70
// bytes each: the largest that there may be is twice that alone.
const (
	keptOnShelf = 16
	keptEvents  = 4 << 20
)

// shelf keeps decoded programs and compiled recordings by their digest: content
// never changes under its name. It is safe for concurrent use; two that ask for
// the same at once may both read it.
type shelf struct {
	traces     Traces
	families   kept[*allocator.Family]
	recordings kept[*allocator.Program]
}

func newShelf(traces Traces) *shelf { return &shelf{traces: traces} }

// kept is a small store of values by digest; the oldest goes first.
type kept[T any] struct {
	mu     sync.Mutex // guards all below
	known  map[proto.Digest]weighed[T]
	order  []proto.Digest
	events int // of all that are known
}

// weighed is a value with the events that it was made from; 0 for none.
type weighed[T any] struct {
	value  T
	events int
}

// get returns what is kept, or reads it.
func (k *kept[T]) get(digest proto.Digest, read func() (T, int, error)) (T, error) {
	k.mu.Lock()
	found, ok := k.known[digest]
	k.mu.Unlock()
	if ok {
		return found.value, nil
	}
	value, events, err := read()
	if err != nil {
		return value, err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.known == nil {
		k.known = map[proto.Digest]weighed[T]{}
	}
	if _, again := k.known[digest]; !again {
		k.known[digest], k.order = weighed[T]{value, events}, append(k.order, digest)
		k.events += events
	}
	for len(k.order) > keptOnShelf || k.events > keptEvents {
		k.events -= k.known[k.order[0]].events
		delete(k.known, k.order[0])
		k.order = k.order[1:]
	}
	return value, nil
}

// within is the shelf as one question reads it.
func (s *shelf) within(ctx context.Context) quota.Library {
	return quota.Library{
		Family:    func(digest proto.Digest) (*allocator.Family, error) { return s.family(ctx, digest) },
		Recording: func(digest proto.Digest) (*allocator.Program, error) { return s.recording(ctx, digest) },
	}
}

// family is a stored program.
func (s *shelf) family(ctx context.Context, digest proto.Digest) (*allocator.Family, error) {
	return s.families.get(digest, func() (*allocator.Family, int, error) {
		text, err := s.traces.GetProgram(ctx, digest)
		if err != nil {
			return nil, 0, outward(err)
		}
		f := &allocator.Family{}
		if err := json.Unmarshal(text, f); err != nil {
			return nil, 0, errors.New("it is of a form that this build does not read")
		}
		return f, 0, nil
	})
}

// recording is a stored trace, compiled.
func (s *shelf) recording(ctx context.Context, digest proto.Digest) (*allocator.Program, error) {
	return s.recordings.get(digest, func() (*allocator.Program, int, error) {
		events, meta, err := s.traces.GetTrace(ctx, digest)
		if err != nil {
			return nil, 0, outward(err)
		}
		if meta.Truncated {
			return nil, 0, errors.New("its start was lost")
		}
		p, err := allocator.Compile(events)
		return p, len(events), err
	})
}

// outward is what an answer may say of the store's trouble: no address and no key.
func outward(err error) error {
	switch {
	case errors.Is(err, trace.ErrNotFound):
		return errors.New("the trace store does not have it")
	case errors.Is(err, trace.ErrCorrupt), errors.Is(err, trace.ErrFormat):
		return errors.New("it is damaged in the trace store")
	}
	return errors.New("the trace store does not answer")
}

package coordinator

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"

	"github.com/oomfleet/oomfleet/allocator"
	"github.com/oomfleet/oomfleet/proto"
)

// keptPrograms is how many decoded programs are kept: a few matrices' worth of
// families, some MiB each.
const keptPrograms = 32

// programs keeps decoded programs by their digest, so that a family's cells are
// predicted from one. It is safe for concurrent use.
type programs struct {
	traces Traces
	mu     sync.Mutex // guards all below
	known  map[proto.Digest]*allocator.Family
	// order is that in which they came; the oldest goes first.
	order []proto.Digest
}

// get returns a program. It fails as trace.Store.GetProgram does, and on a text
// that this build cannot read. Two that ask at once may both read it.
func (p *programs) get(ctx context.Context, digest proto.Digest) (*allocator.Family, error) {
	p.mu.Lock()
	f := p.known[digest]
	p.mu.Unlock()
	if f != nil {
		return f, nil
	}
	text, err := p.traces.GetProgram(ctx, digest)
	if err != nil {
		return nil, err
	}
	f = &allocator.Family{}
	if err := json.Unmarshal(text, f); err != nil {
		return nil, fmt.Errorf("%w %s: %w", errProgram, digest, err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.known == nil {
		p.known = make(map[proto.Digest]*allocator.Family)
	}
	if p.known[digest] == nil {
		p.known[digest] = f
		p.order = append(p.order, digest)
	}
	for len(p.order) > keptPrograms {
		delete(p.known, p.order[0])
		p.order = p.order[1:]
	}
	return f, nil
}

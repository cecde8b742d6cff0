package trace

import (
	"context"
	"fmt"
	"time"

	"github.com/oomfleet/oomfleet/internal/secret"
	"github.com/oomfleet/oomfleet/proto"
)

// Linker is a Driver whose objects others can fetch from the store by
// themselves, without its keys.
type Linker interface {
	// Link is an address from which everybody who has it can read this one
	// object until within has passed; it is a secret as long. It does not ask
	// whether the object is there. It fails with ErrNoLink where the store
	// cannot be reached from outside, and as Driver.Open.
	Link(ctx context.Context, key string, within time.Duration) (secret.Text, error)
}

// Link is an address from which a trace file can be fetched until within has
// passed, and the file's size. Whoever fetches checks the content against the
// digest: the store does not. It fails with ErrNoLink where the driver is no
// Linker, and as Describe.
func (s *Store) Link(ctx context.Context, digest proto.Digest, within time.Duration) (secret.Text, proto.Bytes, error) {
	linker, ok := s.driver.(Linker)
	if !ok {
		return secret.Text{}, 0, fmt.Errorf("link to trace %s: %w: it is a folder", digest, ErrNoLink)
	}
	if !ValidDigest(digest) {
		return secret.Text{}, 0, fmt.Errorf("link to trace %s: %w: a digest is 64 lower-case hexadecimal digits", digest, ErrNotFound)
	}
	info, err := s.driver.Stat(ctx, traceKey(digest))
	if err != nil {
		return secret.Text{}, 0, fmt.Errorf("link to trace %s: %w", digest, err)
	}
	link, err := linker.Link(ctx, traceKey(digest), within)
	if err != nil {
		return secret.Text{}, 0, fmt.Errorf("link to trace %s: %w", digest, err)
	}
	return link, info.Size, nil
}

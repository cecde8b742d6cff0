package trace

import (
	"context"
	"fmt"

	"github.com/oomfleet/oomfleet/proto"
)

// PutProgram stores an encoded allocation program and returns its digest;
// otherwise it behaves as PutTrace. What the text says is package allocator's.
func (s *Store) PutProgram(ctx context.Context, text []byte) (proto.Digest, error) {
	digest := DigestOf(text)
	if err := s.put(ctx, programKey(digest), digest, text); err != nil {
		return "", fmt.Errorf("store program %s: %w", digest, err)
	}
	return digest, nil
}

// GetProgram reads an encoded allocation program. Bytes that are not what the
// digest says are ErrCorrupt.
func (s *Store) GetProgram(ctx context.Context, digest proto.Digest) ([]byte, error) {
	text, err := s.get(ctx, digest, programKey(digest))
	if err != nil {
		return nil, fmt.Errorf("get program %s: %w", digest, err)
	}
	return text, nil
}

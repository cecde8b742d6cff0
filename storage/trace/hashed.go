package trace

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"

	"github.com/oomfleet/oomfleet/proto"
)

// hashed reads through to an object's content and refuses to end well when the
// content is not what its digest says, or is longer than any object of ours.
type hashed struct {
	io.ReadCloser
	sum  hash.Hash
	want proto.Digest
	read int64
}

func newHashed(content io.ReadCloser, want proto.Digest) *hashed {
	return &hashed{ReadCloser: content, sum: sha256.New(), want: want}
}

// Read hashes what it reads. At the end it returns io.EOF only for content that
// matches; a connection that was cut short counts as any other error.
func (h *hashed) Read(p []byte) (int, error) {
	n, err := h.ReadCloser.Read(p)
	h.sum.Write(p[:n])
	h.read += int64(n)
	if h.read > MaxFileSize {
		return n, fmt.Errorf("%w: more than %d bytes", ErrCorrupt, MaxFileSize)
	}
	if errors.Is(err, io.EOF) {
		if got := hex.EncodeToString(h.sum.Sum(nil)); got != string(h.want) {
			return n, fmt.Errorf("%w: its %d bytes have digest %s", ErrCorrupt, h.read, got)
		}
	}
	return n, err
}

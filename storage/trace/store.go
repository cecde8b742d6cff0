package trace

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"time"

	"github.com/oomfleet/oomfleet/allocator"
	"github.com/oomfleet/oomfleet/proto"
)

// Store keeps traces and evidence by their content. It is safe for concurrent
// use and holds no state of its own. Its errors wrap this package's sentinels,
// see Driver; one that wraps none may pass when tried again.
type Store struct {
	driver Driver
	now    func() time.Time // nil for no clock; see WithClock
}

// NewStore returns a store over a driver. It does no I/O.
func NewStore(d Driver) *Store { return &Store{driver: d} }

// Stored is one trace in a listing.
type Stored struct {
	Digest   proto.Digest
	Size     proto.Bytes
	Modified time.Time
}

// PutTrace stores a trace and returns its reference. When it returns nil, the
// stored bytes have been read back and hashed. Storing the same trace again is
// harmless and heals a corrupt object.
func (s *Store) PutTrace(ctx context.Context, events []allocator.Event, meta Meta) (proto.TraceRef, error) {
	var file bytes.Buffer
	if err := Encode(&file, events, meta); err != nil {
		return proto.TraceRef{}, err
	}
	digest := DigestOf(file.Bytes())
	if err := s.put(ctx, traceKey(digest), digest, file.Bytes()); err != nil {
		return proto.TraceRef{}, fmt.Errorf("store trace %s: %w", digest, err)
	}
	return proto.TraceRef{Digest: digest, Size: proto.Bytes(file.Len()), Events: int64(len(events))}, nil
}

// PutEvidence stores a result, whole, and returns its digest; otherwise it
// behaves as PutTrace.
func (s *Store) PutEvidence(ctx context.Context, result proto.Result) (proto.Digest, error) {
	text, err := json.Marshal(result)
	if err != nil {
		return "", fmt.Errorf("store evidence of task %s: %w", result.Task, err)
	}
	digest := DigestOf(text)
	if err := s.put(ctx, evidenceKey(digest), digest, text); err != nil {
		return "", fmt.Errorf("store evidence %s: %w", digest, err)
	}
	return digest, nil
}

// GetTrace reads a trace. A file whose bytes are not what the digest says is
// ErrCorrupt, one that no writer of ours could have made is ErrFormat.
func (s *Store) GetTrace(ctx context.Context, digest proto.Digest) ([]allocator.Event, Meta, error) {
	content, err := s.get(ctx, digest, traceKey(digest))
	if err != nil {
		return nil, Meta{}, fmt.Errorf("get trace %s: %w", digest, err)
	}
	events, meta, err := Decode(bytes.NewReader(content), int64(len(content)))
	if err != nil {
		return nil, Meta{}, fmt.Errorf("get trace %s: %w", digest, err)
	}
	return events, meta, nil
}

// Describe reads what a trace says of its run and leaves the events alone.
func (s *Store) Describe(ctx context.Context, digest proto.Digest) (proto.TraceRef, Meta, error) {
	content, err := s.get(ctx, digest, traceKey(digest))
	if err != nil {
		return proto.TraceRef{}, Meta{}, fmt.Errorf("describe trace %s: %w", digest, err)
	}
	meta, events, err := DecodeMeta(bytes.NewReader(content), int64(len(content)))
	if err != nil {
		return proto.TraceRef{}, Meta{}, fmt.Errorf("describe trace %s: %w", digest, err)
	}
	return proto.TraceRef{Digest: digest, Size: proto.Bytes(len(content)), Events: events}, meta, nil
}

// GetEvidence reads a result.
func (s *Store) GetEvidence(ctx context.Context, digest proto.Digest) (proto.Result, error) {
	content, err := s.get(ctx, digest, evidenceKey(digest))
	if err != nil {
		return proto.Result{}, fmt.Errorf("get evidence %s: %w", digest, err)
	}
	var result proto.Result
	if err := json.Unmarshal(content, &result); err != nil {
		return proto.Result{}, fmt.Errorf("get evidence %s: %w", digest, err)
	}
	return result, nil
}

// Open streams a trace file as it is stored, for downloads. The content is
// hashed on the way: the last Read fails with ErrCorrupt, in place of io.EOF,
// when it is not what the digest says. The caller closes.
func (s *Store) Open(ctx context.Context, digest proto.Digest) (io.ReadCloser, proto.Bytes, error) {
	content, info, err := s.open(ctx, digest, traceKey(digest))
	if err != nil {
		return nil, 0, fmt.Errorf("open trace %s: %w", digest, err)
	}
	return newHashed(content, digest), info.Size, nil
}

// List yields the stored traces in ascending order of their digests; foreign
// objects are passed over. An error ends the listing.
func (s *Store) List(ctx context.Context) iter.Seq2[Stored, error] {
	return func(yield func(Stored, error) bool) {
		for object, err := range s.driver.List(ctx, tracePrefix) {
			if err != nil {
				yield(Stored{}, fmt.Errorf("list traces: %w", err))
				return
			}
			digest, ok := digestOfKey(object.Key)
			if ok && !yield(Stored{Digest: digest, Size: object.Size, Modified: object.Modified}, nil) {
				return
			}
		}
	}
}

// put stores content unless a good copy is there, which is not old; see
// RefreshAfter. Only what verify has read
// back counts: servers have cut objects short and acknowledged them.
func (s *Store) put(ctx context.Context, key string, digest proto.Digest, content []byte) error {
	want := Info{Size: proto.Bytes(len(content)), SHA256: digest}
	there, err := s.verify(ctx, key, want)
	switch {
	case err == nil && s.young(there):
		return nil
	case err != nil && !errors.Is(err, ErrNotFound) && !errors.Is(err, ErrCorrupt):
		return err
	}
	if err := s.driver.Put(ctx, key, bytes.NewReader(content), want); err != nil {
		return err
	}
	_, err = s.verify(ctx, key, want)
	return err
}

// verify compares the stored object's size, recorded digest and content with want.
func (s *Store) verify(ctx context.Context, key string, want Info) (got Info, err error) {
	if got, err = s.driver.Stat(ctx, key); err != nil {
		return got, err
	}
	if got.Size != want.Size {
		return got, fmt.Errorf("%w: %d bytes are stored, %d were sent", ErrCorrupt, int64(got.Size), int64(want.Size))
	}
	if got.SHA256 != "" && got.SHA256 != want.SHA256 {
		return got, fmt.Errorf("%w: it is labelled with digest %s", ErrCorrupt, got.SHA256)
	}
	content, _, err := s.driver.Open(ctx, key)
	if err != nil {
		return got, err
	}
	defer content.Close()
	_, err = io.Copy(io.Discard, newHashed(content, want.SHA256))
	return got, err
}

// get reads an object whole.
func (s *Store) get(ctx context.Context, digest proto.Digest, key string) ([]byte, error) {
	content, info, err := s.open(ctx, digest, key)
	if err != nil {
		return nil, err
	}
	defer content.Close()
	file := bytes.NewBuffer(make([]byte, 0, info.Size))
	if _, err := io.Copy(file, newHashed(content, digest)); err != nil {
		return nil, err
	}
	return file.Bytes(), nil
}

func (s *Store) open(ctx context.Context, digest proto.Digest, key string) (io.ReadCloser, Info, error) {
	if !ValidDigest(digest) {
		return nil, Info{}, fmt.Errorf("%w: a digest is 64 lower-case hexadecimal digits", ErrNotFound)
	}
	content, info, err := s.driver.Open(ctx, key)
	if err != nil {
		return nil, Info{}, err
	}
	if info.Size < 0 || info.Size > MaxFileSize {
		return nil, Info{}, errors.Join(fmt.Errorf("%w: %d bytes", ErrCorrupt, int64(info.Size)), content.Close())
	}
	return content, info, nil
}

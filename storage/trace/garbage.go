package trace

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"time"

	"github.com/oomfleet/oomfleet/proto"
)

// RefreshAfter is the age from which an object that is put again is written
// again, so that its time is that of the last put: whoever removes what is old
// and not referred to yet must see that somebody is about to refer to it.
const RefreshAfter = time.Hour

// ErrChanged is returned by Remove for an object that was written since it was
// listed.
var ErrChanged = errors.New("the object was written meanwhile")

// ObjectKind says what a stored object is.
type ObjectKind string

// The kinds of objects. An upload is one that was begun and never ended.
const (
	KindTrace    ObjectKind = "trace"
	KindEvidence ObjectKind = "evidence"
	KindProgram  ObjectKind = "program"
	KindCanary   ObjectKind = "canary"
	KindUpload   ObjectKind = "upload"
)

// ObjectKinds lists them.
func ObjectKinds() []ObjectKind {
	return []ObjectKind{KindTrace, KindEvidence, KindProgram, KindCanary, KindUpload}
}

// StoredObject is one object of whatever kind.
type StoredObject struct {
	Kind ObjectKind `json:"kind"`
	Key  string     `json:"key"`
	// Digest is that of the content; empty for canaries and uploads.
	Digest proto.Digest `json:"digest,omitempty"`
	Size   proto.Bytes  `json:"size_bytes"`
	// Modified is when the object was last put, or the upload begun, by the
	// store's clock.
	Modified time.Time `json:"modified"`
	upload   Upload
}

// Upload is something that was begun and not ended.
type Upload struct {
	// Key is the object's that it was to become; may be empty. ID tells it from
	// others of the key.
	Key, ID string
	Size    proto.Bytes // what has arrived of it; 0 = not known
	Begun   time.Time
}

// Uploads is what a Driver may offer beside its contract: a look at what was
// begun and not ended, by this program or any other, and its end.
type Uploads interface {
	// Unfinished yields them in any order; an error is yielded once, last.
	Unfinished(ctx context.Context) iter.Seq2[Upload, error]
	// Abort ends one and frees its room; one that is gone is no error.
	Abort(ctx context.Context, u Upload) error
}

// Objects yields everything that stores have put, kind by kind, and what was
// begun and never ended where the driver can tell. Foreign objects are passed
// over. An error ends the listing.
func (s *Store) Objects(ctx context.Context) iter.Seq2[StoredObject, error] {
	return func(yield func(StoredObject, error) bool) {
		for _, of := range []struct {
			kind           ObjectKind
			prefix, suffix string
		}{{KindTrace, tracePrefix, traceSuffix}, {KindEvidence, evidencePrefix, evidenceSuffix}, {KindProgram, programPrefix, programSuffix}, {KindCanary, canaryPrefix, ".txt"}} {
			for object, err := range s.driver.List(ctx, of.prefix) {
				if err != nil {
					yield(StoredObject{}, fmt.Errorf("list objects: %w", err))
					return
				}
				name, ok := strings.CutSuffix(strings.TrimPrefix(object.Key, of.prefix), of.suffix)
				found := StoredObject{Kind: of.kind, Key: object.Key, Size: object.Size, Modified: object.Modified}
				if of.kind != KindCanary {
					found.Digest = proto.Digest(name)
					ok = ok && ValidDigest(found.Digest)
				}
				if ok && !yield(found, nil) {
					return
				}
			}
		}
		s.unfinished(ctx, yield)
	}
}

func (s *Store) unfinished(ctx context.Context, yield func(StoredObject, error) bool) {
	driver, ok := s.driver.(Uploads)
	if !ok {
		return
	}
	for u, err := range driver.Unfinished(ctx) {
		if err != nil {
			yield(StoredObject{}, fmt.Errorf("list uploads that did not end: %w", err))
			return
		}
		if !yield(StoredObject{Kind: KindUpload, Key: u.Key, Size: u.Size, Modified: u.Begun, upload: u}, nil) {
			return
		}
	}
}

// Remove deletes an object that Objects yielded, unless it was written since:
// then it fails with ErrChanged and leaves it. One that is gone is no error.
// Between the last look and the deletion lies one request: stores do not offer
// both in one.
func (s *Store) Remove(ctx context.Context, o StoredObject) error {
	if o.Kind == KindUpload {
		driver, ok := s.driver.(Uploads)
		if !ok {
			return fmt.Errorf("end upload of %s: %w", o.Key, ErrNotFound)
		}
		if err := driver.Abort(ctx, o.upload); err != nil {
			return fmt.Errorf("end upload of %s: %w", o.Key, err)
		}
		return nil
	}
	now, err := s.driver.Stat(ctx, o.Key)
	switch {
	case errors.Is(err, ErrNotFound):
		return nil
	case err != nil:
		return fmt.Errorf("remove %s: %w", o.Key, err)
	case now.Modified.Sub(o.Modified).Abs() >= time.Second: // listings and looks round differently
		return fmt.Errorf("remove %s: %w", o.Key, ErrChanged)
	}
	if err := s.driver.Delete(ctx, o.Key); err != nil {
		return fmt.Errorf("remove %s: %w", o.Key, err)
	}
	return nil
}

// WithClock returns the store with a clock, by which a put passes over an object
// that was put within RefreshAfter. Without one every put writes.
func (s *Store) WithClock(now func() time.Time) *Store { return &Store{driver: s.driver, now: now} }

// young reports whether an object is as good as just put.
func (s *Store) young(i Info) bool { return s.now != nil && s.now().Sub(i.Modified) < RefreshAfter }

package trace

import (
	"context"
	"io"
	"iter"
	"time"

	"github.com/oomfleet/oomfleet/proto"
)

// Info is what a driver knows of an object without reading it.
type Info struct {
	Size proto.Bytes
	// SHA256 is the digest that was given to Put; empty when the driver keeps
	// none. The Store compares it and, whatever it says, hashes the content.
	SHA256 proto.Digest
	// Modified is when the object was last written; Put ignores it.
	Modified time.Time
}

// Driver keeps named bytes. Implementations are safe for concurrent use and
// take keys that ValidKey accepts, nothing else.
//
// Errors wrap the sentinels of this package where one fits; an error that
// wraps none (no connection, a server's own trouble) may pass when tried again.
// No error contains a secret.
type Driver interface {
	// Put stores exactly info.Size bytes of body under key and replaces what
	// is there. It is atomic: whoever reads sees the old object or the new one
	// whole, also when this process or the server is killed in between. It may
	// rewind body to try again. A body that is shorter or longer than
	// info.Size is an error, and nothing is stored.
	// Fails with ErrFull, ErrRefused, ErrClockSkew.
	Put(ctx context.Context, key string, body io.ReadSeeker, info Info) error
	// Open returns the object's content. It fails with ErrNotFound,
	// ErrRefused, ErrClockSkew. The caller closes.
	Open(ctx context.Context, key string) (io.ReadCloser, Info, error)
	// Stat returns what is known of the object. Fails as Open.
	Stat(ctx context.Context, key string) (Info, error)
	// Delete removes the object; one that is not there is no error.
	// It fails with ErrRefused, ErrClockSkew.
	Delete(ctx context.Context, key string) error
	// List yields the objects whose keys begin with prefix, those of one
	// folder in ascending order. An error is yielded once, last. SHA256 may be
	// missing from the infos.
	List(ctx context.Context, prefix string) iter.Seq2[Object, error]
}

// Object is one row of a listing.
type Object struct {
	Key string
	Info
}

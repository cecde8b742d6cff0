package trace_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"iter"
	"strings"
	"testing"
	"time"

	"github.com/oomfleet/oomfleet/allocator"
	"github.com/oomfleet/oomfleet/proto"
	"github.com/oomfleet/oomfleet/storage/trace"
	"github.com/oomfleet/oomfleet/storage/trace/dir"
	"github.com/oomfleet/oomfleet/storage/trace/tracetest"
)

// faulty is a driver that does what real stores have been seen to do.
type faulty struct {
	trace.Driver
	put  func(key string, body io.ReadSeeker, info trace.Info) (io.ReadSeeker, trace.Info, error)
	stat func(trace.Info, error) (trace.Info, error)
	open func(io.ReadCloser) io.ReadCloser
	puts int
}

func (f *faulty) Put(ctx context.Context, key string, body io.ReadSeeker, info trace.Info) error {
	f.puts++
	if f.put != nil {
		var err error
		if body, info, err = f.put(key, body, info); err != nil {
			return err
		}
	}
	return f.Driver.Put(ctx, key, body, info)
}

func (f *faulty) Stat(ctx context.Context, key string) (trace.Info, error) {
	info, err := f.Driver.Stat(ctx, key)
	if f.stat != nil {
		return f.stat(info, err)
	}
	return info, err
}

func (f *faulty) Open(ctx context.Context, key string) (io.ReadCloser, trace.Info, error) {
	body, info, err := f.Driver.Open(ctx, key)
	if err == nil && f.open != nil {
		body = f.open(body)
	}
	return body, info, err
}

func newFaulty(t *testing.T) *faulty {
	t.Helper()
	d, err := dir.New(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return &faulty{Driver: d}
}

// cut stores the first half and says nothing.
func cut(_ string, body io.ReadSeeker, info trace.Info) (io.ReadSeeker, trace.Info, error) {
	content, err := io.ReadAll(body)
	content = content[:len(content)/2]
	return bytes.NewReader(content), trace.Info{Size: proto.Bytes(len(content)), SHA256: info.SHA256}, err
}

// flip stores one wrong bit.
func flip(_ string, body io.ReadSeeker, info trace.Info) (io.ReadSeeker, trace.Info, error) {
	content, err := io.ReadAll(body)
	content[len(content)-1] ^= 1
	return bytes.NewReader(content), info, err
}

type failingBody struct{ io.ReadCloser }

func (f failingBody) Read([]byte) (int, error) { return 0, errDropped }

var errDropped = errors.New("connection dropped")

func TestPutBelievesNoDriver(t *testing.T) {
	for name, tc := range map[string]struct {
		break_ func(*faulty)
		want   error
	}{
		"cut short in silence": {func(f *faulty) { f.put = cut }, trace.ErrCorrupt},
		"one bit wrong":        {func(f *faulty) { f.put = flip }, trace.ErrCorrupt},
		"wrong label": {func(f *faulty) {
			f.stat = func(info trace.Info, err error) (trace.Info, error) {
				info.SHA256 = trace.DigestOf(nil)
				return info, err
			}
		}, trace.ErrCorrupt},
		"acknowledged and gone": {func(f *faulty) {
			f.stat = func(trace.Info, error) (trace.Info, error) { return trace.Info{}, trace.ErrNotFound }
		}, trace.ErrNotFound},
		"full": {func(f *faulty) {
			f.put = func(_ string, b io.ReadSeeker, i trace.Info) (io.ReadSeeker, trace.Info, error) {
				return b, i, trace.ErrFull
			}
		}, trace.ErrFull},
		"not readable": {func(f *faulty) {
			f.open = func(body io.ReadCloser) io.ReadCloser { return failingBody{body} }
		}, errDropped},
		"refused": {func(f *faulty) {
			f.stat = func(trace.Info, error) (trace.Info, error) { return trace.Info{}, trace.ErrRefused }
		}, trace.ErrRefused},
	} {
		t.Run(name, func(t *testing.T) {
			d := newFaulty(t)
			tc.break_(d)
			store := trace.NewStore(d)
			events, meta := tracetest.Sample(1)
			if _, err := store.PutTrace(t.Context(), events, meta); !errors.Is(err, tc.want) {
				t.Errorf("put trace: %v", err)
			}
			if _, err := store.PutEvidence(t.Context(), proto.Result{Task: "x"}); !errors.Is(err, tc.want) {
				t.Errorf("put evidence: %v", err)
			}
			if err := store.Canary(t.Context()); !errors.Is(err, tc.want) {
				t.Errorf("canary: %v", err)
			}
		})
	}
}

func TestPutOnce(t *testing.T) {
	d := newFaulty(t)
	store := trace.NewStore(d).WithClock(time.Now)
	events, meta := tracetest.Sample(1)
	for range 3 {
		if _, err := store.PutTrace(t.Context(), events, meta); err != nil {
			t.Fatal(err)
		}
	}
	if d.puts != 1 {
		t.Errorf("the same trace was sent %d times", d.puts)
	}
}

func TestPutRefusesEvents(t *testing.T) {
	d := newFaulty(t)
	_, err := trace.NewStore(d).PutTrace(t.Context(), []allocator.Event{{Action: allocator.Alloc, Size: -1}}, trace.Meta{})
	if err == nil || d.puts > 0 {
		t.Errorf("%d puts, %v", d.puts, err)
	}
}

// deaf is a driver whose listing misses what was just put.
type deaf struct{ trace.Driver }

func (deaf) List(context.Context, string) iter.Seq2[trace.Object, error] {
	return func(func(trace.Object, error) bool) {}
}

func TestCanaryWantsListing(t *testing.T) {
	d := newFaulty(t)
	err := trace.NewStore(deaf{d}).Canary(t.Context())
	if err == nil || !strings.Contains(err.Error(), "list") {
		t.Error(err)
	}
	for object := range d.List(t.Context(), "") {
		t.Errorf("left behind: %v", object)
	}
}

func TestValidKey(t *testing.T) {
	for key, want := range map[string]bool{"traces/0a.parquet": true, "a-b_c.d/0": true, "": false, "/a": false, "a/": false,
		"a//b": false, "../a": false, "a/../b": false, ".a": false, "A": false, "a b": false, "a:b": false, "a%b": false} {
		if trace.ValidKey(key) != want {
			t.Errorf("%q: want %v", key, want)
		}
	}
}

// Package tracetest is the suite that every driver of package trace passes: the
// contract of trace.Driver, and what a trace.Store promises on top of it.
//
// It owns no driver and knows none. A driver's test calls Run with a function
// that opens an empty store.
package tracetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/oomfleet/oomfleet/proto"
	"github.com/oomfleet/oomfleet/storage/trace"
)

// Run checks a driver. Open returns a driver over an empty place that is ready
// for use; it is called once a subtest and fails the test itself.
func Run(t *testing.T, open func(t *testing.T) trace.Driver) {
	for name, check := range map[string]func(*testing.T, trace.Driver){
		"driver/sizes":            sizes,
		"driver/replace":          replace,
		"driver/missing":          missing,
		"driver/keys":             keys,
		"driver/announced size":   announcedSize,
		"driver/list":             list,
		"driver/writers race":     race,
		"driver/cancelled":        cancelled,
		"store/trace":             storeTrace,
		"store/evidence":          storeEvidence,
		"store/program":           storeProgram,
		"store/same trace twice":  storeTwice,
		"store/corrupt":           storeCorrupt,
		"store/foreign":           storeForeign,
		"store/no such digest":    storeMissing,
		"store/canary":            storeCanary,
		"store/describe and list": storeList,
		"store/every object":      storeObjects,
		"store/remove":            storeRemove,
	} {
		t.Run(name, func(t *testing.T) { check(t, open(t)) })
	}
}

func put(t *testing.T, d trace.Driver, key string, content []byte) {
	t.Helper()
	info := trace.Info{Size: proto.Bytes(len(content)), SHA256: trace.DigestOf(content)}
	if err := d.Put(t.Context(), key, bytes.NewReader(content), info); err != nil {
		t.Fatalf("put %s: %v", key, err)
	}
}

func read(t *testing.T, d trace.Driver, key string) []byte {
	t.Helper()
	body, info, err := d.Open(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	defer body.Close()
	content, err := io.ReadAll(body)
	if err != nil {
		t.Fatalf("read %s: %v", key, err)
	}
	if info.Size != proto.Bytes(len(content)) {
		t.Errorf("open says %d bytes, %d were read", info.Size, len(content))
	}
	return content
}

func sizes(t *testing.T, d trace.Driver) {
	// The last one is above the size from which S3 clients split uploads.
	for _, size := range []int{0, 1, 4096, 1<<20 + 1, 17 << 20} {
		content := bytes.Repeat([]byte{byte(size), 0xff, '\n'}, size/3+1)[:size]
		key := fmt.Sprintf("sizes/%d.bin", size)
		put(t, d, key, content)
		if !bytes.Equal(read(t, d, key), content) {
			t.Errorf("%d bytes: content differs", size)
		}
		info, err := d.Stat(t.Context(), key)
		if err != nil || info.Size != proto.Bytes(size) {
			t.Errorf("%d bytes: stat says %+v, %v", size, info, err)
		}
		if info.SHA256 != "" && info.SHA256 != trace.DigestOf(content) {
			t.Errorf("%d bytes: stat says digest %s", size, info.SHA256)
		}
		if info.Modified.IsZero() {
			t.Errorf("%d bytes: stat says no time", size)
		}
	}
}

func replace(t *testing.T, d trace.Driver) {
	put(t, d, "replace/x", []byte("a longer first version"))
	put(t, d, "replace/x", []byte("second"))
	if got := read(t, d, "replace/x"); string(got) != "second" {
		t.Errorf("content %q", got)
	}
	if err := d.Delete(t.Context(), "replace/x"); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Stat(t.Context(), "replace/x"); !errors.Is(err, trace.ErrNotFound) {
		t.Errorf("after deletion: %v", err)
	}
}

func missing(t *testing.T, d trace.Driver) {
	put(t, d, "missing/there", nil)
	for _, key := range []string{"missing/gone", "missing", "nowhere/at/all"} {
		if _, err := d.Stat(t.Context(), key); !errors.Is(err, trace.ErrNotFound) {
			t.Errorf("stat %s: %v", key, err)
		}
		if body, _, err := d.Open(t.Context(), key); !errors.Is(err, trace.ErrNotFound) {
			t.Errorf("open %s: %v", key, err)
			if err == nil {
				body.Close()
			}
		}
	}
	for _, key := range []string{"missing/gone", "nowhere/at/all"} {
		if err := d.Delete(t.Context(), key); err != nil {
			t.Errorf("delete %s: %v", key, err)
		}
	}
	for object, err := range d.List(t.Context(), "nowhere/") {
		t.Errorf("list of nothing yields %v, %v", object, err)
	}
}

func keys(t *testing.T, d trace.Driver) {
	for _, key := range []string{"", "/", "/lead", "tail/", "a//b", ".", "..", "../up", "a/../b", "a/./b", ".tmp/x",
		"Upper", "colon:x", "space x", "percent%41", "plus+x", "a\\b", "a\x00b", "ü", strings.Repeat("a", 201)} {
		if err := d.Put(t.Context(), key, strings.NewReader("x"), trace.Info{Size: 1}); err == nil {
			t.Errorf("put takes key %q", key)
		}
		if body, _, err := d.Open(t.Context(), key); err == nil {
			body.Close()
			t.Errorf("open takes key %q", key)
		}
		if _, err := d.Stat(t.Context(), key); err == nil {
			t.Errorf("stat takes key %q", key)
		}
		if err := d.Delete(t.Context(), key); err == nil {
			t.Errorf("delete takes key %q", key)
		}
	}
	for object, err := range d.List(t.Context(), "") {
		t.Errorf("something was stored: %v, %v", object, err)
	}
	for _, key := range []string{"a", "a.b_c-d/0", strings.Repeat("a", 100) + "/" + strings.Repeat("b", 99)} {
		put(t, d, key, []byte("x"))
	}
}

func announcedSize(t *testing.T, d trace.Driver) {
	for name, info := range map[string]trace.Info{"longer": {Size: 5}, "shorter": {Size: 50}} {
		if err := d.Put(t.Context(), "announced/x", strings.NewReader("ten bytes."), info); err == nil {
			t.Errorf("a body that is %s than announced is taken", name)
		}
		if _, err := d.Stat(t.Context(), "announced/x"); !errors.Is(err, trace.ErrNotFound) {
			t.Errorf("a body that is %s than announced: stat says %v", name, err)
		}
	}
}

func list(t *testing.T, d trace.Driver) {
	const n = 1010 // more than S3 lists at once
	want := make([]string, n)
	work := make(chan string)
	var writers sync.WaitGroup
	for range 8 {
		writers.Go(func() {
			for key := range work {
				if err := d.Put(t.Context(), key, strings.NewReader("abc"), trace.Info{Size: 3}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for i := range want {
		want[i] = fmt.Sprintf("list/%04d", i)
		work <- want[i]
	}
	close(work)
	writers.Wait()
	put(t, d, "listed-not/x", nil)

	var got []string
	for object, err := range d.List(t.Context(), "list/") {
		if err != nil {
			t.Fatal(err)
		}
		if object.Size != 3 || object.Modified.IsZero() {
			t.Fatalf("%+v", object)
		}
		got = append(got, object.Key)
	}
	if !slices.Equal(got, want) {
		t.Errorf("%d keys, want %d in order", len(got), n)
	}
	got = nil
	for object, err := range d.List(t.Context(), "list/000") { // not a folder; ended early
		if err != nil {
			t.Fatal(err)
		}
		if got = append(got, object.Key); len(got) == 3 {
			break
		}
	}
	if !slices.Equal(got, want[:3]) {
		t.Errorf("prefix list/000 yields %v", got)
	}
}

// race lets writers and readers meet on one key: every read is whole.
func race(t *testing.T, d trace.Driver) {
	versions := make([][]byte, 4)
	for i := range versions {
		versions[i] = bytes.Repeat([]byte{byte('a' + i)}, 100_000+i)
	}
	put(t, d, "race/x", versions[0])
	var all sync.WaitGroup
	for _, content := range versions {
		all.Go(func() {
			for range 5 {
				err := d.Put(t.Context(), "race/x", bytes.NewReader(content), trace.Info{Size: proto.Bytes(len(content))})
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	for range 4 {
		all.Go(func() {
			for range 10 {
				body, _, err := d.Open(t.Context(), "race/x")
				if err != nil {
					t.Error(err)
					return
				}
				content, err := io.ReadAll(body)
				body.Close()
				whole := slices.ContainsFunc(versions, func(v []byte) bool { return bytes.Equal(v, content) })
				if err != nil || !whole {
					t.Errorf("read %d bytes, no version: %v", len(content), err)
				}
			}
		})
	}
	all.Wait()
}

func cancelled(t *testing.T, d trace.Driver) {
	put(t, d, "cancelled/x", []byte("x"))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := d.Put(ctx, "cancelled/y", strings.NewReader("y"), trace.Info{Size: 1}); !errors.Is(err, context.Canceled) {
		t.Errorf("put: %v", err)
	}
	if _, _, err := d.Open(ctx, "cancelled/x"); !errors.Is(err, context.Canceled) {
		t.Errorf("open: %v", err)
	}
	if _, err := d.Stat(ctx, "cancelled/x"); !errors.Is(err, context.Canceled) {
		t.Errorf("stat: %v", err)
	}
	var last error
	for _, err := range d.List(ctx, "cancelled/") {
		last = err
	}
	if !errors.Is(last, context.Canceled) {
		t.Errorf("list: %v", last)
	}
	if _, err := d.Stat(t.Context(), "cancelled/y"); !errors.Is(err, trace.ErrNotFound) {
		t.Errorf("a cancelled put stored something: %v", err)
	}
}

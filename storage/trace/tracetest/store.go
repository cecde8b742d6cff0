package tracetest

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"testing"

	"github.com/oomfleet/oomfleet/allocator"
	"github.com/oomfleet/oomfleet/proto"
	"github.com/oomfleet/oomfleet/storage/trace"
)

// Sample is a small trace; another seed gives another content.
func Sample(seed int) ([]allocator.Event, trace.Meta) {
	events := []allocator.Event{{Action: allocator.SegmentAlloc, Addr: 1 << 40, Size: 2 << 20}}
	for i := range 100 {
		size := int64(512 + i*7 + seed)
		events = append(events,
			allocator.Event{Action: allocator.Alloc, Addr: 1<<40 + uint64(i)*1024, Size: size},
			allocator.Event{Action: allocator.FreeRequested, Addr: 1<<40 + uint64(i)*1024, Size: size})
	}
	return events, trace.Meta{
		Cell:   proto.Cell{Workload: proto.Workload{Name: "esmfold"}, GPU: "NVIDIA H200", SeqLen: 128 + seed, Batch: 1},
		Origin: proto.OriginSimulated, PeakReserved: 2 << 20,
	}
}

func putTrace(t *testing.T, d trace.Driver, seed int) proto.TraceRef {
	t.Helper()
	events, meta := Sample(seed)
	ref, err := trace.NewStore(d).PutTrace(t.Context(), events, meta)
	if err != nil {
		t.Fatal(err)
	}
	return ref
}

func traceKey(ref proto.TraceRef) string { return "traces/" + string(ref.Digest) + ".parquet" }

func storeTrace(t *testing.T, d trace.Driver) {
	store := trace.NewStore(d)
	ref := putTrace(t, d, 1)
	events, meta, err := store.GetTrace(t.Context(), ref.Digest)
	if err != nil {
		t.Fatal(err)
	}
	want, wantMeta := Sample(1)
	if !slices.Equal(events, want) || meta.Cell.ID() != wantMeta.Cell.ID() || meta.Origin != wantMeta.Origin {
		t.Errorf("%d events, meta %+v", len(events), meta)
	}
	body, size, err := store.Open(t.Context(), ref.Digest)
	if err != nil {
		t.Fatal(err)
	}
	defer body.Close()
	file, err := io.ReadAll(body)
	if err != nil || size != ref.Size || proto.Bytes(len(file)) != size || trace.DigestOf(file) != ref.Digest {
		t.Errorf("download of %d bytes, announced %d, stored %d: %v", len(file), size, ref.Size, err)
	}
	if stored := read(t, d, traceKey(ref)); !bytes.Equal(stored, file) || ref.Events != int64(len(want)) {
		t.Errorf("stored object has %d bytes, reference %+v", len(stored), ref)
	}
}

func storeTwice(t *testing.T, d trace.Driver) {
	first, second, other := putTrace(t, d, 1), putTrace(t, d, 1), putTrace(t, d, 2)
	if first != second || first == other {
		t.Errorf("references %+v, %+v, %+v", first, second, other)
	}
}

func storeEvidence(t *testing.T, d trace.Driver) {
	store := trace.NewStore(d)
	result := proto.Result{Task: "s-0-1", Outcome: proto.OutcomeOOMQuota, Evidence: proto.Evidence{Message: "CUDA out of memory. <&>"}}
	digest, err := store.PutEvidence(t.Context(), result)
	if err != nil {
		t.Fatal(err)
	}
	got, err := store.GetEvidence(t.Context(), digest)
	if err != nil || got.Task != result.Task || got.Outcome != result.Outcome || got.Evidence.Message != result.Evidence.Message {
		t.Errorf("%+v, %v", got, err)
	}
	if _, err := d.Stat(t.Context(), "evidence/"+string(digest)+".json"); err != nil {
		t.Error(err)
	}
}

func storeProgram(t *testing.T, d trace.Driver) {
	store := trace.NewStore(d)
	text := []byte(`{"version":1,"pieces":[]}`)
	digest, err := store.PutProgram(t.Context(), text)
	if err != nil || digest != trace.DigestOf(text) {
		t.Fatalf("digest %s, %v", digest, err)
	}
	if again, err := store.PutProgram(t.Context(), text); err != nil || again != digest {
		t.Errorf("stored twice: %s, %v", again, err)
	}
	if got, err := store.GetProgram(t.Context(), digest); err != nil || !bytes.Equal(got, text) {
		t.Errorf("got %q, %v", got, err)
	}
	key := "programs/" + string(digest) + ".json"
	if err := d.Put(t.Context(), key, bytes.NewReader(text[1:]), trace.Info{Size: proto.Bytes(len(text) - 1), SHA256: digest}); err != nil {
		t.Fatal(err)
	}
	if _, err := store.GetProgram(t.Context(), digest); !errors.Is(err, trace.ErrCorrupt) {
		t.Errorf("cut short: %v", err)
	}
	if _, err := store.PutProgram(t.Context(), text); err != nil {
		t.Errorf("heal: %v", err)
	}
	if _, err := store.GetProgram(t.Context(), digest); err != nil {
		t.Errorf("healed: %v", err)
	}
}

// storeCorrupt damages a stored trace in every way that a disk, a proxy or a
// server has been seen to, and stores it again.
func storeCorrupt(t *testing.T, d trace.Driver) {
	store := trace.NewStore(d)
	ref := putTrace(t, d, 1)
	good := read(t, d, traceKey(ref))
	flipped := bytes.Clone(good)
	flipped[len(flipped)/2] ^= 1
	for name, content := range map[string][]byte{
		"cut short": good[:len(good)/2], "empty": nil, "one bit": flipped, "longer": append(bytes.Clone(good), 0),
	} {
		// The label is the right one: only the content tells.
		info := trace.Info{Size: proto.Bytes(len(content)), SHA256: ref.Digest}
		if err := d.Put(t.Context(), traceKey(ref), bytes.NewReader(content), info); err != nil {
			t.Fatal(err)
		}
		if _, _, err := store.GetTrace(t.Context(), ref.Digest); !errors.Is(err, trace.ErrCorrupt) {
			t.Errorf("%s: get: %v", name, err)
		}
		if _, _, err := store.Describe(t.Context(), ref.Digest); !errors.Is(err, trace.ErrCorrupt) {
			t.Errorf("%s: describe: %v", name, err)
		}
		body, _, err := store.Open(t.Context(), ref.Digest)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(io.Discard, body); !errors.Is(err, trace.ErrCorrupt) {
			t.Errorf("%s: download: %v", name, err)
		}
		body.Close()
		if again := putTrace(t, d, 1); again != ref {
			t.Errorf("%s: stored again as %+v", name, again)
		}
		if _, _, err := store.GetTrace(t.Context(), ref.Digest); err != nil {
			t.Errorf("%s: storing again does not heal: %v", name, err)
		}
	}
}

// storeForeign puts an object of the right name that is no trace.
func storeForeign(t *testing.T, d trace.Driver) {
	store := trace.NewStore(d)
	content := []byte("not parquet, but exactly what its name says")
	digest := trace.DigestOf(content)
	put(t, d, traceKey(proto.TraceRef{Digest: digest}), content)
	if _, _, err := store.GetTrace(t.Context(), digest); !errors.Is(err, trace.ErrFormat) || errors.Is(err, trace.ErrCorrupt) {
		t.Errorf("get: %v", err)
	}
	if _, _, err := store.Describe(t.Context(), digest); !errors.Is(err, trace.ErrFormat) {
		t.Errorf("describe: %v", err)
	}
}

func storeMissing(t *testing.T, d trace.Driver) {
	store := trace.NewStore(d)
	for _, digest := range []proto.Digest{trace.DigestOf(nil), "", "../../etc/passwd", "ABC"} {
		if _, _, err := store.GetTrace(t.Context(), digest); !errors.Is(err, trace.ErrNotFound) {
			t.Errorf("get %q: %v", digest, err)
		}
		if _, _, err := store.Open(t.Context(), digest); !errors.Is(err, trace.ErrNotFound) {
			t.Errorf("open %q: %v", digest, err)
		}
		if _, err := store.GetEvidence(t.Context(), digest); !errors.Is(err, trace.ErrNotFound) {
			t.Errorf("evidence %q: %v", digest, err)
		}
		if _, err := store.GetProgram(t.Context(), digest); !errors.Is(err, trace.ErrNotFound) {
			t.Errorf("program %q: %v", digest, err)
		}
	}
}

func storeCanary(t *testing.T, d trace.Driver) {
	if err := trace.NewStore(d).Canary(t.Context()); err != nil {
		t.Fatal(err)
	}
	for object, err := range d.List(t.Context(), "") {
		t.Errorf("the canary left %v, %v", object, err)
	}
}

func storeList(t *testing.T, d trace.Driver) {
	store := trace.NewStore(d)
	for _, err := range store.List(t.Context()) {
		t.Fatalf("an empty store yields something, %v", err)
	}
	want := map[proto.Digest]proto.TraceRef{}
	for seed := range 5 {
		ref := putTrace(t, d, seed)
		want[ref.Digest] = ref
	}
	put(t, d, "traces/readme.txt", []byte("foreign"))
	put(t, d, "traces/abc.parquet", []byte("foreign"))
	if _, err := store.PutEvidence(t.Context(), proto.Result{}); err != nil {
		t.Fatal(err)
	}
	for stored, err := range store.List(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		ref, known := want[stored.Digest]
		if !known || stored.Size != ref.Size || stored.Modified.IsZero() {
			t.Errorf("%+v, reference %+v", stored, ref)
		}
		delete(want, stored.Digest)
		described, meta, err := store.Describe(t.Context(), stored.Digest)
		if err != nil || described != ref || meta.Cell.SeqLen < 128 || meta.Cell.SeqLen > 132 {
			t.Errorf("described as %+v, %+v, %v", described, meta.Cell, err)
		}
	}
	if len(want) > 0 {
		t.Errorf("not listed: %v", want)
	}
}

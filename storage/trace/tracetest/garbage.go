package tracetest

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/oomfleet/oomfleet/proto"
	"github.com/oomfleet/oomfleet/storage/trace"
)

// objects are all that a store has, without what drivers find unfinished.
func objects(t *testing.T, s *trace.Store) []trace.StoredObject {
	t.Helper()
	var out []trace.StoredObject
	for o, err := range s.Objects(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, o)
	}
	return out
}

func storeObjects(t *testing.T, d trace.Driver) {
	store := trace.NewStore(d)
	if got := objects(t, store); len(got) != 0 {
		t.Fatalf("an empty store has %+v", got)
	}
	ref := putTrace(t, d, 1)
	evidence, err := store.PutEvidence(t.Context(), proto.Result{Task: "s-0-1"})
	if err != nil {
		t.Fatal(err)
	}
	program, err := store.PutProgram(t.Context(), []byte("{}"))
	if err != nil {
		t.Fatal(err)
	}
	if err := store.CanaryPut(t.Context(), "an agent"); err != nil {
		t.Fatal(err)
	}
	put(t, d, "traces/readme.txt", []byte("foreign"))
	put(t, d, "elsewhere/"+string(ref.Digest)+".parquet", []byte("foreign"))
	var kinds []trace.ObjectKind
	for _, o := range objects(t, store) {
		kinds = append(kinds, o.Kind)
		want := map[trace.ObjectKind]proto.Digest{trace.KindTrace: ref.Digest, trace.KindEvidence: evidence, trace.KindProgram: program}[o.Kind]
		if o.Digest != want || o.Key == "" || o.Size <= 0 || time.Since(o.Modified).Abs() > time.Hour {
			t.Errorf("%+v", o)
		}
	}
	if want := []trace.ObjectKind{trace.KindTrace, trace.KindEvidence, trace.KindProgram, trace.KindCanary}; !slices.Equal(kinds, want) {
		t.Errorf("found %v, want %v", kinds, want)
	}
}

func storeRemove(t *testing.T, d trace.Driver) {
	store := trace.NewStore(d)
	for seed := range 3 {
		putTrace(t, d, seed)
	}
	found := objects(t, store)
	if len(found) != 3 {
		t.Fatalf("%+v", found)
	}
	changed := found[1]
	changed.Modified = changed.Modified.Add(-time.Minute) // as it was listed before somebody put it again
	if err := store.Remove(t.Context(), changed); !errors.Is(err, trace.ErrChanged) {
		t.Errorf("an object that was put again: %v", err)
	}
	for range 2 { // the second time it is gone already
		if err := store.Remove(t.Context(), found[0]); err != nil {
			t.Error(err)
		}
	}
	if left := objects(t, store); !slices.Equal(left, found[1:]) {
		t.Errorf("left %+v, want %+v", left, found[1:])
	}
}

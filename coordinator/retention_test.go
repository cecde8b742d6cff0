package coordinator

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/oomfleet/oomfleet/proto"
	"github.com/oomfleet/oomfleet/queue/memq"
	"github.com/oomfleet/oomfleet/storage/registry"
	"github.com/oomfleet/oomfleet/storage/trace"
)

// shelf is a trace store of names and times.
type shelf struct {
	mu      sync.Mutex // guards the rest
	objects []trace.StoredObject
	fail    error
	// listed runs after a listing, before anything is removed.
	listed func()
}

func (s *shelf) put(kind trace.ObjectKind, digest proto.Digest, age time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.objects = slices.DeleteFunc(s.objects, func(o trace.StoredObject) bool { return o.Digest == digest && digest != "" })
	s.objects = append(s.objects, trace.StoredObject{Kind: kind, Key: fmt.Sprintf("%s/%s", kind, digest), Digest: digest, Size: 10, Modified: time.Now().Add(-age)})
}

func (s *shelf) Objects(context.Context) iter.Seq2[trace.StoredObject, error] {
	return func(yield func(trace.StoredObject, error) bool) {
		s.mu.Lock()
		all, fail, listed := slices.Clone(s.objects), s.fail, s.listed
		s.mu.Unlock()
		for _, o := range all {
			if !yield(o, nil) {
				return
			}
		}
		if fail != nil {
			yield(trace.StoredObject{}, fail)
		}
		if listed != nil {
			listed()
		}
	}
}

func (s *shelf) Remove(_ context.Context, o trace.StoredObject) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := slices.IndexFunc(s.objects, func(k trace.StoredObject) bool { return k.Key == o.Key })
	if at >= 0 && !s.objects[at].Modified.Equal(o.Modified) {
		return trace.ErrChanged
	}
	if at >= 0 {
		s.objects = slices.Delete(s.objects, at, at+1)
	}
	return nil
}

func (s *shelf) keys() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var keys []string
	for _, o := range s.objects {
		keys = append(keys, string(o.Digest))
	}
	slices.Sort(keys)
	return strings.Join(keys, " ")
}

const day = 24 * time.Hour

// digest is one of 64 digits that begins with a word.
func digest(word string) proto.Digest {
	return proto.Digest(fmt.Sprintf("%s%0*d", word, 64-len(word), 0))
}

// withGarbage is a coordinator whose registry refers to "run", with one sweep.
func withGarbage(t *testing.T) (*fleet, *shelf, *Coordinator) {
	t.Helper()
	f, s := newFleet(t), &shelf{}
	f.cfg.AuditEvery = time.Hour // rounds are made by hand
	c, err := New(f.cfg, Deps{Registry: f.registry, Queue: f.queue, Traces: f.traces, Garbage: s, Metrics: f.metrics})
	if err != nil {
		t.Fatal(err)
	}
	f.submit(c, "[128]")
	if _, err := newDuty(c).round(f.ctx, true); err != nil {
		t.Fatal(err)
	}
	for _, rec := range f.registry.View().Records {
		r := runOf(rec.Open[0].Task, "a")
		r.Evidence.Trace = &proto.TraceRef{Digest: digest("run")}
		if _, err := f.registry.Propose(f.ctx, registry.Command{Version: 1, TakeResult: &registry.TakeResult{Result: r}}); err != nil {
			t.Fatal(err)
		}
	}
	return f, s, c
}

func TestCollect(t *testing.T) {
	f, s, c := withGarbage(t)
	s.put(trace.KindTrace, digest("run"), 900*day)
	s.put(trace.KindTrace, digest("late"), 8*day)
	s.put(trace.KindTrace, digest("fresh"), 6*day)
	s.put(trace.KindProgram, digest("program"), 8*day)
	s.put(trace.KindEvidence, digest("evidence"), 8*day)
	s.put(trace.KindCanary, "", 8*day)
	s.put(trace.KindUpload, digest("upload"), 8*day)
	before := s.keys()
	got, err := c.Collect(f.ctx, CollectRequest{Keep: 7 * day, DryRun: true})
	if err != nil || !got.DryRun || got.Objects != 7 || got.Referred != 1 || got.Young != 1 || got.Found != 5 || len(got.Garbage) != 5 || got.Removed != 0 {
		t.Errorf("dry run: %+v, %v", got, err)
	}
	if s.keys() != before {
		t.Errorf("a dry run leaves %s", s.keys())
	}
	if got, err = c.Collect(f.ctx, CollectRequest{Keep: 7 * day}); err != nil || got.Removed != 5 || got.Freed != 50 {
		t.Errorf("%+v, %v", got, err)
	}
	if want := string(digest("fresh") + " " + digest("run")); s.keys() != want {
		t.Errorf("left %s, want %s", s.keys(), want)
	}
	f.counted(map[string]float64{
		`oomfleet_collections_total{result="done"}`:         1,
		`oomfleet_collections_total{result="dry_run"}`:      1,
		`oomfleet_collected_objects_total{kind="trace"}`:    1,
		`oomfleet_collected_objects_total{kind="upload"}`:   1,
		`oomfleet_collected_objects_total{kind="evidence"}`: 1,
		`oomfleet_collected_bytes_total`:                    50,
		`oomfleet_collections_total{result="failed"}`:       0,
		`oomfleet_tasks_stopped_total`:                      0,
		`oomfleet_collected_objects_total{kind="canary"}`:   1,
		`oomfleet_collected_objects_total{kind="program"}`:  1,
		`oomfleet_collections_total{result="refused"}`:      0,
	})
}

// TestCollectRefuses: whatever speaks against it leaves everything.
func TestCollectRefuses(t *testing.T) {
	week := CollectRequest{Keep: 7 * day}
	for name, tc := range map[string]struct {
		spoil func(*fleet, *shelf, *Coordinator)
		with  CollectRequest
		says  string
	}{
		"reports wait":           {func(f *fleet, _ *shelf, c *Coordinator) { c.quiet.set(time.Time{}) }, week, "results wait"},
		"kept too short":         {func(*fleet, *shelf, *Coordinator) {}, CollectRequest{Keep: 23 * time.Hour}, "24h0m0s at least"},
		"a follower":             {func(f *fleet, _ *shelf, _ *Coordinator) { f.registry.lead(false) }, week, "not the leader"},
		"the listing breaks off": {func(_ *fleet, s *shelf, _ *Coordinator) { s.fail = errors.New("dropped") }, week, "dropped"},
		"another fleet's store": {func(_ *fleet, s *shelf, _ *Coordinator) {
			for i := range 40 {
				s.put(trace.KindTrace, digest(fmt.Sprintf("other%d-", i)), 30*day)
			}
		}, week, "another fleet"},
		"an empty registry": {func(f *fleet, _ *shelf, _ *Coordinator) {
			f.registry.mu.Lock()
			defer f.registry.mu.Unlock()
			f.registry.machine = registry.New()
		}, week, "registry is empty"},
	} {
		t.Run(name, func(t *testing.T) {
			f, s, c := withGarbage(t)
			s.put(trace.KindTrace, digest("late"), 30*day)
			tc.spoil(f, s, c)
			before := s.keys()
			if _, err := c.Collect(f.ctx, tc.with); err == nil || !strings.Contains(err.Error(), tc.says) {
				t.Errorf("%v, want %q", err, tc.says)
			}
			if s.keys() != before {
				t.Errorf("left %s, was %s", s.keys(), before)
			}
		})
	}
	t.Run("force", func(t *testing.T) {
		f, s, c := withGarbage(t)
		for i := range 40 {
			s.put(trace.KindTrace, digest(fmt.Sprintf("other%d-", i)), 30*day)
		}
		if got, err := c.Collect(f.ctx, CollectRequest{Keep: 7 * day, Force: true}); err != nil || got.Removed != 40 {
			t.Errorf("%+v, %v", got, err)
		}
	})
	t.Run("after a restore", func(t *testing.T) {
		var q quiet
		now, v := time.Now(), registry.View{Restored: 7}
		for _, at := range []time.Duration{0, day} {
			if d, ok := q.restoredFor(v, now.Add(at)); !ok || d != at {
				t.Errorf("after %s it is %s, %v", at, d, ok)
			}
		}
		if d, _ := q.restoredFor(registry.View{Restored: 9}, now.Add(9*day)); d != 0 {
			t.Errorf("another restore is %s old", d)
		}
		if _, ok := q.restoredFor(registry.View{}, now); ok {
			t.Error("never restored, and yet")
		}
	})
}

// TestCollectBesideUploads: an old object that an agent puts again while garbage
// is looked for, and refers to afterwards, stays.
func TestCollectBesideUploads(t *testing.T) {
	f, s, c := withGarbage(t)
	s.put(trace.KindTrace, digest("reused"), 30*day)
	s.put(trace.KindTrace, digest("late"), 30*day)
	s.listed = func() { s.put(trace.KindTrace, digest("reused"), 0) }
	got, err := c.Collect(f.ctx, CollectRequest{Keep: 7 * day})
	if err != nil || got.Changed != 1 || got.Removed != 1 || s.keys() != string(digest("reused")) {
		t.Errorf("%+v, %v; left %s", got, err, s.keys())
	}
}

// TestCollectWaitsForReports: a result that waits longer than objects are kept
// still finds its trace: what is younger than the last quiet moment stays.
func TestCollectWaitsForReports(t *testing.T) {
	f, s, c := withGarbage(t)
	s.put(trace.KindTrace, digest("waiting"), 9*day) // put 9 days ago, reported right then
	s.put(trace.KindTrace, digest("older"), 11*day)
	c.quiet.set(time.Now().Add(-10 * day)) // since then something always waited
	got, err := c.Collect(f.ctx, CollectRequest{Keep: 7 * day})
	if err != nil || got.Removed != 1 || got.Young != 1 || s.keys() != string(digest("waiting")) {
		t.Errorf("%+v, %v; left %s", got, err, s.keys())
	}
}

// TestRetain: the leader collects by itself at its interval, and only with a
// configured age.
func TestRetain(t *testing.T) {
	for name, keep := range map[string]time.Duration{"configured": 7 * day, "not configured": 0} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q, err := memq.New(memq.Config{})
				if err != nil {
					t.Fatal(err)
				}
				reg, s := newReplicaOfOne(), &shelf{}
				c, err := New(Config{Retention: Retention{Keep: keep, Every: 6 * time.Hour}}, Deps{Registry: reg, Queue: q, Traces: &recordings{}, Garbage: s})
				if err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithCancel(t.Context())
				done := make(chan error, 1)
				go func() { done <- c.Run(ctx) }()
				if _, err := c.Submit(ctx, SubmitRequest{Source: source("[128]"), Origin: proto.OriginMeasured}); err != nil {
					t.Fatal(err)
				}
				s.put(trace.KindTrace, digest("late"), 6*day+22*time.Hour)
				later := time.NewTimer(time.Hour + time.Minute)
				<-later.C
				synctest.Wait()
				if s.keys() == "" {
					t.Error("removed too early")
				}
				later.Reset(6 * time.Hour)
				<-later.C
				synctest.Wait()
				if gone := s.keys() == ""; gone != (keep > 0) {
					t.Errorf("gone: %v", gone)
				}
				cancel()
				if err := <-done; err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// TestEveryReferenceCounts: whatever digest a record or a program may hold, the
// object of it stays. A new field that holds one fails here until it counts.
func TestEveryReferenceCounts(t *testing.T) {
	n := 0
	var record registry.Record
	var program registry.Program
	for _, into := range []any{&record, &program} {
		fillDigests(reflect.ValueOf(into).Elem(), &n, 0)
	}
	v := registry.View{Records: map[registry.Key]*registry.Record{{}: &record}, Programs: map[registry.FamilyKey]*registry.Program{{}: &program}}
	refers := referred(v)
	for i := 1; i <= n; i++ {
		if !refers[digest(fmt.Sprintf("d%d-", i))] {
			t.Errorf("digest %d of %d is taken for garbage: %+v %+v", i, n, record, program)
		}
	}
	if n < 9 {
		t.Errorf("only %d places hold a digest", n)
	}
}

// fillDigests puts a digest of its own wherever a value can hold one.
func fillDigests(v reflect.Value, n *int, depth int) {
	if depth > 12 || !v.CanSet() {
		return
	}
	switch v.Kind() {
	case reflect.String:
		if v.Type() == reflect.TypeFor[proto.Digest]() {
			*n++
			v.SetString(string(digest(fmt.Sprintf("d%d-", *n))))
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fillDigests(v.Elem(), n, depth+1)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		for i := range v.Len() {
			fillDigests(v.Index(i), n, depth+1)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			fillDigests(v.Field(i), n, depth+1)
		}
	}
}

package fleetsim

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/oomfleet/oomfleet/coordinator"
	"github.com/oomfleet/oomfleet/proto"
	"github.com/oomfleet/oomfleet/storage/registry"
	"github.com/oomfleet/oomfleet/storage/trace"
)

// put notes that an object was put: one that is there is written again when it is
// older than trace.Store lets it become.
func (s *sim) put(d proto.Digest) {
	at, known := s.store.modified[d]
	if now := s.now + s.wall; !known || now-at >= trace.RefreshAfter {
		s.store.modified[d] = now
	}
}

// Objects implements coordinator.Garbage.
func (c storeClient) Objects(context.Context) iter.Seq2[trace.StoredObject, error] {
	return func(yield func(trace.StoredObject, error) bool) {
		var list []trace.StoredObject
		if err := c.call(func() { list = c.objects() }); err != nil {
			yield(trace.StoredObject{}, err)
			return
		}
		for _, o := range list {
			if !yield(o, nil) {
				return
			}
		}
	}
}

func (s *sim) objects() []trace.StoredObject {
	var list []trace.StoredObject
	for _, d := range slices.Sorted(maps.Keys(s.store.modified)) {
		o := trace.StoredObject{Key: string(d), Digest: d, Size: proto.MiB, Modified: epoch().Add(s.store.modified[d])}
		if s.cfg.mutation == nameless {
			o.Digest = ""
		}
		list = append(list, o)
	}
	return list
}

// Remove implements coordinator.Garbage.
func (c storeClient) Remove(_ context.Context, o trace.StoredObject) error {
	d, changed := proto.Digest(o.Key), false
	err := c.call(func() {
		if changed = !epoch().Add(c.store.modified[d]).Equal(o.Modified); changed {
			return
		}
		c.check.removes(d)
		c.remove(d)
	})
	if err == nil && changed {
		err = trace.ErrChanged
	}
	return err
}

func (s *sim) remove(d proto.Digest) {
	delete(s.store.modified, d)
	delete(s.store.traces, d)
	delete(s.store.programs, d)
}

// collect lets a night pass, and then asks the leader to remove what is garbage by
// the least time that things are kept.
func (s *sim) collect() {
	s.pass()
	s.after(s.dice.between("collect", time.Second, 20*time.Second), func() {
		n := s.cluster.leader
		if n == nil {
			return
		}
		var err error
		s.start(s.root, func() {
			_, err = n.service.Collect(s.root, coordinator.CollectRequest{Keep: coordinator.LeastKeep})
		}, func() {
			var refused *coordinator.RefusedError
			if errors.As(err, &refused) && strings.Contains(refused.Why, "another fleet") {
				s.check.fail("garbage", refused.Why)
			}
		})
	})
}

// removes checks that nothing goes which the registry refers to.
func (c *checker) removes(d proto.Digest) {
	c.books.Removed++
	c.note("object %.8s is removed", d)
	if what := refers(c.view(), d); what != "" {
		c.fail("garbage", fmt.Sprintf("object %.8s is removed, which is %s", d, what))
	}
}

// refers says what the registry knows an object as; empty for nothing.
func refers(v registry.View, d proto.Digest) string {
	for _, rec := range v.Records {
		for _, r := range rec.Runs {
			if r.Trace != nil && r.Trace.Digest == d {
				return fmt.Sprintf("the trace of %s of cell %s", r.Task, rec.Cell)
			}
		}
	}
	for _, p := range v.Programs {
		if p.Digest == d {
			return "the program of " + p.Family.Family
		}
	}
	return ""
}

// checkStored: every trace of a run that counted, and every program, is in the store.
func (s *sim) checkStored(v registry.View) {
	for _, rec := range v.Records {
		for _, r := range rec.Runs {
			if r.Trace != nil && s.store.traces[r.Trace.Digest] == nil {
				s.check.fail("garbage", fmt.Sprintf("the trace of %s of cell %s is not in the store", r.Task, rec.Cell))
			}
		}
	}
	for _, p := range v.Programs {
		if p.Digest != "" && s.store.programs[p.Digest] == nil {
			s.check.fail("garbage", "the program of "+p.Family.Family+" is not in the store")
		}
	}
}

package s3x_test

import (
	"errors"
	"sync"
	"testing"

	"github.com/oomfleet/oomfleet/internal/s3server/s3servertest"
	"github.com/oomfleet/oomfleet/proto"
	"github.com/oomfleet/oomfleet/storage/trace"
	"github.com/oomfleet/oomfleet/storage/trace/tracetest"
)

// TestServerKilled kills the server with SIGKILL while writers are at work:
// whatever was acknowledged is whole after the restart, and whatever was not can
// simply be stored again.
func TestServerKilled(t *testing.T) {
	server := s3servertest.Start(t, s3servertest.Options{})
	d := open(t, config(server, "traces"))
	store := trace.NewStore(d)

	const writers, killAfter = 4, 60
	acked := make(chan proto.TraceRef)
	failed := make(chan int, writers) // the seed that each writer lost
	var all sync.WaitGroup
	for w := range writers {
		all.Go(func() {
			for seed := w; ; seed += writers {
				events, meta := tracetest.Sample(seed)
				ref, err := store.PutTrace(t.Context(), events, meta)
				if err != nil {
					failed <- seed
					return
				}
				acked <- ref
			}
		})
	}
	go func() {
		all.Wait()
		close(acked)
	}()
	var refs []proto.TraceRef
	for ref := range acked {
		if refs = append(refs, ref); len(refs) == killAfter {
			server.Kill()
		}
	}
	close(failed)
	if len(refs) < killAfter || len(failed) != writers {
		t.Fatalf("%d acknowledged, %d writers failed", len(refs), len(failed))
	}

	again := s3servertest.Start(t, s3servertest.Options{Dir: server.Dir, Addr: server.Addr})
	if again.Addr != server.Addr {
		t.Fatalf("restarted at %s, was at %s", again.Addr, server.Addr)
	}
	for _, ref := range refs { // through the client that saw the crash
		if _, _, err := store.GetTrace(t.Context(), ref.Digest); err != nil {
			t.Errorf("acknowledged and lost: %v", err)
		}
	}
	for stored, err := range store.List(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := store.GetTrace(t.Context(), stored.Digest); err != nil && !errors.Is(err, trace.ErrCorrupt) {
			t.Errorf("not acknowledged, and neither whole nor seen to be corrupt: %v", err)
		}
	}
	for seed := range failed {
		events, meta := tracetest.Sample(seed)
		ref, err := store.PutTrace(t.Context(), events, meta)
		if err != nil {
			t.Fatalf("store again: %v", err)
		}
		if _, _, err := store.GetTrace(t.Context(), ref.Digest); err != nil {
			t.Error(err)
		}
	}
}

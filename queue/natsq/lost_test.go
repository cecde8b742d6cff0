package natsq_test

import (
	"testing"
	"time"

	"github.com/oomfleet/oomfleet/proto"
	"github.com/oomfleet/oomfleet/queue/natsq"
	"github.com/oomfleet/oomfleet/queue/queuetest"
)

// TestNextWhenALookIsLost: the connection ends after Next has asked about its
// consumer and before the answer. The question is asked again at once, and is
// not waited for as long as any request may take.
func TestNextWhenALookIsLost(t *testing.T) {
	ctx := within(t, patience)
	srv := startChild(t)
	wire := startProxy(t, srv.url)
	q := open(t, natsq.Config{URL: wire.url()})
	task := queuetest.NewTask("1", 1, 7)
	if _, err := open(t, natsq.Config{URL: srv.url}).Publish(ctx, []proto.Task{task}); err != nil {
		t.Fatal(err)
	}
	wire.cutAt("$JS.API.CONSUMER.")
	began := time.Now()
	if _, err := q.Next(ctx, task.Pool()); err != nil {
		t.Fatal(err)
	}
	if wire.armed() {
		t.Error("Next asked nothing that could be lost")
	}
	// Usually a quarter of a second; a request that is waited for takes all of
	// the ten seconds that any may.
	if took := time.Since(began); took >= 10*time.Second {
		t.Errorf("Next needed %s", took)
	}
}

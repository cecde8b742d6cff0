package natsq_test

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/oomfleet/oomfleet/internal/natsserver"
	"github.com/oomfleet/oomfleet/queue"
	"github.com/oomfleet/oomfleet/queue/natsq"
	"github.com/oomfleet/oomfleet/queue/queuetest"
)

func TestMain(m *testing.M) {
	if serve() {
		return
	}
	goleak.VerifyTestMain(m)
}

// server runs a nats-server in this process until the test ends.
func server(t *testing.T, cfg natsserver.Config) (url string) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ready, done := make(chan string, 1), make(chan error, 1)
	cfg.Ready = func(u string) { ready <- u }
	if cfg.Dir == "" {
		cfg.Dir = t.TempDir()
	}
	go func() { done <- natsserver.Run(ctx, cfg) }()
	select {
	case url = <-ready:
	case err := <-done:
		cancel()
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return url
}

func open(t *testing.T, cfg natsq.Config) *natsq.Queue {
	t.Helper()
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.NewTextHandler(t.Output(), nil))
	}
	q, err := natsq.Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = q.Close() }) // closing twice is no error
	return q
}

func TestConformance(t *testing.T) {
	queuetest.Run(t, queuetest.Suite{
		Wrap: func(t *testing.T, test func(*testing.T)) { t.Parallel(); test(t) }, // most of it waits for leases
		Start: func(t *testing.T, l queuetest.Limits) func() queue.Queue {
			url := server(t, natsserver.Config{MaxPayload: int32(l.MaxMessage)})
			return func() queue.Queue {
				return open(t, natsq.Config{URL: url, Lease: l.Lease, ReportLease: l.ReportLease,
					MaxTasks: int64(l.MaxTasks), Patience: 2 * time.Second})
			}
		},
	})
}

package natsserver

import (
	"context"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// start runs a server until the test ends or stop is called.
func start(t *testing.T, cfg Config) (url string, stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ready, done := make(chan string, 1), make(chan error, 1)
	cfg.Ready = func(u string) { ready <- u }
	go func() { done <- Run(ctx, cfg) }()
	stopped := false
	stop = func() error {
		cancel()
		if stopped {
			return nil
		}
		stopped = true
		return <-done
	}
	t.Cleanup(func() { _ = stop() })
	select {
	case url = <-ready:
		return url, stop
	case err := <-done:
		t.Fatalf("Run ended before it was ready: %v", err)
		return "", nil
	}
}

func TestRunKeepsStreamsAcrossRestart(t *testing.T) {
	dir := t.TempDir()
	url, stop := start(t, Config{Dir: dir})
	publish(t, url)
	if err := stop(); err != nil {
		t.Fatalf("stop: %v", err)
	}
	url, _ = start(t, Config{Dir: dir})
	nc, err := nats.Connect(url)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, _ := jetstream.New(nc)
	s, err := js.Stream(t.Context(), "S")
	if err != nil {
		t.Fatal(err)
	}
	if n := s.CachedInfo().State.Msgs; n != 1 {
		t.Fatalf("%d messages after the restart, want 1", n)
	}
}

func publish(t *testing.T, url string) {
	t.Helper()
	if !strings.HasPrefix(url, "nats://127.0.0.1:") {
		t.Fatalf("url %q is not on the loopback interface", url)
	}
	nc, err := nats.Connect(url)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, _ := jetstream.New(nc)
	if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "S", Subjects: []string{"s"}}); err != nil {
		t.Fatal(err)
	}
	if _, err := js.Publish(t.Context(), "s", []byte("x")); err != nil {
		t.Fatal(err)
	}
}

func TestRunRefuses(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	used := t.TempDir()
	start(t, Config{Dir: used})
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name string
		cfg  Config
		want string
	}{
		{"no folder", Config{}, "no data folder"},
		{"bad address", Config{Dir: t.TempDir(), Addr: "nowhere"}, `address "nowhere"`},
		{"bad port", Config{Dir: t.TempDir(), Addr: "127.0.0.1:70000"}, "port must be"},
		{"negative payload", Config{Dir: t.TempDir(), MaxPayload: -1}, "negative"},
		{"port in use", Config{Dir: t.TempDir(), Addr: taken.Addr().String()}, "address already in use"},
		{"folder in use", Config{Dir: used}, "in use by another server"},
		{"folder is a file", Config{Dir: file}, "not a directory"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			err := Run(ctx, tt.cfg)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Fatalf("Run: %v, want an error with %q", err, tt.want)
			}
		})
	}
}

func TestRunEndedBeforeReady(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := Run(ctx, Config{Dir: t.TempDir()}); err != nil {
		t.Fatalf("Run with an ended context: %v", err)
	}
}

// TestRunAgainAndAgain starts and stops on one folder, sometimes before the
// server is ready: the lock must be free and the streams whole each time.
func TestRunAgainAndAgain(t *testing.T) {
	dir := t.TempDir()
	for i := range 40 {
		ctx, cancel := context.WithCancel(t.Context())
		ready, done := make(chan struct{}), make(chan error, 1)
		go func() { done <- Run(ctx, Config{Dir: dir, Ready: func(string) { close(ready) }}) }()
		if i%2 == 0 {
			select {
			case <-ready:
			case err := <-done:
				t.Fatalf("round %d: %v", i, err)
			}
		}
		cancel()
		if err := <-done; err != nil {
			t.Fatalf("round %d: %v", i, err)
		}
	}
}

func TestMaxPayload(t *testing.T) {
	url, _ := start(t, Config{Dir: t.TempDir(), MaxPayload: 4096})
	nc, err := nats.Connect(url)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	if got := nc.MaxPayload(); got != 4096 {
		t.Fatalf("max payload %d, want 4096", got)
	}
}

// TestQuiet holds the promise that stdout stays the caller's: fleetctl prints
// one JSON document there.
func TestQuiet(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, stderr := os.Stdout, os.Stderr
	os.Stdout, os.Stderr = w, w
	url, stop := start(t, Config{Dir: t.TempDir()})
	publish(t, url)
	stopErr := stop()
	os.Stdout, os.Stderr = stdout, stderr
	w.Close()
	said, err := io.ReadAll(r)
	if err != nil || stopErr != nil {
		t.Fatal(err, stopErr)
	}
	if len(said) != 0 {
		t.Fatalf("the server wrote %q", said)
	}
}

package natsserver

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/oomfleet/oomfleet/internal/certs"
)

func TestBeyondThisMachineNeedsUsersAndTLS(t *testing.T) {
	for name, c := range map[string]struct {
		cfg Config
		ok  bool
	}{
		"loopback":      {Config{Addr: "127.0.0.1:0"}, true},
		"loopback six":  {Config{Addr: "[::1]:0"}, true},
		"localhost":     {Config{Addr: "localhost:0"}, true},
		"all":           {Config{Addr: "0.0.0.0:4222"}, false},
		"a name":        {Config{Addr: "queue.example:4222"}, false},
		"users only":    {Config{Addr: "0.0.0.0:4222", UsersFile: "u"}, false},
		"TLS only":      {Config{Addr: "0.0.0.0:4222", CertFile: "c", KeyFile: "k"}, false},
		"both":          {Config{Addr: "0.0.0.0:4222", UsersFile: "u", CertFile: "c", KeyFile: "k"}, true},
		"half of a key": {Config{CertFile: "c"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			c.cfg.Dir = "d"
			if err := c.cfg.Validate(); (err == nil) != c.ok {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestUsersFileIsRefused(t *testing.T) {
	for name, text := range map[string]string{"no users": "port: 4222\n", "not a configuration": "authorization {"} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "users.conf")
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			err := Run(t.Context(), Config{Dir: t.TempDir(), UsersFile: path})
			if err == nil || !strings.Contains(err.Error(), "read the users") {
				t.Errorf("got %v", err)
			}
		})
	}
}

// TestTLS: with a certificate the server speaks nothing else.
func TestTLS(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	authority, err := certs.NewAuthority("test", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	if err := authority.Write(at("ca.pem"), at("ca.key")); err != nil {
		t.Fatal(err)
	}
	if err := authority.Issue(at("cert.pem"), at("key.pem"), []string{"127.0.0.1"}, time.Hour); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ready, done := make(chan string, 1), make(chan error, 1)
	go func() {
		done <- Run(ctx, Config{Dir: t.TempDir(), CertFile: at("cert.pem"), KeyFile: at("key.pem"), Ready: func(u string) { ready <- u }})
	}()
	defer func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	var url string
	select {
	case url = <-ready:
	case err := <-done:
		done <- nil
		t.Fatal(err)
	}
	nc, err := nats.Connect(url, nats.RootCAs(at("ca.pem")))
	if err != nil {
		t.Fatal(err)
	}
	if !nc.TLSRequired() {
		t.Error("the connection is plain")
	}
	nc.Close()
	if nc, err := nats.Connect(url); err == nil {
		nc.Close()
		t.Error("a client that does not know the authority was let on")
	}
}

package certs_test

import (
	"crypto/tls"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/oomfleet/oomfleet/internal/certs"
)

func issue(t *testing.T, dir, name string, a *certs.Authority) certs.Files {
	t.Helper()
	f := certs.Files{CA: filepath.Join(dir, "ca.pem"), Cert: filepath.Join(dir, name+".pem"), Key: filepath.Join(dir, name+".key")}
	if err := a.Issue(f.Cert, f.Key, []string{"127.0.0.1", "host.example"}, time.Hour); err != nil {
		t.Fatal(err)
	}
	return f
}

func authority(t *testing.T, dir string) *certs.Authority {
	t.Helper()
	a, err := certs.NewAuthority("test", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Write(filepath.Join(dir, "ca.pem"), filepath.Join(dir, "ca.key")); err != nil {
		t.Fatal(err)
	}
	return a
}

// greet serves one greeting and returns what a client with cfg gets.
func greet(t *testing.T, server, client *tls.Config) error {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		conn, err := tls.NewListener(l, server).Accept()
		if err != nil {
			return
		}
		io.WriteString(conn, "hello")
		conn.Close()
	}()
	defer func() { l.Close(); <-done }()
	conn, err := tls.Dial("tcp", l.Addr().String(), client)
	if err != nil {
		return err
	}
	defer conn.Close()
	_, err = io.ReadFull(conn, make([]byte, 5))
	return err
}

func TestMutual(t *testing.T) {
	dir, other := t.TempDir(), t.TempDir()
	authority(t, dir)
	a, err := certs.ReadAuthority(filepath.Join(dir, "ca.pem"), filepath.Join(dir, "ca.key"))
	if err != nil {
		t.Fatal(err)
	}
	one, two := issue(t, dir, "one", a), issue(t, dir, "two", a)
	stranger := issue(t, other, "stranger", authority(t, other))
	server, err := one.Mutual()
	if err != nil {
		t.Fatal(err)
	}
	member, err := two.Mutual()
	if err != nil {
		t.Fatal(err)
	}
	if err := greet(t, server, member); err != nil {
		t.Errorf("a member: %v", err)
	}
	trusting, err := certs.Files{CA: one.CA}.Client()
	if err != nil {
		t.Fatal(err)
	}
	if err := greet(t, server, trusting); err == nil {
		t.Error("a client without a certificate was served")
	}
	forged, err := certs.Files{CA: one.CA, Cert: stranger.Cert, Key: stranger.Key}.Mutual()
	if err != nil {
		t.Fatal(err)
	}
	if err := greet(t, server, forged); err == nil {
		t.Error("a client of another authority was served")
	}
	// While authorities are changed, one file holds both.
	both := filepath.Join(t.TempDir(), "both.pem")
	for _, ca := range []string{one.CA, stranger.CA} {
		text, err := os.ReadFile(ca)
		if err != nil {
			t.Fatal(err)
		}
		f, err := os.OpenFile(both, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		f.Write(text)
		f.Close()
	}
	changing, err := certs.Files{CA: both, Cert: one.Cert, Key: one.Key}.Mutual()
	if err != nil {
		t.Fatal(err)
	}
	for name, client := range map[string]*tls.Config{"of the old authority": member, "of the new one": forged} {
		if err := greet(t, changing, client); err != nil {
			t.Errorf("a member %s while they change: %v", name, err)
		}
	}
	doubting, err := certs.Files{CA: stranger.CA}.Client()
	if err != nil {
		t.Fatal(err)
	}
	plain, err := certs.Files{Cert: one.Cert, Key: one.Key}.Server()
	if err != nil {
		t.Fatal(err)
	}
	if err := greet(t, plain, doubting); err == nil {
		t.Error("a server of another authority was trusted")
	}
	if err := greet(t, plain, trusting); err != nil {
		t.Errorf("a server alone shows itself: %v", err)
	}
}

// TestServersAlone: a certificate that is made for servers is none of a member.
func TestServersAlone(t *testing.T) {
	dir := t.TempDir()
	a := authority(t, dir)
	one := issue(t, dir, "one", a)
	server, err := one.Mutual()
	if err != nil {
		t.Fatal(err)
	}
	trusting, err := certs.Files{CA: one.CA}.Client()
	if err != nil {
		t.Fatal(err)
	}
	queue := certs.Files{CA: one.CA, Cert: filepath.Join(dir, "queue.pem"), Key: filepath.Join(dir, "queue.key")}
	if err := a.IssueServer(queue.Cert, queue.Key, []string{"127.0.0.1"}, time.Hour); err != nil {
		t.Fatal(err)
	}
	asClient, err := queue.Mutual()
	if err != nil {
		t.Fatal(err)
	}
	if err := greet(t, server, asClient); err == nil {
		t.Error("a server's certificate was served as a client's")
	}
	asServer, err := certs.Files{Cert: queue.Cert, Key: queue.Key}.Server()
	if err != nil {
		t.Fatal(err)
	}
	if err := greet(t, asServer, trusting); err != nil {
		t.Errorf("a server's certificate is not good as one: %v", err)
	}
}

func TestFilesAreRefused(t *testing.T) {
	dir := t.TempDir()
	f := issue(t, dir, "one", authority(t, dir))
	if err := os.Chmod(f.Key, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Mutual(); err == nil || !strings.Contains(err.Error(), "chmod 600") {
		t.Errorf("a key that all may read: %v", err)
	}
	if _, err := (certs.Files{Cert: f.Cert, Key: f.Key}).Mutual(); err == nil || !strings.Contains(err.Error(), "ca_file") {
		t.Errorf("no authority: %v", err)
	}
	if _, err := (certs.Files{}).Server(); err == nil || !strings.Contains(err.Error(), "cert_file") {
		t.Errorf("no certificate: %v", err)
	}
	if _, err := (certs.Files{CA: f.Key}).Client(); err == nil || !strings.Contains(err.Error(), "no certificate") {
		t.Errorf("a key as authority: %v", err)
	}
	open := t.TempDir()
	a := authority(t, open)
	if err := os.Chmod(filepath.Join(open, "ca.key"), 0o640); err != nil {
		t.Fatal(err)
	}
	if _, err := certs.ReadAuthority(filepath.Join(open, "ca.pem"), filepath.Join(open, "ca.key")); err == nil || !strings.Contains(err.Error(), "chmod 600") {
		t.Errorf("an authority's key that others may read: %v", err)
	}
	if err := a.Issue(f.Cert, f.Key, []string{"x"}, time.Hour); err == nil {
		t.Error("an existing key was replaced")
	}
	if err := a.Issue(filepath.Join(dir, "n.pem"), filepath.Join(dir, "n.key"), nil, time.Hour); err == nil {
		t.Error("a certificate for nobody")
	}
}

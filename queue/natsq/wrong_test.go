package natsq_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	natsd "github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/oomfleet/oomfleet/queue"
	"github.com/oomfleet/oomfleet/queue/natsq"
)

// TestFloodLeavesOthersAlone: a credential that pours what it may into its own
// subject, junk and messages beyond the server's limit, is heard as nobody, and
// another agent's report comes through behind it.
func TestFloodLeavesOthersAlone(t *testing.T) {
	ctx := within(t, time.Minute)
	w := newTwoStacks(ctx, t)
	nc := w.raw(t, "mine")
	const flood = 300
	subject := "oomfleet.result." + string(w.mine.Pool()) + ".gpu-1"
	for i := range flood {
		junk := strings.Repeat("[", 10_000)
		if i%2 == 0 {
			junk = strings.Repeat("x", 1+i)
		}
		if err := nc.Publish(subject, []byte(junk)); err != nil {
			t.Fatal(err)
		}
	}
	if err := nc.FlushWithContext(ctx); err != nil {
		t.Fatal(err)
	}
	if err := nc.Publish(subject, make([]byte, nc.MaxPayload()+1)); !errors.Is(err, nats.ErrMaxPayload) {
		t.Errorf("beyond the limit: %v", err)
	}
	if err := open(t, w.as("theirs")).Report(ctx, resultOf(w.theirs, "gpu-2")); err != nil {
		t.Fatal(err)
	}
	for junk := 0; ; junk++ {
		report, err := w.coordinator.NextReport(ctx)
		if err != nil {
			t.Fatalf("after %d: %v", junk, err)
		}
		result, err := report.Result()
		if ackErr := report.Ack(ctx); ackErr != nil {
			t.Fatal(ackErr)
		}
		if err == nil && result.Task == w.theirs.ID {
			if junk < flood { // some may have come twice
				t.Errorf("it came after %d, %d were there before", junk, flood)
			}
			return
		}
		if err == nil || errors.Is(err, queue.ErrForeign) {
			t.Fatalf("junk was read as %+v, %v", result, err)
		}
	}
}

// TestFalseServersAreRefused: an agent shows its key to no server but one whose
// certificate is of its authority, for that host, and still good; nor to one that
// speaks plain text where the address says TLS.
func TestFalseServersAreRefused(t *testing.T) {
	dir := t.TempDir()
	write := func(name, kind string, der []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	key := func() *ecdsa.PrivateKey {
		k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
	authority := func(name string) (*x509.Certificate, *ecdsa.PrivateKey, string) {
		k := key()
		template := &x509.Certificate{SerialNumber: big.NewInt(1), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
			NotBefore: time.Now().Add(-24 * time.Hour), NotAfter: time.Now().Add(24 * time.Hour)}
		der, err := x509.CreateCertificate(rand.Reader, template, template, k.Public(), k)
		if err != nil {
			t.Fatal(err)
		}
		cert, err := x509.ParseCertificate(der)
		if err != nil {
			t.Fatal(err)
		}
		return cert, k, write(name, "CERTIFICATE", der)
	}
	ours, oursKey, ca := authority("ca.pem")
	theirs, theirsKey, _ := authority("other.pem")
	serve := func(by *x509.Certificate, byKey *ecdsa.PrivateKey, ip net.IP, until time.Duration) string {
		k := key()
		template := &x509.Certificate{SerialNumber: big.NewInt(2), NotBefore: time.Now().Add(-2 * time.Hour), NotAfter: time.Now().Add(until),
			KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}, IPAddresses: []net.IP{ip}}
		der, err := x509.CreateCertificate(rand.Reader, template, by, k.Public(), byKey)
		if err != nil {
			t.Fatal(err)
		}
		url := foreign(t, &natsd.Options{JetStream: true, TLS: true, TLSTimeout: 10,
			TLSConfig: &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: k}}}})
		return "tls://" + url[strings.Index(url, "://")+3:]
	}
	here := net.IPv4(127, 0, 0, 1)
	if q, err := natsq.Open(t.Context(), natsq.Config{URL: serve(ours, oursKey, here, time.Hour), Identity: natsq.Identity{CAFile: ca}}); err != nil {
		t.Fatalf("a good server: %v", err)
	} else {
		q.Close()
	}
	plain := foreign(t, &natsd.Options{JetStream: true})
	for name, url := range map[string]string{
		"another authority": serve(theirs, theirsKey, here, time.Hour),
		"another host":      serve(ours, oursKey, net.IPv4(127, 0, 0, 9), time.Hour),
		"its time is over":  serve(ours, oursKey, here, -time.Hour),
		"plain text":        "tls://" + strings.TrimPrefix(plain, "nats://"),
	} {
		t.Run(name, func(t *testing.T) {
			q, err := natsq.Open(t.Context(), natsq.Config{URL: url, Identity: natsq.Identity{CAFile: ca}})
			if err == nil {
				q.Close()
				t.Error("it was believed")
			}
		})
	}
}

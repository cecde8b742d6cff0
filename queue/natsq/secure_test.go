package natsq_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	natsd "github.com/nats-io/nats-server/v2/server"

	"github.com/oomfleet/oomfleet/queue/natsq"
)

// foreign runs a server as an operator would set it up, which natsserver does not.
func foreign(t *testing.T, opts *natsd.Options) string {
	t.Helper()
	opts.Host, opts.Port, opts.NoSigs, opts.NoLog = "127.0.0.1", natsd.RANDOM_PORT, true, true
	opts.StoreDir = t.TempDir()
	s, err := natsd.NewServer(opts)
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	if !s.ReadyForConnections(patience) {
		t.Fatal("the server is not ready")
	}
	return s.ClientURL()
}

func TestOpenCredentials(t *testing.T) {
	addr := strings.TrimPrefix(foreign(t, &natsd.Options{JetStream: true, Username: "fleet", Password: "right"}), "nats://")
	addr = addr[strings.LastIndexByte(addr, '@')+1:]
	open(t, natsq.Config{URL: "nats://fleet:right@" + addr})
	_, err := natsq.Open(t.Context(), natsq.Config{URL: "nats://fleet:wrong@" + addr})
	if err == nil || !strings.Contains(err.Error(), "nats://"+addr+" refuses these credentials") || strings.Contains(err.Error(), "wrong") {
		t.Fatalf("Open with a wrong password: %v", err)
	}
}

func TestOpenWithoutJetStream(t *testing.T) {
	url := foreign(t, &natsd.Options{})
	_, err := natsq.Open(t.Context(), natsq.Config{URL: url})
	if err == nil || !strings.Contains(err.Error(), url) || !strings.Contains(err.Error(), "-js") {
		t.Fatalf("Open: %v, want what to do about it", err)
	}
}

func TestOpenTLS(t *testing.T) {
	dir := t.TempDir()
	cert := selfSigned(t, dir)
	pool := x509.NewCertPool()
	pool.AddCert(cert.Leaf)
	url := foreign(t, &natsd.Options{JetStream: true, TLS: true, TLSTimeout: 60, TLSVerify: true, TLSConfig: &tls.Config{
		Certificates: []tls.Certificate{cert}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: pool,
	}})
	ca, key := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	q := open(t, natsq.Config{URL: url, Identity: natsq.Identity{CAFile: ca, CertFile: ca, KeyFile: key}})
	if _, err := q.Stats(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := natsq.Open(t.Context(), natsq.Config{URL: url, Identity: natsq.Identity{CAFile: ca}}); err == nil {
		t.Error("Open without a client certificate: no error")
	}
	if _, err := natsq.Open(t.Context(), natsq.Config{URL: url, Identity: natsq.Identity{CertFile: ca, KeyFile: key}}); err == nil {
		t.Error("Open without trust in the server: no error")
	}
}

// selfSigned writes a certificate for 127.0.0.1 that signs itself.
func selfSigned(t *testing.T, dir string) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "queue"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	certPEM := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	keyPEM := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER})
	for name, data := range map[string][]byte{"cert.pem": certPEM, "key.pem": keyPEM} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cert, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		t.Fatal(err)
	}
	return cert
}

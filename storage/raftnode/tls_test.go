package raftnode

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"math/big"
	"net"
	"testing"
	"time"
)

// mutual is a certificate of its own authority for the loopback address, asked
// of both sides.
func mutual(t *testing.T) *tls.Config {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	authority := x509.NewCertPool()
	authority.AddCert(cert)
	return &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}},
		RootCAs: authority, ClientCAs: authority, ClientAuth: tls.RequireAndVerifyClientCert, MinVersion: tls.VersionTLS13}
}

func TestClusterOverTLS(t *testing.T) {
	t.Parallel()
	secure := mutual(t)
	nodes := cluster(t, configs(t, t.TempDir(), t.TempDir(), t.TempDir()), secure)
	l := leader(t, nodes...)
	propose(t, l, sweep("a", 1))
	for _, n := range others(nodes, l) {
		caughtUp(t, n, l)
	}
	t.Run("a stranger is not let in", func(t *testing.T) {
		conn, err := tls.Dial("tcp", l.Addr(), &tls.Config{RootCAs: secure.RootCAs, MinVersion: tls.VersionTLS13})
		if err != nil {
			return
		}
		defer conn.Close()
		if _, err := conn.Read(make([]byte, 1)); err == nil { // TLS 1.3 refuses with the first read
			t.Fatal("a client without a certificate was answered")
		}
	})
}

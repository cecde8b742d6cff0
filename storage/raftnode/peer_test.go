package raftnode

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"log/slog"
	"math/big"
	"net"
	"testing"
	"time"

	"github.com/hashicorp/raft"
)

// authority signs certificates for the tests of who may be a peer.
type authority struct {
	t    *testing.T
	key  *ecdsa.PrivateKey
	cert *x509.Certificate
	pool *x509.CertPool
}

func newAuthority(t *testing.T) authority {
	t.Helper()
	a := authority{t: t, pool: x509.NewCertPool()}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign, Subject: pkix.Name{CommonName: "authority"}}
	der := a.sign(template, template)
	var err error
	if a.cert, err = x509.ParseCertificate(der.Certificate[0]); err != nil {
		t.Fatal(err)
	}
	a.key = der.PrivateKey.(*ecdsa.PrivateKey)
	a.pool.AddCert(a.cert)
	return a
}

// sign makes a key and its certificate; by is nil for the authority's own.
func (a authority) sign(template, parent *x509.Certificate) tls.Certificate {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	signer := a.key
	if signer == nil {
		signer = key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err != nil {
		a.t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// peer are the settings of whoever holds a certificate of a, made by change out
// of a member's.
func (a authority) peer(trusts authority, change func(*x509.Certificate)) *tls.Config {
	template := &x509.Certificate{SerialNumber: big.NewInt(2), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	if change != nil {
		change(template)
	}
	return &tls.Config{Certificates: []tls.Certificate{a.sign(template, a.cert)}, RootCAs: trusts.pool, ClientCAs: trusts.pool,
		ClientAuth: tls.RequireAndVerifyClientCert, MinVersion: tls.VersionTLS13}
}

// TestForeignPeerIsRefused: of those who hold a certificate, a member alone is
// heard on the raft port: not the queue's or an API client's of the same authority,
// not one of another authority, none whose time is over, none made for servers.
func TestForeignPeerIsRefused(t *testing.T) {
	t.Parallel()
	fleet := newAuthority(t)
	nodes := cluster(t, configs(t, t.TempDir(), t.TempDir(), t.TempDir()), fleet.peer(fleet, nil))
	l := leader(t, nodes...)
	propose(t, l, sweep("a", 1))
	vote := func(secure *tls.Config) error {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		wire, err := listen(Config{ID: "n1", Listener: listener, TLS: secure})
		if err != nil {
			t.Fatal(err)
		}
		intruder := raft.NewNetworkTransportWithConfig(&raft.NetworkTransportConfig{Stream: wire, MaxPool: 1, Timeout: 10 * time.Second,
			Logger: newLogger(slog.New(slog.DiscardHandler))})
		defer intruder.Close() //nolint:errcheck // the stream's listener is closed with it
		// A vote under the present term changes nothing, so a member's may be asked too.
		return intruder.RequestVote(raft.ServerID(l.cfg.ID), raft.ServerAddress(l.Addr()), &raft.RequestVoteRequest{
			RPCHeader: raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax, ID: []byte("n9"), Addr: []byte("127.0.0.1:9")}, Term: 1}, &raft.RequestVoteResponse{})
	}
	if err := vote(fleet.peer(fleet, nil)); err != nil {
		t.Fatalf("a member is not heard: %v", err)
	}
	named := func(name string) func(*x509.Certificate) {
		return func(c *x509.Certificate) {
			c.IPAddresses, c.DNSNames, c.Subject.CommonName = nil, []string{name}, "127.0.0.1"
		}
	}
	for what, secure := range map[string]*tls.Config{
		"the queue's certificate":      fleet.peer(fleet, named("queue.example")),
		"one for another address":      fleet.peer(fleet, func(c *x509.Certificate) { c.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 2)} }),
		"one for nobody":               fleet.peer(fleet, func(c *x509.Certificate) { c.IPAddresses = nil }),
		"one for servers alone":        fleet.peer(fleet, func(c *x509.Certificate) { c.ExtKeyUsage = c.ExtKeyUsage[:1] }),
		"one whose time is over":       fleet.peer(fleet, func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Minute) }),
		"one of another authority":     newAuthority(t).peer(fleet, nil),
		"one that signs itself":        authority{t: t}.selfSigned(fleet),
		"a member's name in the other": newAuthority(t).peer(fleet, named("127.0.0.1")),
	} {
		if err := vote(secure); err == nil {
			t.Errorf("%s: it was answered", what)
		}
	}
	leader(t, nodes...) // one is there still, or again: a busy machine may have cost it its term
}

func (a authority) selfSigned(trusts authority) *tls.Config {
	template := &x509.Certificate{SerialNumber: big.NewInt(3), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	return &tls.Config{Certificates: []tls.Certificate{a.sign(template, template)}, RootCAs: trusts.pool, MinVersion: tls.VersionTLS13}
}

// TestPeersOfMembersThatMoved: the log's addresses count beside the file's.
func TestPeersOfMembersThatMoved(t *testing.T) {
	t.Parallel()
	cfgs := configs(t, t.TempDir())
	n := open(t, cfgs[0])
	ready(t, leader(t, n))
	hosts := n.memberHosts()
	if len(hosts) == 0 || hosts[0] != "127.0.0.1" {
		t.Fatalf("hosts %v", hosts)
	}
	if f := n.raft.AddNonvoter("n2", "moved.example:7300", 0, 0); f.Error() != nil {
		t.Fatal(f.Error())
	}
	fleet := newAuthority(t)
	moved := fleet.sign(&x509.Certificate{SerialNumber: big.NewInt(4), DNSNames: []string{"moved.example"}}, fleet.cert)
	cert, err := x509.ParseCertificate(moved.Certificate[0])
	if err != nil {
		t.Fatal(err)
	}
	peer := tls.ConnectionState{PeerCertificates: []*x509.Certificate{cert}}
	if err := ofMember(peer, hosts); err == nil {
		t.Error("a stranger was taken for a member")
	}
	if err := ofMember(peer, n.memberHosts()); err != nil {
		t.Error(err)
	}
}

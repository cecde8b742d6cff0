// Package certs owns the making of a fleet's own authority and of the
// certificates that it signs, and the reading of both into TLS settings. It
// refuses to be a public authority: what it makes is for the fleet's own ports
// (API, raft, queue), signed by one key that stays with the operator. Whoever has
// an authority already uses its files; nothing here is required.
//
// Start reading at NewAuthority, then Server and Mutual.
package certs

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/oomfleet/oomfleet/internal/secret"
)

// backdate lets clocks that are a little behind accept a new certificate.
const backdate = time.Hour

// Authority signs certificates.
type Authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  []byte
}

// NewAuthority makes an authority that is good for a time.
func NewAuthority(name string, valid time.Duration) (*Authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make the authority's key: %w", err)
	}
	template, err := newTemplate(name, valid)
	if err != nil {
		return nil, err
	}
	template.IsCA, template.BasicConstraintsValid, template.MaxPathLenZero = true, true, true
	template.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageCRLSign
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("make the authority: %w", err)
	}
	return newAuthority(der, key)
}

func newAuthority(der []byte, key *ecdsa.PrivateKey) (*Authority, error) {
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("read the authority: %w", err)
	}
	return &Authority{cert, key, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})}, nil
}

// ReadAuthority reads what Write wrote. It refuses a key that others than its
// owner may read: whoever has it signs members of the fleet.
func ReadAuthority(certFile, keyFile string) (*Authority, error) {
	if err := secret.Private(keyFile); err != nil {
		return nil, fmt.Errorf("read the authority's key: %w", err)
	}
	certText, err := os.ReadFile(certFile)
	if err != nil {
		return nil, fmt.Errorf("read the authority: %w", err)
	}
	keyText, err := os.ReadFile(keyFile)
	if err != nil {
		return nil, fmt.Errorf("read the authority's key: %w", err)
	}
	certBlock, _ := pem.Decode(certText)
	keyBlock, _ := pem.Decode(keyText)
	if certBlock == nil || keyBlock == nil {
		return nil, fmt.Errorf("read the authority: %s and %s are not both in PEM form", certFile, keyFile)
	}
	parsed, err := x509.ParsePKCS8PrivateKey(keyBlock.Bytes)
	if err != nil {
		return nil, errors.New("read the authority's key: it is no PKCS #8 key")
	}
	key, ok := parsed.(*ecdsa.PrivateKey)
	if !ok {
		return nil, fmt.Errorf("read the authority's key: it is a %T, not an ECDSA key", parsed)
	}
	return newAuthority(certBlock.Bytes, key)
}

// Write stores the authority's certificate, for all, and its key, for the owner.
func (a *Authority) Write(certFile, keyFile string) error {
	if err := writeKey(keyFile, a.key); err != nil {
		return err
	}
	return writeNew(certFile, a.pem, 0o644)
}

// Issue writes a certificate for hosts (names or addresses) and its key. It is
// good as a server and as a client, as raft's members need.
func (a *Authority) Issue(certFile, keyFile string, hosts []string, valid time.Duration) error {
	return a.issue(files{certFile, keyFile}, hosts, valid, x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth)
}

// IssueServer is Issue for what is a server alone, as the queue and the trace
// store are: whoever steals its key is no raft member, not even on its host.
func (a *Authority) IssueServer(certFile, keyFile string, hosts []string, valid time.Duration) error {
	return a.issue(files{certFile, keyFile}, hosts, valid, x509.ExtKeyUsageServerAuth)
}

// files are where a certificate and its key go.
type files struct{ cert, key string }

func (a *Authority) issue(to files, hosts []string, valid time.Duration, usages ...x509.ExtKeyUsage) error {
	if len(hosts) == 0 {
		return errors.New("issue a certificate: name at least one host")
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return fmt.Errorf("make a certificate's key: %w", err)
	}
	template, err := newTemplate(hosts[0], valid)
	if err != nil {
		return err
	}
	template.KeyUsage = x509.KeyUsageDigitalSignature
	template.ExtKeyUsage = usages
	for _, host := range hosts {
		if ip := net.ParseIP(host); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
			continue
		}
		template.DNSNames = append(template.DNSNames, host)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key)
	if err != nil {
		return fmt.Errorf("issue a certificate: %w", err)
	}
	if err := writeKey(to.key, key); err != nil {
		return err
	}
	return writeNew(to.cert, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o644)
}

func newTemplate(name string, valid time.Duration) (*x509.Certificate, error) {
	if valid <= 0 {
		return nil, fmt.Errorf("make a certificate: a validity of %s is none", valid)
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, fmt.Errorf("draw a serial number: %w", err)
	}
	now := time.Now()
	return &x509.Certificate{SerialNumber: serial, Subject: pkix.Name{CommonName: name},
		NotBefore: now.Add(-backdate), NotAfter: now.Add(valid)}, nil
}

func writeKey(path string, key *ecdsa.PrivateKey) error {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return fmt.Errorf("encode a key: %w", err)
	}
	return writeNew(path, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), 0o600)
}

// writeNew never replaces a file: a key that is overwritten cannot be had back.
func writeNew(path string, text []byte, mode os.FileMode) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return fmt.Errorf("write: %w", err)
	}
	_, err = f.Write(text)
	if err := errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}

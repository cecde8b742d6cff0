package certs

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"

	"github.com/oomfleet/oomfleet/internal/secret"
)

// Files are one party's PEM files. CA is whom it trusts, Cert and Key who it is.
type Files struct {
	CA, Cert, Key string
}

// Server returns the settings of a server that shows Cert. With a CA it also asks
// every client for a certificate of that authority.
func (f Files) Server() (*tls.Config, error) {
	cert, err := f.pair()
	if err != nil {
		return nil, err
	}
	cfg := &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{cert}}
	if f.CA != "" {
		if cfg.ClientCAs, err = f.Pool(); err != nil {
			return nil, err
		}
		cfg.ClientAuth = tls.RequireAndVerifyClientCert
	}
	return cfg, nil
}

// Client returns the settings of a client that trusts CA alone; without a CA it
// trusts what the system does.
func (f Files) Client() (*tls.Config, error) {
	cfg := &tls.Config{MinVersion: tls.VersionTLS12}
	if f.CA == "" {
		return cfg, nil
	}
	var err error
	cfg.RootCAs, err = f.Pool()
	return cfg, err
}

// Mutual returns settings for a port where both sides show a certificate of CA:
// as a server and as a client in one.
func (f Files) Mutual() (*tls.Config, error) {
	if f.CA == "" {
		return nil, errors.New("mutual TLS needs the authority of the others: name its ca_file")
	}
	cfg, err := f.Server()
	if err != nil {
		return nil, err
	}
	cfg.MinVersion = tls.VersionTLS13
	cfg.RootCAs = cfg.ClientCAs
	return cfg, nil
}

func (f Files) pair() (tls.Certificate, error) {
	if f.Cert == "" || f.Key == "" {
		return tls.Certificate{}, errors.New("a certificate needs cert_file and key_file")
	}
	if err := secret.Private(f.Key); err != nil {
		return tls.Certificate{}, err
	}
	cert, err := tls.LoadX509KeyPair(f.Cert, f.Key)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("read certificate %s and key %s: %w", f.Cert, f.Key, err)
	}
	return cert, nil
}

// Pool reads CA as a pool that holds nothing else.
func (f Files) Pool() (*x509.CertPool, error) {
	text, err := os.ReadFile(f.CA)
	if err != nil {
		return nil, fmt.Errorf("read the authority: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("%s holds no certificate in PEM form", f.CA)
	}
	return pool, nil
}

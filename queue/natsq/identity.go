package natsq

import (
	"crypto/ed25519"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go"

	"github.com/oomfleet/oomfleet/internal/secret"
)

// Identity is who a client is and whom it trusts. The zero value is nobody in
// particular, over plain TCP.
type Identity struct {
	// NKeyFile holds the seed of an nkey, CredsFile NATS credentials (a JWT
	// and its seed): at most one of them. Only their owner may read them.
	NKeyFile, CredsFile string
	// Inbox begins the subjects that answers come to, where the permissions
	// name one; empty is _INBOX.<public key> for an nkey, else _INBOX.
	Inbox string
	// CAFile, CertFile and KeyFile are PEM files for TLS: whom to trust, and
	// the client's own certificate.
	CAFile, CertFile, KeyFile string
}

func (i Identity) problems() []error {
	var errs []error
	if (i.CertFile == "") != (i.KeyFile == "") {
		errs = append(errs, errors.New("cert file and key file go together"))
	}
	if i.NKeyFile != "" && i.CredsFile != "" {
		errs = append(errs, errors.New("an nkey file and a creds file are two identities: keep one"))
	}
	return errs
}

// inboxOf is where the answers for one nkey come to: a place that no other
// credential may listen at.
func inboxOf(nkey string) string { return "_INBOX." + nkey }

// identity returns the options that show who the client is. It reads the seed
// once, for its public half; the connection reads it again whenever it signs.
func (i Identity) identity() ([]nats.Option, error) {
	var opts []nats.Option
	inbox := i.Inbox
	for _, path := range []string{i.NKeyFile, i.CredsFile, i.KeyFile} {
		if path == "" {
			continue
		}
		if err := secret.Private(path); err != nil {
			return nil, err
		}
	}
	switch {
	case i.NKeyFile != "":
		seed, err := secret.ReadFile(i.NKeyFile)
		if err != nil {
			return nil, err
		}
		raw, err := decodeSeed(seed)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", i.NKeyFile, err)
		}
		option, err := nats.NkeyOptionFromSeed(i.NKeyFile)
		if err != nil {
			return nil, fmt.Errorf("read the seed in %s: %w", i.NKeyFile, err)
		}
		opts = append(opts, option)
		if inbox == "" {
			inbox = inboxOf(publicNKey(ed25519.NewKeyFromSeed(raw)))
		}
	case i.CredsFile != "":
		opts = append(opts, nats.UserCredentials(i.CredsFile))
	}
	if inbox != "" {
		opts = append(opts, nats.CustomInboxPrefix(inbox))
	}
	if i.CAFile != "" {
		opts = append(opts, nats.RootCAs(i.CAFile))
	}
	if i.CertFile != "" {
		opts = append(opts, nats.ClientCert(i.CertFile, i.KeyFile))
	}
	return opts, nil
}

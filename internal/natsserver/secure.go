package natsserver

import (
	"errors"
	"fmt"

	"github.com/nats-io/nats-server/v2/server"
)

// handshake is how long a client may take for TLS, in seconds.
const handshake = 5

// secure puts the users and the certificate of cfg into opts.
func secure(cfg Config, opts *server.Options) error {
	if cfg.CertFile != "" {
		tls, err := server.GenTLSConfig(&server.TLSConfigOpts{CertFile: cfg.CertFile, KeyFile: cfg.KeyFile})
		if err != nil {
			return fmt.Errorf("read the certificate: %w", err)
		}
		opts.TLS, opts.TLSConfig, opts.TLSTimeout = true, tls, handshake
	}
	if cfg.UsersFile == "" {
		return nil
	}
	named, err := server.ProcessConfigFile(cfg.UsersFile)
	if err != nil {
		return fmt.Errorf("read the users: %w", err)
	}
	if len(named.Nkeys)+len(named.Users) == 0 {
		return errors.New("read the users: the file's authorization block names none, and everybody would be let in")
	}
	opts.Nkeys, opts.Users = named.Nkeys, named.Users
	return nil
}

package main

import (
	"crypto/tls"
	"fmt"
	"net"
	"os"

	"github.com/oomfleet/oomfleet/coordinator/api"
	"github.com/oomfleet/oomfleet/internal/certs"
	"github.com/oomfleet/oomfleet/internal/config"
	"github.com/oomfleet/oomfleet/internal/secret"
	"github.com/oomfleet/oomfleet/queue/natsq"
)

// The environment variables of a client's access. A token has no flag: command
// lines are in the list of processes for all to read.
const (
	envToken     = "OOMFLEET_TOKEN"
	envTokenFile = "OOMFLEET_TOKEN_FILE"
	envCA        = "OOMFLEET_CA"
)

// access reads how this user shows who they are.
func (a *app) access() (api.Access, error) {
	access := api.Access{Insecure: a.insecure, Token: secret.Of(os.Getenv(envToken))}
	path := a.tokenFile
	if path == "" && access.Token.Empty() {
		path = os.Getenv(envTokenFile)
	}
	if path != "" {
		var err error
		if access.Token, err = secret.ReadFile(path); err != nil {
			return access, fmt.Errorf("the token: %w", err)
		}
	}
	ca := a.ca
	if ca == "" {
		ca = os.Getenv(envCA)
	}
	if ca == "" {
		return access, nil
	}
	var err error
	if access.TLS, err = (certs.Files{CA: ca}).Client(); err != nil {
		return access, fmt.Errorf("whom to trust (--ca): %w", err)
	}
	return access, nil
}

func filesOf(f config.TLSFiles) certs.Files {
	return certs.Files{CA: f.CAFile, Cert: f.CertFile, Key: f.KeyFile}
}

// queueConfig is how a process of the fleet reaches the queue.
func queueConfig(q config.Queue, name string) natsq.Config {
	return natsq.Config{URL: q.URL, Name: name, Lease: q.Lease, Replicas: q.Replicas, Identity: natsq.Identity{NKeyFile: q.SeedFile(), CredsFile: q.CredsFile,
		Inbox: q.Inbox, CAFile: q.CAFile, CertFile: q.CertFile, KeyFile: q.KeyFile}}
}

// apiGuards are the parts of a coordinator's API that keep strangers out.
type apiGuards struct {
	tokens *api.Tokens
	peers  api.Access
	tls    *tls.Config // nil for plain http
}

// guardAPI reads the API's guards. A follower trusts the same authority as the
// API's clients; without one, what the system trusts.
func (a *app) guardAPI(fleet *config.Fleet) (apiGuards, error) {
	g := apiGuards{peers: api.Access{Insecure: fleet.Insecure}}
	files := filesOf(fleet.API.TLSFiles)
	var err error
	if fleet.API.TokensFile != "" {
		if g.tokens, err = api.OpenTokens(fleet.API.TokensFile, a.logger().With("component", "api")); err != nil {
			return g, wrongInput(err)
		}
	}
	if files.Cert == "" {
		return g, nil
	}
	if g.peers.TLS, err = files.Client(); err != nil {
		return g, wrongInput(fmt.Errorf("api: %w", err))
	}
	files.CA = "" // clients show a token, not a certificate
	if g.tls, err = files.Server(); err != nil {
		return g, wrongInput(fmt.Errorf("api: %w", err))
	}
	return g, nil
}

// wrap makes a listener speak TLS if the API does.
func (g apiGuards) wrap(l net.Listener) net.Listener {
	if g.tls == nil {
		return l
	}
	secure := g.tls.Clone()
	secure.NextProtos = []string{"h2", "http/1.1"}
	return tls.NewListener(l, secure)
}

// raftTLS is the raft port's mutual TLS; nil where the configuration has none.
func raftTLS(fleet *config.Fleet) (*tls.Config, error) {
	if fleet.Raft == (config.TLSFiles{}) {
		return nil, nil
	}
	cfg, err := filesOf(fleet.Raft).Mutual()
	if err != nil {
		return nil, wrongInput(fmt.Errorf("raft: %w", err))
	}
	return cfg, nil
}

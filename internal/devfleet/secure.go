package devfleet

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/oomfleet/oomfleet/agent"
	"github.com/oomfleet/oomfleet/agent/sim"
	"github.com/oomfleet/oomfleet/coordinator/api"
	"github.com/oomfleet/oomfleet/internal/certs"
	"github.com/oomfleet/oomfleet/internal/config"
	"github.com/oomfleet/oomfleet/internal/secret"
	"github.com/oomfleet/oomfleet/proto"
	"github.com/oomfleet/oomfleet/queue/natsq"
)

// validity is how long certificates of a fleet on one machine are good for.
const validity = 365 * 24 * time.Hour

// keyFile is where a key of the fleet lies. The folder is the owner's alone.
func (f *Fleet) keyFile(name string) string { return filepath.Join(f.dir, "keys", name) }

func agentName(i int) string { return fmt.Sprintf("agent-%d", i) }

// simulated are the drivers of the fleet's simulated agents, in turn.
func (f *Fleet) simulated() []config.SimulatedDriver {
	if f.cfg.Agent != AgentSim {
		return nil
	}
	if len(f.cfg.Drivers) > 0 {
		return f.cfg.Drivers
	}
	return []config.SimulatedDriver{{Driver: RecordedDriver}, {Driver: SyntheticDriver, ContextOffset: SyntheticOffset}}
}

// makeGuards draws what keeps the parties of the fleet apart: a user of the
// queue for each, and with Secure an authority, a certificate and a token. What
// is there from an earlier start is kept.
func (f *Fleet) makeGuards() error {
	if err := os.MkdirAll(f.keyFile(""), 0o700); err != nil {
		return fmt.Errorf("make the folder for keys: %w", err)
	}
	public, err := natsq.EnsureSeed(f.keyFile("coordinator.nk"))
	if err != nil {
		return err
	}
	users := []natsq.User{natsq.CoordinatorUser(public)}
	for i := range f.cfg.Agents {
		if public, err = natsq.EnsureSeed(f.keyFile(agentName(i) + ".nk")); err != nil {
			return err
		}
		grant, err := f.grant(i)
		if err != nil {
			return err
		}
		users = append(users, natsq.AgentUser(public, grant))
	}
	if err := os.WriteFile(f.keyFile("users.conf"), []byte(natsq.Authorization(users)), 0o600); err != nil {
		return fmt.Errorf("write the queue's users: %w", err)
	}
	if !f.cfg.Secure {
		return nil
	}
	if err := f.makeCertificate(); err != nil {
		return err
	}
	return f.makeToken()
}

// grant is what agent i is for. A GPU agent's card
// is not known yet: it may pull whatever its card turns out to be.
func (f *Fleet) grant(i int) (natsq.Grant, error) {
	drivers := f.simulated()
	if len(drivers) == 0 {
		return natsq.Grant{}, nil
	}
	driver := drivers[i%len(drivers)]
	if at := slices.Index(f.cfg.AgentArgs, "--sim-driver"); at >= 0 && at+1 < len(f.cfg.AgentArgs) {
		named := slices.IndexFunc(drivers, func(d config.SimulatedDriver) bool { return d.Driver == f.cfg.AgentArgs[at+1] })
		driver = drivers[max(named, 0)] // an unknown one is the agent's to refuse
	}
	offset, err := driver.Offset()
	card := sim.Config{Driver: driver.Driver, ContextOffset: offset, Card: i}
	return natsq.Grant{Pools: []proto.Pool{proto.PoolOf(proto.OriginSimulated, sim.GPU, driver.Driver)}, Agent: agent.IDOf(card.UUID())}, err
}

func (f *Fleet) makeCertificate() error {
	_, err := os.Stat(f.keyFile("fleet.pem"))
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	authority, err := certs.NewAuthority("OOMFleet on one machine", validity)
	if err != nil {
		return err
	}
	if err := authority.Write(f.keyFile("ca.pem"), f.keyFile("ca.key")); err != nil {
		return err
	}
	return authority.Issue(f.keyFile("fleet.pem"), f.keyFile("fleet.key"), []string{"127.0.0.1", "localhost"}, validity)
}

func (f *Fleet) makeToken() error {
	_, err := os.Stat(f.keyFile("tokens"))
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	token, holder, err := api.NewToken("dev", api.RoleAdmin, time.Time{})
	if err != nil {
		return err
	}
	if err := os.WriteFile(f.TokenFile(), []byte(token.Reveal()+"\n"), 0o600); err != nil {
		return fmt.Errorf("write the token: %w", err)
	}
	if err := os.WriteFile(f.keyFile("tokens"), []byte(holder.Line()+"\n"), 0o600); err != nil {
		return fmt.Errorf("write the token's line: %w", err)
	}
	return nil
}

// scheme begins the addresses of the API and the trace store.
func (f *Fleet) scheme() string {
	if f.cfg.Secure {
		return "https://"
	}
	return "http://"
}

func (f *Fleet) tlsFlags() []string {
	if !f.cfg.Secure {
		return nil
	}
	return []string{"--cert", f.keyFile("fleet.pem"), "--key", f.keyFile("fleet.key")}
}

func (f *Fleet) queueFlags() []string {
	return append([]string{"--users", f.keyFile("users.conf")}, f.tlsFlags()...)
}

// guardConfig names the keys in the fleet's configuration. An agent's own seed
// is in its environment, see agentSpec.
func (f *Fleet) guardConfig() {
	f.conf.Queue.NKeyFile = f.keyFile("coordinator.nk")
	if !f.cfg.Secure {
		return
	}
	files := config.TLSFiles{CAFile: f.keyFile("ca.pem"), CertFile: f.keyFile("fleet.pem"), KeyFile: f.keyFile("fleet.key")}
	f.conf.Queue.CAFile, f.conf.Traces.CAFile = files.CAFile, files.CAFile
	f.conf.Raft = files
	f.conf.API = config.API{TLSFiles: files, TokensFile: f.keyFile("tokens")}
}

// TokenFile and CAFile are how a client of a secure fleet is let in; they exist
// once it is ready.
func (f *Fleet) TokenFile() string { return f.keyFile("token") }

// CAFile is the authority that signed the fleet's certificate.
func (f *Fleet) CAFile() string { return f.keyFile("ca.pem") }

// Access is a client's access to the fleet; empty unless it is secure.
func (f *Fleet) Access() (api.Access, error) {
	if !f.cfg.Secure {
		return api.Access{}, nil
	}
	token, err := secret.ReadFile(f.TokenFile())
	if err != nil {
		return api.Access{}, err
	}
	var trust *tls.Config
	if trust, err = (certs.Files{CA: f.CAFile()}).Client(); err != nil {
		return api.Access{}, err
	}
	return api.Access{Token: token, TLS: trust}, nil
}

package config

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"strings"
)

// EnvQueueKeyFile names a file with the seed of this process's own queue user,
// in place of queue.nkey_file: for several parties on one machine.
const EnvQueueKeyFile = "OOMFLEET_QUEUE_NKEY_FILE"

// TLSFiles are PEM files: whom to trust, and who this machine is.
type TLSFiles struct {
	CAFile   string `yaml:"ca_file,omitempty"`
	CertFile string `yaml:"cert_file,omitempty"`
	KeyFile  string `yaml:"key_file,omitempty"`
}

// API says how the coordinators' API is guarded.
type API struct {
	// CAFile is the authority of the other coordinators, CertFile and KeyFile
	// are this one's; needed where the coordinators' api begins with https.
	TLSFiles `yaml:",inline"`
	// TokensFile holds the hashes of the tokens that may ask; empty lets
	// everybody.
	TokensFile string `yaml:"tokens_file,omitempty"`
}

// Identity are the files by which a process shows the queue who it is. The same
// paths on every machine may hold other seeds.
type Identity struct {
	// NKeyFile holds the seed of an nkey, CredsFile NATS credentials; at most
	// one of them.
	NKeyFile  string `yaml:"nkey_file,omitempty"`
	CredsFile string `yaml:"creds_file,omitempty"`
	// Inbox begins the subjects for answers, where credentials name one.
	Inbox string `yaml:"inbox,omitempty"`
}

// SeedFile is the seed's file: the environment's where it names one.
func (i Identity) SeedFile() string {
	if path := os.Getenv(EnvQueueKeyFile); path != "" {
		return path
	}
	return i.NKeyFile
}

// guards returns what is wrong with the files that guard the fleet.
func (f *Fleet) guards() []error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	for _, files := range []struct {
		name string
		TLSFiles
	}{{"queue", f.Queue.TLSFiles}, {"api", f.API.TLSFiles}, {"raft", f.Raft}} {
		if (files.CertFile == "") != (files.KeyFile == "") {
			bad("%s.cert_file and %s.key_file go together", files.name, files.name)
		}
	}
	if f.Raft != (TLSFiles{}) && (f.Raft.CAFile == "" || f.Raft.CertFile == "") {
		bad("raft needs ca_file, cert_file and key_file: its members show one another who they are")
	}
	if f.Queue.NKeyFile != "" && f.Queue.CredsFile != "" {
		bad("queue has both nkey_file and creds_file: keep one")
	}
	for i, c := range f.Coordinators {
		if strings.HasPrefix(c.API, "https://") && f.API.CertFile == "" {
			bad("coordinators[%d].api is https: name api.cert_file and api.key_file", i)
		}
		if strings.HasPrefix(c.API, "http://") && f.API.CertFile != "" {
			bad("coordinators[%d].api is http and there is an api.cert_file: write https", i)
		}
	}
	return errs
}

// ErrExposed is returned for a fleet that others on its network could join.
var ErrExposed = errors.New("the fleet leaves this machine without protection")

// Exposed reports, all at once, where the fleet leaves this machine and anybody
// on the way could read or write; nil when it does not, or when the file says
// insecure: true. It is asked when a coordinator or an agent starts.
func (f *Fleet) Exposed() error {
	if f.Insecure {
		return nil
	}
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	for _, c := range f.Coordinators {
		u, err := url.Parse(c.API)
		if err != nil || loopback(u.Host) {
			continue
		}
		if u.Scheme != "https" {
			bad("the API of coordinator %s is plain http: write https, with api.cert_file and api.key_file", c.ID)
		}
		if f.API.TokensFile == "" {
			bad("the API of coordinator %s lets everybody write: name api.tokens_file", c.ID)
		}
	}
	for _, c := range f.Coordinators {
		if !loopback(c.Raft) && f.Raft.CertFile == "" {
			bad("raft of coordinator %s takes anybody's word: name raft.ca_file, raft.cert_file and raft.key_file", c.ID)
		}
	}
	errs = append(errs, f.Queue.exposed()...)
	if u, err := url.Parse(f.Traces.URL); err == nil && f.Traces.URL != "" && u.Scheme != "https" && !loopback(u.Host) {
		bad("the trace store is plain http: write https")
	}
	if u, err := url.Parse(f.Traces.PublicURL); err == nil && f.Traces.PublicURL != "" && u.Scheme != "https" && !loopback(u.Host) {
		bad("traces.public_url is plain http, and whoever sees an address of a trace can fetch it: write https")
	}
	if len(errs) == 0 {
		return nil
	}
	return fmt.Errorf("%w (docs/security.md sets it up; insecure: true in the configuration is for a network that is yours alone):\n%w", ErrExposed, errors.Join(errs...))
}

func (q Queue) exposed() []error {
	var errs []error
	for _, one := range strings.Split(q.URL, ",") {
		u, err := url.Parse(strings.TrimSpace(one))
		if err != nil || loopback(u.Host) {
			continue
		}
		if u.Scheme != "tls" && u.Scheme != "wss" && q.CAFile == "" {
			errs = append(errs, fmt.Errorf("the queue at %s is plain: write tls:// and name queue.ca_file", u.Host))
		}
		if q.SeedFile() == "" && q.CredsFile == "" && q.CertFile == "" && u.User == nil {
			errs = append(errs, fmt.Errorf("the queue at %s does not learn who asks: name queue.nkey_file or queue.creds_file", u.Host))
		}
	}
	return errs
}

// loopback reports whether an address stays on this machine. A name other than
// localhost may be anywhere.
func loopback(hostPort string) bool {
	host, _, err := net.SplitHostPort(hostPort)
	if err != nil {
		host = hostPort
	}
	ip := net.ParseIP(strings.Trim(host, "[]"))
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

package main

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/oomfleet/oomfleet/agent"
	"github.com/oomfleet/oomfleet/internal/certs"
	"github.com/oomfleet/oomfleet/proto"
	"github.com/oomfleet/oomfleet/queue/natsq"
)

func (a *app) secureCommand() *cobra.Command {
	c := &cobra.Command{Use: "secure", Short: "Make keys and certificates for a fleet",
		Long: `Make what a fleet that leaves one machine needs: users of the queue, and an
authority with certificates for the API, raft and the queue. docs/security.md
says what goes where.`}
	c.AddCommand(a.nkeyCommand(), a.authorityCommand(), a.certificateCommand())
	return c
}

// nkeyFlags say whose key it will be.
type nkeyFlags struct {
	role, out, gpu, card string
	drivers              []string
	simulated            bool
}

func (a *app) nkeyCommand() *cobra.Command {
	var f nkeyFlags
	c := &cobra.Command{Use: "nkey", Short: "Make a user of the queue", Args: cobra.NoArgs,
		Long: `Make a user of the queue. The seed goes into a new file that stays with the
coordinator or agent (queue.nkey_file of its configuration); the user's entry
for the authorization block of nats-server's configuration goes to stdout. An
agent's user may pull the tasks of the named card model and drivers and report
for them, and nothing else. For a new driver run it again with the same --out and
all drivers, and replace the entry.`,
		Example: "  fleetctl secure nkey --role coordinator --out coordinator.nk\n  fleetctl secure nkey --role agent --gpu 'NVIDIA H200' --driver 580.159.04 --card GPU-1b2c --out agent.nk",
		RunE:    func(*cobra.Command, []string) error { return a.makeNKey(f) }}
	fl := c.Flags()
	fl.StringVar(&f.role, "role", "", "coordinator or agent (required)")
	fl.StringVar(&f.out, "out", "", "file for the seed; one that exists is kept, and its user printed anew (required)")
	fl.StringVar(&f.gpu, "gpu", "", "the agent's card model, like 'NVIDIA H200'")
	fl.StringArrayVar(&f.drivers, "driver", nil, "a driver that the agent may run under; may be repeated")
	fl.StringVar(&f.card, "card", "", "the agent's card, a UUID like GPU-... (default: any card of that model)")
	fl.BoolVar(&f.simulated, "simulated", false, "for a simulated agent")
	c.MarkFlagRequired("role")
	c.MarkFlagRequired("out")
	return c
}

func (a *app) makeNKey(f nkeyFlags) error {
	grant, err := f.grant()
	if err != nil {
		return err
	}
	public, err := natsq.EnsureSeed(f.out)
	if err != nil {
		return wrongInput(err)
	}
	user := natsq.CoordinatorUser(public)
	if f.role == "agent" {
		user = natsq.AgentUser(public, grant)
	}
	if a.json {
		return writeJSON(a.out, map[string]string{"user": public, "seed_file": f.out, "entry": user.Config()})
	}
	_, err = fmt.Fprint(a.out, user.Config())
	return err
}

// grant is what an agent's key will be for. It refuses one for every stack: a
// stolen key would then speak for all of them.
func (f nkeyFlags) grant() (natsq.Grant, error) {
	var g natsq.Grant
	switch {
	case f.role == "coordinator" && f.gpu == "" && len(f.drivers) == 0 && f.card == "":
		return g, nil
	case f.role == "coordinator":
		return g, usagef("a coordinator's key is for every stack: leave --gpu, --driver and --card out")
	case f.role != "agent":
		return g, usagef("--role is coordinator or agent, not %q", f.role)
	case f.gpu == "" || len(f.drivers) == 0:
		return g, usagef("an agent's key is for one card model and its drivers: name --gpu and --driver")
	}
	origin := proto.OriginMeasured
	if f.simulated {
		origin = proto.OriginSimulated
	}
	for _, driver := range f.drivers {
		g.Pools = append(g.Pools, proto.PoolOf(origin, f.gpu, driver))
	}
	if f.card != "" {
		g.Agent = agent.IDOf(f.card)
	}
	return g, nil
}

// certFlags say what to sign.
type certFlags struct {
	dir, name string
	hosts     []string
	valid     time.Duration
	server    bool
}

// year is close enough for a certificate.
const year = 365 * 24 * time.Hour

func (a *app) authorityCommand() *cobra.Command {
	var f certFlags
	c := &cobra.Command{Use: "authority", Short: "Make the fleet's own authority", Args: cobra.NoArgs,
		Long: `Make an authority that signs the fleet's certificates: ca.pem, which goes to
every machine, and ca.key, which stays where you sign.`,
		RunE: func(*cobra.Command, []string) error {
			authority, err := certs.NewAuthority("OOMFleet", f.valid)
			if err != nil {
				return wrongInput(err)
			}
			ca, key := filepath.Join(f.dir, "ca.pem"), filepath.Join(f.dir, "ca.key")
			if err := authority.Write(ca, key); err != nil {
				return neverReplaced(err)
			}
			fmt.Fprintf(a.err, "authority in %s; keep ca.key to yourself\n", f.dir)
			if a.json {
				return writeJSON(a.out, pairOfFiles{Certificate: ca, Key: key})
			}
			return nil
		}}
	c.Flags().StringVar(&f.dir, "dir", ".", "folder for ca.pem and ca.key")
	c.Flags().DurationVar(&f.valid, "valid", 10*year, "how long it is good for")
	return c
}

// pairOfFiles is what `secure authority` and `secure certificate` print with --json.
type pairOfFiles struct {
	Certificate string `json:"certificate_file"`
	Key         string `json:"key_file"`
}

// neverReplaced is why no key could be written: mostly that there is one.
func neverReplaced(err error) error {
	if errors.Is(err, fs.ErrExist) {
		return usagef("%w: a key is never replaced; name another, or move that one away", err)
	}
	return wrongInput(err)
}

// certifiable refuses what would be signed and match no machine: an address with a
// port, a URL, nothing.
func certifiable(hosts []string) error {
	for _, host := range hosts {
		if net.ParseIP(host) == nil && (host == "" || strings.ContainsAny(host, ":/[] ")) {
			return usagef("--host %q is a name or an address alone, like host-a.example or 10.0.0.1, without a port", host)
		}
	}
	return nil
}

func (a *app) certificateCommand() *cobra.Command {
	var f certFlags
	c := &cobra.Command{Use: "certificate", Short: "Sign a certificate for one machine", Args: cobra.NoArgs,
		Long: `Sign a certificate with the fleet's authority: NAME.pem and NAME.key in the
authority's folder. It is good as a server and as a client, so one serves a
coordinator's API and its raft port; raft's members hear nobody whose certificate
names none of their hosts. With --server-only it is good as a server alone, which
is enough for the queue and the trace store.`,
		Example: "  fleetctl secure certificate --name host-a --host host-a.example --host 10.0.0.1",
		RunE: func(*cobra.Command, []string) error {
			authority, err := certs.ReadAuthority(filepath.Join(f.dir, "ca.pem"), filepath.Join(f.dir, "ca.key"))
			if err != nil {
				return wrongInput(err)
			}
			if f.name != filepath.Base(f.name) || f.name == "." || f.name == ".." {
				return usagef("--name %q is a file's name without a folder", f.name)
			}
			if err := certifiable(f.hosts); err != nil {
				return err
			}
			file := filepath.Join(f.dir, f.name)
			issue := authority.Issue
			if f.server {
				issue = authority.IssueServer
			}
			if err := issue(file+".pem", file+".key", f.hosts, f.valid); err != nil {
				return neverReplaced(err)
			}
			fmt.Fprintf(a.err, "certificate in %s.pem, its key in %s.key\n", file, file)
			if a.json {
				return writeJSON(a.out, pairOfFiles{Certificate: file + ".pem", Key: file + ".key"})
			}
			return nil
		}}
	c.Flags().StringVar(&f.dir, "dir", ".", "folder with ca.pem and ca.key")
	c.Flags().StringVar(&f.name, "name", "", "name of the two files (required)")
	c.Flags().StringArrayVar(&f.hosts, "host", nil, "name or address that the machine is reached by; may be repeated (required)")
	c.Flags().DurationVar(&f.valid, "valid", year, "how long it is good for")
	c.Flags().BoolVar(&f.server, "server-only", false, "good as a server alone: for the queue and the trace store")
	c.MarkFlagRequired("name")
	c.MarkFlagRequired("host")
	return c
}

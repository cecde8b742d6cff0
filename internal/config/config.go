// Package config owns the one configuration file of a fleet, shared by every
// coordinator and agent: where the queue, the trace store and the coordinators
// are. It refuses to hold secrets: keys come from the environment, so that the
// file can be kept in version control and shown in a log.
//
// Start reading at Fleet.
package config

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/oomfleet/oomfleet/proto"
)

// APIVersion is the version of the file's form.
const APIVersion = "oomfleet/v1"

// The environment variables that carry the store's keys.
const (
	EnvAccessKey = "OOMFLEET_S3_ACCESS_KEY"
	EnvSecretKey = "OOMFLEET_S3_SECRET_KEY"
)

// Fleet is the whole configuration.
type Fleet struct {
	APIVersion string `yaml:"apiVersion"`
	// Queue is the NATS server.
	Queue Queue `yaml:"queue"`
	// Traces is the trace store: an S3 service or a folder.
	Traces Traces `yaml:"traces"`
	// Coordinators are all members of the raft cluster, one or three (or
	// more, odd), the same list for each of them.
	Coordinators []Coordinator `yaml:"coordinators"`
	Cluster      Cluster       `yaml:"cluster,omitempty"`
	// Simulated are the drivers that simulated agents may present; empty for
	// a fleet without any.
	Simulated []SimulatedDriver `yaml:"simulated,omitempty"`
	// API guards the coordinators' API, Raft the port that only they use.
	API  API      `yaml:"api,omitempty"`
	Raft TLSFiles `yaml:"raft,omitempty"`
	// Insecure lets the fleet leave this machine unprotected; see Exposed.
	Insecure bool `yaml:"insecure,omitempty"`
}

// SimulatedDriver is one driver of simulated agents: the recorded one, or one
// whose name ends in -synthetic and which holds more context.
type SimulatedDriver struct {
	Driver string `yaml:"driver"`
	// ContextOffset is added to the recorded context, as an amount of memory;
	// synthetic drivers only.
	ContextOffset string `yaml:"context_offset,omitempty"`
}

// Offset is ContextOffset in bytes.
func (d SimulatedDriver) Offset() (proto.Bytes, error) {
	if d.ContextOffset == "" {
		return 0, nil
	}
	return proto.ParseBytes(d.ContextOffset)
}

// SimulatedDriver returns the simulated driver of this name; an empty name is
// the first.
func (f *Fleet) SimulatedDriver(name string) (SimulatedDriver, error) {
	for _, d := range f.Simulated {
		if name == "" || d.Driver == name {
			return d, nil
		}
	}
	if name == "" {
		return SimulatedDriver{}, errors.New("the configuration has no simulated driver: add one under simulated, like - driver: 580.159.04")
	}
	return SimulatedDriver{}, fmt.Errorf("the configuration has no simulated driver %q: add it under simulated", name)
}

// Queue says where the NATS server is.
type Queue struct {
	// URL is "nats://host:port"; several may be separated by commas.
	URL      string `yaml:"url"`
	Identity `yaml:",inline"`
	TLSFiles `yaml:",inline"`
	// Lease is how long a task stays with an agent that does not renew it any
	// more, like 30s (the default): so long does the task of an agent that
	// died wait. A longer one that the queue already has is kept.
	Lease time.Duration `yaml:"lease,omitempty"`
	// Replicas is how many servers of a NATS cluster keep each stream; 0 is 1.
	// It counts when the streams are made.
	Replicas int `yaml:"replicas,omitempty"`
}

// Traces says where traces are kept: exactly one of URL and Dir.
type Traces struct {
	// URL is the S3 endpoint, "http://host:port" or "https://host".
	URL string `yaml:"url,omitempty"`
	// PublicURL is the S3 endpoint as clients reach it, for addresses of traces
	// that the API gives out; absent is URL, unless that is the loopback
	// interface's.
	PublicURL string `yaml:"public_url,omitempty"`
	Bucket    string `yaml:"bucket,omitempty"`
	Region    string `yaml:"region,omitempty"`
	CAFile    string `yaml:"ca_file,omitempty"`
	// Dir is a folder that all coordinators and agents share.
	Dir string `yaml:"dir,omitempty"`
	// Keep is for how long an object stays that the registry does not refer
	// to, like 168h; absent is for ever. The store must be this fleet's alone.
	Keep time.Duration `yaml:"keep,omitempty"`
}

// Coordinator is one member of the cluster.
type Coordinator struct {
	// ID is the member's stable name; it must not change with its address.
	ID string `yaml:"id"`
	// Raft is the "host:port" for the other coordinators, API the base URL
	// for everybody else.
	Raft string `yaml:"raft"`
	API  string `yaml:"api"`
	// DataDir keeps the member's log and snapshots.
	DataDir string `yaml:"data_dir"`
	// Join is for a member that came later: it does not form the cluster, and
	// waits with an empty DataDir until `fleetctl cluster join` adds it.
	Join bool `yaml:"join,omitempty"`
}

// Cluster says how the coordinators watch each other; the zero value is the
// default.
type Cluster struct {
	// Heartbeat is how long a follower waits for its leader before it calls an
	// election; 0 is 250ms.
	Heartbeat time.Duration `yaml:"heartbeat,omitempty"`
	// RemoveDeadAfter is how long a member is silent before the leader removes
	// it, if as many as formed the cluster are well without it; 0 is 30m, and
	// never is a negative one.
	RemoveDeadAfter time.Duration `yaml:"remove_dead_after,omitempty"`
}

// Read reads and checks a file.
func Read(path string) (*Fleet, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read the fleet's configuration: %w: name the file with --config", err)
	}
	f, err := Parse(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return f, nil
}

// Parse reads and checks a file's text. Its error names every problem, and no file.
func Parse(text []byte) (*Fleet, error) {
	f := &Fleet{}
	d := yaml.NewDecoder(bytes.NewReader(text))
	d.KnownFields(true)
	if err := d.Decode(f); err != nil {
		return nil, readable(err)
	}
	return f, f.Validate()
}

// Write stores the configuration.
func (f *Fleet) Write(path string) error {
	text, err := yaml.Marshal(f)
	if err != nil {
		return fmt.Errorf("write the fleet's configuration: %w", err)
	}
	return os.WriteFile(path, text, 0o600)
}

var idForm = regexp.MustCompile(`^[a-z0-9-]+$`)

// Validate returns every problem at once.
func (f *Fleet) Validate() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if f.APIVersion != APIVersion {
		bad("apiVersion is %q, this build reads %q", f.APIVersion, APIVersion)
	}
	if f.Queue.URL == "" {
		bad("queue.url is missing: write nats://host:4222")
	}
	if l := f.Queue.Lease; l != 0 && l < time.Second {
		bad("queue.lease %s is shorter than 1s, which a busy network takes to renew it", l)
	}
	switch t := f.Traces; {
	case t.URL != "" && t.Dir != "":
		bad("traces has both url and dir: keep one")
	case t.URL == "" && t.Dir == "":
		bad("traces has neither url (an S3 service) nor dir (a shared folder)")
	case t.PublicURL != "" && t.URL == "":
		bad("traces.public_url is of an S3 service, and a folder has none")
	case t.URL != "" && t.Bucket == "":
		bad("traces.bucket is missing")
	case t.Keep != 0 && t.Keep < 24*time.Hour:
		bad("traces.keep %s is shorter than 24h, which an agent that waits for its queue may need", t.Keep)
	case t.Dir != "" && !filepath.IsAbs(t.Dir):
		bad("traces.dir %q must be an absolute path", t.Dir)
	}
	if n := f.forming(); n == 0 || n%2 == 0 {
		bad("%d coordinators: name one or three (with two, losing either stops the fleet)", n)
	}
	if h := f.Cluster.Heartbeat; h != 0 && h < 50*time.Millisecond {
		bad("cluster.heartbeat %s is shorter than 50ms, which a busy machine takes to answer", h)
	}
	if d := f.Cluster.RemoveDeadAfter; d > 0 && d < time.Minute {
		bad("cluster.remove_dead_after %s is shorter than 1m: a restart takes longer", d)
	}
	if f.Queue.Replicas < 0 || f.Queue.Replicas > 5 {
		bad("queue.replicas %d: NATS keeps 1 to 5", f.Queue.Replicas)
	}
	seen := map[string]bool{}
	for i, c := range f.Coordinators {
		if !idForm.MatchString(c.ID) {
			bad("coordinators[%d].id %q: use lower-case letters, digits and -", i, c.ID)
		}
		if seen[c.ID] {
			bad("coordinators[%d].id %q stands twice", i, c.ID)
		}
		seen[c.ID] = true
		if _, _, err := net.SplitHostPort(c.Raft); err != nil {
			bad("coordinators[%d].raft %q is not host:port", i, c.Raft)
		}
		if u, err := url.Parse(c.API); err != nil || u.Host == "" || u.Port() == "" || u.Scheme != "http" && u.Scheme != "https" {
			bad("coordinators[%d].api %q is not a URL with a port, like http://host:7400", i, c.API)
		}
		if c.DataDir == "" {
			bad("coordinators[%d].data_dir is missing", i)
		}
	}
	for i, d := range f.Simulated {
		if d.Driver == "" {
			bad("simulated[%d].driver is missing", i)
		}
		offset, err := d.Offset()
		if err != nil {
			bad("simulated[%d].context_offset: %w", i, err)
		}
		if offset != 0 && !strings.HasSuffix(d.Driver, "-synthetic") {
			bad("simulated[%d]: only a driver whose name ends in -synthetic may have a context_offset, %q was recorded as it is", i, d.Driver)
		}
	}
	return errors.Join(append(errs, f.guards()...)...)
}

// forming is how many coordinators form the cluster.
func (f *Fleet) forming() int {
	n := 0
	for _, c := range f.Coordinators {
		if !c.Join {
			n++
		}
	}
	return n
}

// Coordinator returns the member of this id; an empty id is the only member.
func (f *Fleet) Coordinator(id string) (Coordinator, error) {
	if id == "" && len(f.Coordinators) == 1 {
		return f.Coordinators[0], nil
	}
	for _, c := range f.Coordinators {
		if c.ID == id {
			return c, nil
		}
	}
	var ids []string
	for _, c := range f.Coordinators {
		ids = append(ids, c.ID)
	}
	return Coordinator{}, fmt.Errorf("no coordinator %q in the configuration: name one with --id (%s), or write it into the file", id, strings.Join(ids, ", "))
}

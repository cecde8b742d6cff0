package lint

import (
	"strings"
	"testing"
)

// layer says how high a package stands; it imports only what stands lower.
type layer int

const (
	words     layer = iota // words and mathematics: nothing of ours
	domain                 // pure domain: words
	decisions              // pure decisions: words, domain
	service                // loops and handlers: all pure layers, never an adapter
	adapter                // one technology each: all pure layers, never a service or another adapter
	wiring                 // everything
	server                 // a third party's server, started by wiring and by tests: nothing of ours
	testing_               // suites and servers for tests; only tests import them
)

// place is where a package stands. also lists imports beyond its layer's.
type place struct {
	layer layer
	also  []string
	why   string // of also
}

// places has every package of the tree. A new package gets its line here first.
var places = map[string]place{
	"proto":        {layer: words},
	"allocator":    {layer: words},
	"fit":          {layer: words},
	"agent/runner": {layer: words},

	"internal/secret": {layer: words},

	"matrix":           {layer: domain},
	"queue":            {layer: domain},
	"storage/registry": {layer: domain},
	"storage/trace":    {layer: domain},
	"agent/outcome":    {layer: domain},
	"agent/probe":      {layer: domain},

	"coordinator/plan":  {layer: decisions},
	"coordinator/diff":  {layer: decisions},
	"coordinator/quota": {layer: decisions},

	"coordinator":     {layer: service},
	"coordinator/api": {layer: service, also: []string{"coordinator"}, why: "it is the HTTP face of this service alone, and errors are the service's"},
	"agent":           {layer: service},

	"queue/natsq":       {layer: adapter},
	"queue/memq":        {layer: adapter},
	"storage/raftnode":  {layer: adapter},
	"storage/trace/s3x": {layer: adapter},
	"storage/trace/dir": {layer: adapter},
	"agent/child":       {layer: adapter},
	"agent/gpu":         {layer: adapter},
	"agent/sim":         {layer: adapter},

	"internal/natsserver": {layer: server},
	"internal/s3server":   {layer: server},

	"internal/certs":    {layer: wiring},
	"internal/config":   {layer: wiring},
	"internal/devfleet": {layer: wiring},
	"internal/fleetsim": {layer: wiring},
	"cmd/fleetctl":      {layer: wiring},

	"queue/queuetest":                {layer: testing_},
	"storage/trace/tracetest":        {layer: testing_},
	"agent/probetest":                {layer: testing_},
	"coordinator/quota/quotatest":    {layer: testing_},
	"internal/s3server/s3servertest": {layer: testing_, also: []string{"internal/s3server"}, why: "it starts that server in a process of its own"},
	"internal/wiretest":              {layer: testing_},
	"internal/lint":                  {layer: testing_},
}

// mayImport reports whether a package of layer from may import one of layer to.
func mayImport(from, to layer) bool {
	switch from {
	case words, server:
		return false
	case domain, decisions:
		return to < from
	case service, adapter, testing_:
		return to <= decisions
	case wiring:
		return to != testing_
	}
	panic("lint: a layer without a rule")
}

func TestLayers(t *testing.T) {
	var found []finding
	seen := make(map[string]bool)
	for _, p := range load(t).packages {
		seen[p.dir] = true
		here, placed := places[p.dir]
		if !placed {
			t.Errorf("%s stands in no layer; give it a line in places", p.dir)
			continue
		}
		also := make(map[string]bool)
		for target, file := range imports(p.product()) {
			target, ours := strings.CutPrefix(target, module+"/")
			if !ours {
				continue
			}
			if contains(here.also, target) {
				also[target] = true
				continue
			}
			if to, ok := places[target]; ok && !mayImport(here.layer, to.layer) {
				found = append(found, finding{p.dir + " " + target, file, "imports " + target + ", which its layer may not"})
			}
		}
		for _, target := range here.also {
			if !also[target] || here.why == "" {
				t.Errorf("%s: the extra import of %s is not used, or has no reason", p.dir, target)
			}
		}
	}
	for dir := range places {
		if !seen[dir] {
			t.Errorf("places has %s, which is not in the tree", dir)
		}
	}
	judge(t, ruleLayer, found)
}

// TestLayersRefuse holds the table to what it is for.
func TestLayersRefuse(t *testing.T) {
	for _, c := range []struct{ from, to string }{
		{"proto", "matrix"}, {"matrix", "queue"}, {"storage/registry", "coordinator/plan"},
		{"coordinator", "queue/natsq"}, {"coordinator", "agent"}, {"agent", "coordinator"},
		{"agent", "agent/child"}, {"agent/sim", "agent/child"}, {"storage/raftnode", "coordinator"},
		{"queue/natsq", "internal/natsserver"}, {"cmd/fleetctl", "queue/queuetest"},
	} {
		if mayImport(places[c.from].layer, places[c.to].layer) {
			t.Errorf("%s may import %s", c.from, c.to)
		}
	}
	for _, c := range []struct{ from, to string }{
		{"matrix", "allocator"}, {"coordinator/plan", "storage/registry"}, {"coordinator", "fit"},
		{"storage/trace/s3x", "storage/trace"}, {"cmd/fleetctl", "queue/natsq"},
	} {
		if !mayImport(places[c.from].layer, places[c.to].layer) {
			t.Errorf("%s may not import %s", c.from, c.to)
		}
	}
}

// impure lists what a pure package never imports: it would let in a clock of
// its own, the network, another process or chance.
var impure = []string{"net", "net/http", "os", "os/exec", "math/rand", "math/rand/v2", "log/slog", "syscall", "context"}

// impureAllowed are the exceptions, with what for.
var impureAllowed = map[string]string{
	"internal/secret log/slog": "it says how a logger shows a secret: not at all",
	"internal/secret os":       "it reads a secret's file, and who else may",
	"queue context":            "it declares what adapters do, and they block",
	"storage/trace context":    "its drivers do I/O",
	"storage/trace os":         "a trace is opened from a spooled file, for Parquet needs to seek",
}

func TestPurePackages(t *testing.T) {
	used := make(map[string]bool)
	for _, p := range load(t).packages {
		if places[p.dir].layer > decisions {
			continue
		}
		found := imports(p.product())
		for _, name := range impure {
			file, ok := found[name]
			key := p.dir + " " + name
			switch {
			case ok && impureAllowed[key] != "":
				used[key] = true
			case ok:
				t.Errorf("%s: a pure package imports %s (key %q)", file, name, key)
			}
		}
		for _, s := range p.product() {
			for _, call := range calls(s, "time", "Now", "Since", "After", "NewTimer", "NewTicker") {
				t.Errorf("%s: a pure package reads the clock", s.where(call))
			}
		}
	}
	for key := range impureAllowed {
		if !used[key] {
			t.Errorf("impureAllowed has %q, which no longer applies", key)
		}
	}
}

func contains(list []string, s string) bool {
	for _, e := range list {
		if e == s {
			return true
		}
	}
	return false
}

package lint

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// dependency is one module of the direct requirements and who imports it.
// One package is the rule; why says what more are for.
type dependency struct {
	module  string
	product []string // packages whose product code imports it
	tests   bool     // any test may import it as well
	why     string
}

// dependencies must be exactly the direct requirements of go.mod, and each must
// be named in docs/adr/0006-dependencies.md.
var dependencies = []dependency{
	{module: "github.com/anishathalye/porcupine", tests: true},
	{module: "github.com/danielgtaylor/huma/v2", product: []string{"coordinator/api"}},
	{module: "github.com/ebitengine/purego", product: []string{"agent/gpu"}},
	{module: "github.com/hashicorp/go-hclog", product: []string{"storage/raftnode"}},
	{module: "github.com/hashicorp/raft", product: []string{"storage/raftnode"}, tests: true},
	{module: "github.com/hashicorp/raft-wal", product: []string{"storage/raftnode"}, tests: true},
	{module: "github.com/invopop/jsonschema", tests: true},
	{module: "github.com/klauspost/compress", product: []string{"storage/raftnode"}, tests: true},
	{module: "github.com/minio/minio-go/v7", product: []string{"storage/trace/s3x"}},
	{module: "github.com/nats-io/nats-server/v2", product: []string{"internal/natsserver"}, tests: true},
	{module: "github.com/nats-io/nats.go", product: []string{"queue/natsq"}, tests: true},
	{module: "github.com/parquet-go/parquet-go", product: []string{"storage/trace"}, tests: true},
	{module: "github.com/prometheus/client_golang", product: []string{"agent", "cmd/fleetctl", "coordinator", "storage/raftnode"}, tests: true,
		why: "each service registers its own metrics.go with the injected registry; the command serves it"},
	{module: "github.com/prometheus/common", tests: true},
	{module: "github.com/santhosh-tekuri/jsonschema/v6", tests: true},
	{module: "github.com/spf13/cobra", product: []string{"cmd/fleetctl"}},
	{module: "github.com/synadia-io/orbit.go/jetstreamext", product: []string{"queue/natsq"}},
	{module: "github.com/vbauerster/mpb/v8", product: []string{"cmd/fleetctl"}},
	{module: "github.com/versity/versitygw", product: []string{"internal/s3server"}},
	{module: "go.uber.org/goleak", tests: true},
	{module: "go.yaml.in/yaml/v4", product: []string{"internal/config", "matrix"}, tests: true,
		why: "two kinds of file: the fleet's configuration and the matrix"},
	{module: "golang.org/x/sys", product: []string{"agent/child", "cmd/fleetctl", "internal/s3server"}, tests: true,
		why: "prctl, process groups and terminal size; the standard library's syscall is frozen"},
	{module: "gonum.org/v1/gonum", product: []string{"fit"}},
	{module: "pgregory.net/rapid", tests: true},
}

// direct reads the direct requirements out of go.mod.
func direct(t *testing.T) []string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	var modules []string
	for _, m := range regexp.MustCompile(`(?m)^(?:require |\t)(\S+\.\S+) v\S+$`).FindAllStringSubmatch(string(text), -1) {
		modules = append(modules, m[1])
	}
	return modules
}

// owner is the dependency that provides an import path; nil for the standard
// library, for us, and for modules that the table lacks.
func owner(importPath string) *dependency {
	for i := range dependencies {
		if d := &dependencies[i]; importPath == d.module || strings.HasPrefix(importPath, d.module+"/") {
			return d
		}
	}
	return nil
}

func thirdParty(importPath string) bool {
	first, _, _ := strings.Cut(importPath, "/")
	return strings.Contains(first, ".") && importPath != module && !strings.HasPrefix(importPath, module+"/")
}

func TestDependencies(t *testing.T) {
	importers := make(map[string][]string)
	for _, p := range load(t).packages {
		for importPath, file := range imports(p.product()) {
			if !thirdParty(importPath) {
				continue
			}
			d := owner(importPath)
			if d == nil {
				t.Errorf("%s imports %s, which is in no row; a new dependency needs an ADR", file, importPath)
				continue
			}
			if p.helper() && d.tests {
				continue
			}
			if !slices.Contains(d.product, p.dir) {
				t.Errorf("%s imports %s; only %v may", file, importPath, d.product)
			}
			importers[d.module] = append(importers[d.module], p.dir)
		}
		for importPath, file := range imports(p.tests()) {
			if d := owner(importPath); thirdParty(importPath) && (d == nil || !d.tests && !slices.Contains(d.product, p.dir)) {
				t.Errorf("%s: no test here may import %s", file, importPath)
			}
		}
	}
	for _, d := range dependencies {
		for _, dir := range d.product {
			if !slices.Contains(importers[d.module], dir) {
				t.Errorf("%s may import %s and does not; take it out of the row", dir, d.module)
			}
		}
		if len(d.product) > 1 && d.why == "" {
			t.Errorf("%s has %d importers and no reason", d.module, len(d.product))
		}
	}
}

func TestDependenciesAreTheModulesOwn(t *testing.T) {
	required := direct(t)
	if len(required) < 10 {
		t.Fatalf("read only %d requirements out of go.mod", len(required))
	}
	adr := load(t).texts["docs/adr/0006-dependencies.md"]
	for _, m := range required {
		if !slices.ContainsFunc(dependencies, func(d dependency) bool { return d.module == m }) {
			t.Errorf("go.mod requires %s, which is in no row", m)
		}
	}
	for _, d := range dependencies {
		if !slices.Contains(required, d.module) {
			t.Errorf("%s has a row and is no direct requirement of go.mod", d.module)
		}
		if !strings.Contains(adr, "`"+d.module+"`") {
			t.Errorf("docs/adr/0006-dependencies.md says nothing about %s", d.module)
		}
	}
}

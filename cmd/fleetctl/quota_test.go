package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/oomfleet/oomfleet/coordinator"
	"github.com/oomfleet/oomfleet/coordinator/api"
	"github.com/oomfleet/oomfleet/coordinator/quota"
	"github.com/oomfleet/oomfleet/coordinator/quota/quotatest"
	"github.com/oomfleet/oomfleet/proto"
	"github.com/oomfleet/oomfleet/storage/registry"
)

// alone is a coordinator's registry that never changes.
type alone struct{ *quotatest.World }

func (alone) LeaderID() string                 { return "a" }
func (alone) Changed(uint64) <-chan struct{}   { return nil }
func (alone) Consistent(context.Context) error { return nil }
func (alone) Standing() (time.Duration, bool)  { return 0, true }
func (alone) Restore(context.Context, io.Reader, bool) (registry.Restored, error) {
	return registry.Restored{}, errors.New("not here")
}
func (alone) Agents(context.Context) ([]proto.AgentInfo, error) { return nil, nil }
func (alone) Submit(context.Context, coordinator.SubmitRequest) (coordinator.SubmitReply, error) {
	return coordinator.SubmitReply{}, errors.New("not here")
}
func (alone) Cancel(context.Context, proto.MatrixID) (int, error) { return 0, errors.New("not here") }

// serveWorld is the API over what a small simulated fleet would know, at the
// address that commands take from the environment.
func serveWorld(t *testing.T, folder string) *quotatest.World {
	t.Helper()
	w := quotatest.New(t, folder)
	node := alone{w}
	serve(t, api.Deps{ID: "a", Sweeps: node, Registry: node, Traces: w, Agents: node})
	return w
}

// serve answers the commands of a test.
func serve(t *testing.T, d api.Deps) {
	t.Helper()
	handler, err := api.New(d)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	t.Setenv("OOMFLEET_SERVER", server.URL)
}

// TestQuotaTranscripts runs every block of docs/quota.md that is marked as asked
// of a fleet, against one in this process.
func TestQuotaTranscripts(t *testing.T) {
	text, err := os.ReadFile("../../docs/quota.md")
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(text), "```console\n") {
		t.Error("docs/quota.md: a block that no fleet answers belongs into another document, or mark it `console fleet`")
	}
	blocks := consoleBlocks("docs/quota.md", strings.ReplaceAll(string(text), "```console fleet\n", "```console\n"))
	if len(blocks) < 8 {
		t.Fatalf("only %d blocks", len(blocks))
	}
	t.Chdir("../..")
	serveWorld(t, "agent/sim/traces")
	sh := &shell{files: map[string]string{}, dir: t.TempDir()}
	sh.play(t, blocks)
}

func recommendation(edit ...func(*api.Recommendation)) api.Recommendation {
	var r api.Recommendation
	r.Workload, r.GPU, r.Driver, r.Env, r.SeqLen, r.Batch = "esmfold", "NVIDIA H200", "580.159.04", map[string]string{}, 384, 1
	r.QuotaKind, r.Origin, r.Basis = proto.QuotaAllocator, proto.OriginMeasured, quota.BasisBoundary
	r.Quota, r.Survive, r.CardTotal, r.Outside, r.Torch = 11014*proto.MiB, 11014*proto.MiB, 150_109_880_320, 722_272_256, "2.11.0+cu130"
	for _, e := range edit {
		e(&r)
	}
	return r
}

func form(t *testing.T, format string, r api.Recommendation, f formFlags) (string, error) {
	t.Helper()
	var out bytes.Buffer
	f.format = format
	err := f.write(&out, r)
	return out.String(), err
}

// TestFractionHoldsTheQuota: cut off as torch cuts it off, the printed fraction
// is the quota or less than a step more, on any card.
func TestFractionHoldsTheQuota(t *testing.T) {
	for _, total := range []proto.Bytes{150_109_880_320, 34_190_917_632, 85_031_714_816, 25_294_995_456, 16*proto.GiB - 4096} {
		f := formFlags{total: total}
		for quota := 2 * proto.MiB; quota < total; quota += 254*proto.MiB + 6*proto.KiB {
			text, err := f.fraction(quota)
			if err != nil {
				t.Fatal(err)
			}
			x, err := strconv.ParseFloat(text, 64)
			if limit := proto.Bytes(x * float64(total)); err != nil || limit < quota || limit > quota+proto.KiB {
				t.Fatalf("%s of %s: fraction %s limits to %d (%v)", quota, total, text, int64(limit), err)
			}
		}
	}
	for _, f := range []formFlags{{}, {total: proto.GiB}} {
		if text, err := f.fraction(proto.GiB); err == nil {
			t.Errorf("%+v: %s", f, text)
		}
	}
}

// manifest is as much of the YAML as is checked.
type manifest struct {
	Version string
	Sharing struct {
		MPS struct {
			Resources []struct {
				Name     string
				Replicas int
			}
		}
	}
	Metadata struct{ Annotations map[string]string }
	Spec     struct {
		Containers []struct {
			Name      string
			Env       []struct{ Name, Value string }
			Resources struct{ Limits map[string]int64 }
		}
	}
}

func parsed(t *testing.T, text string) []manifest {
	t.Helper()
	var all []manifest
	for _, doc := range strings.Split(text, "---\n") {
		var m manifest
		if err := yaml.Unmarshal([]byte(doc), &m); err != nil {
			t.Fatalf("%v in\n%s", err, doc)
		}
		all = append(all, m)
	}
	return all
}

// TestFormsParse: the YAML is YAML, awkward values included, and no number is
// rounded down.
func TestFormsParse(t *testing.T) {
	awkward := `a: "b" #c 'd' \ %{}`
	process := func(r *api.Recommendation) {
		r.QuotaKind, r.Quota = proto.QuotaProcess, 11719*proto.MiB+1
		r.Env = map[string]string{"AWKWARD": awkward}
		r.Workload = "My.Module:run_it"
	}
	for _, format := range []string{formatKubernetes, formatHAMi, formatMPS} {
		r := recommendation(process)
		if format == formatKubernetes {
			r = recommendation(func(r *api.Recommendation) {
				r.Env = map[string]string{"AWKWARD": awkward, "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}
			})
		}
		text, err := form(t, format, r, formFlags{})
		if err != nil {
			t.Fatal(err)
		}
		all := parsed(t, text)
		m := all[len(all)-1]
		c := m.Spec.Containers[0]
		env := map[string]string{}
		for _, e := range c.Env {
			env[e.Name] = e.Value
		}
		if env["AWKWARD"] != awkward || c.Resources.Limits["nvidia.com/gpu"] != 1 || m.Metadata.Annotations["oomfleet/quota-bytes"] != fmt.Sprint(int64(r.Quota)) {
			t.Errorf("%s: %+v", format, m)
		}
		switch format {
		case formatKubernetes:
			if !strings.HasPrefix(env["PYTORCH_CUDA_ALLOC_CONF"], "expandable_segments:True,per_process_memory_fraction:0.0769") {
				t.Errorf("%v", env)
			}
		case formatHAMi:
			if c.Resources.Limits["nvidia.com/gpumem"] != 11720 || c.Name != "my-module-run-it" {
				t.Errorf("%+v", c)
			}
		case formatMPS:
			shares := all[0].Sharing.MPS.Resources
			if env["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] != "0=11720M" || len(shares) != 1 || shares[0].Name != "nvidia.com/gpu" || shares[0].Replicas != 12 ||
				all[0].Version != "v1" || r.CardTotal/proto.Bytes(shares[0].Replicas) < r.Quota {
				t.Errorf("%v %+v", env, all[0])
			}
		}
	}
}

// TestFormsRefuse: a form that cannot carry a kind of quota says which can.
func TestFormsRefuse(t *testing.T) {
	kind := func(k proto.QuotaKind) func(*api.Recommendation) {
		return func(r *api.Recommendation) { r.QuotaKind = k }
	}
	unknownCard := func(r *api.Recommendation) { r.CardTotal = 0 }
	for _, tt := range []struct {
		format string
		r      api.Recommendation
		f      formFlags
		words  string
	}{
		{formatKubernetes, recommendation(kind(proto.QuotaProcess)), formFlags{}, "--kind allocator"},
		{formatKubernetes, recommendation(kind(proto.QuotaDevice)), formFlags{}, "--kind allocator"},
		{formatHAMi, recommendation(), formFlags{}, "--kind process or device"},
		{formatMPS, recommendation(), formFlags{}, "--kind process"},
		{formatMPS, recommendation(kind(proto.QuotaProcess), unknownCard), formFlags{}, "--card-memory"},
		{formatEnv, recommendation(kind(proto.QuotaDevice)), formFlags{}, "no variable sets a device quota"},
		{formatEnv, recommendation(unknownCard), formFlags{}, "--card-memory"},
		{formatEnv, recommendation(), formFlags{total: 10 * proto.GiB}, "it does not fit"},
		{formatEnv, recommendation(func(r *api.Recommendation) {
			r.Env = map[string]string{"PYTORCH_CUDA_ALLOC_CONF": "per_process_memory_fraction:0.5"}
		}), formFlags{}, "set twice"},
		{formatSlurm, recommendation(func(r *api.Recommendation) { r.Outside = 0 }), formFlags{shards: 10}, "outside the allocator"},
	} {
		if text, err := form(t, tt.format, tt.r, tt.f); err == nil || !strings.Contains(err.Error(), tt.words) || text != "" {
			t.Errorf("%s: %v with %q, want %q", tt.format, err, text, tt.words)
		}
	}
}

func TestShellForms(t *testing.T) {
	process := func(r *api.Recommendation) { r.QuotaKind, r.Quota = proto.QuotaProcess, 11720*proto.MiB }
	for _, tt := range []struct {
		name, format string
		r            api.Recommendation
		f            formFlags
		lines        []string
	}{
		{"allocator", formatSlurm, recommendation(), formFlags{}, []string{"#SBATCH --gres=gpu:1", "export PYTORCH_CUDA_ALLOC_CONF=per_process_memory_fraction:0.0769"}},
		{"process", formatSlurm, recommendation(process), formFlags{}, []string{"#SBATCH --gres=mps:9", "export CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=11720M"}},
		{"device", formatSlurm, recommendation(func(r *api.Recommendation) { r.QuotaKind = proto.QuotaDevice }), formFlags{}, []string{"#SBATCH --gres=gpu:1", "nothing in Slurm limits memory"}},
		{"shards", formatSlurm, recommendation(), formFlags{shards: 100}, []string{"#SBATCH --gres=shard:9", "per_process_memory_fraction:"}},
		{"older torch", formatEnv, recommendation(func(r *api.Recommendation) { r.Torch = "2.6.0" }), formFlags{}, []string{"export OOMFLEET_MEMORY_FRACTION=0.0769", "set_per_process_memory_fraction"}},
		{"the new name", formatEnv, recommendation(func(r *api.Recommendation) {
			r.Env = map[string]string{"PYTORCH_ALLOC_CONF": "expandable_segments:True"}
		}), formFlags{}, []string{"export PYTORCH_ALLOC_CONF=expandable_segments:True,per_process_memory_fraction:"}},
		{"another card", formatEnv, recommendation(), formFlags{total: 22028 * proto.MiB}, []string{"per_process_memory_fraction:0.5\n"}},
	} {
		text, err := form(t, tt.format, tt.r, tt.f)
		if err != nil {
			t.Fatalf("%s: %v", tt.name, err)
		}
		for _, line := range tt.lines {
			if !strings.Contains(text, line) {
				t.Errorf("%s: no %q in\n%s", tt.name, line, text)
			}
		}
		// Slurm reads #SBATCH lines up to the first command.
		if at := strings.Index(text, "\nexport"); strings.LastIndex(text, "#SBATCH") > at && at >= 0 {
			t.Errorf("%s: an #SBATCH line after a command:\n%s", tt.name, text)
		}
	}
}

// TestWrongQuotaQuestions: each ends with 2, nothing on stdout, and one sentence.
func TestWrongQuotaQuestions(t *testing.T) {
	serveWorld(t, traceDir)
	const sim = "--origin=simulated"
	const d = "--driver=" + quotatest.Driver
	for _, tt := range []struct {
		args  []string
		words string
	}{
		{[]string{"recommend", "--seq-len=384", sim, "--driver=1.2"}, "drivers covered: 580.159.04, 580.159.04-synthetic"},
		{[]string{"recommend", "--seq-len=384", sim}, "name one with --gpu and --driver"},
		{[]string{"recommend", "--seq-len=384"}, "simulated has drivers 580.159.04, 580.159.04-synthetic: --origin simulated"},
		{[]string{"recommend", "--seq-len=90000", sim, d}, "or --extrapolate"},
		{[]string{"recommend", "--seq-len=384", "--batch=-2", sim, d}, "--batch is -2"},
		{[]string{"recommend", "--seq-len=0", sim, d}, "--seq-len is 0"},
		{[]string{"recommend", sim, d}, "seq-len"},
		{[]string{"recommend", "--seq-len=384", "--risk=2", sim, d}, "--risk is 2"},
		{[]string{"recommend", "--seq-len=384", "--kind=soft", sim, d}, "--kind"},
		{[]string{"recommend", "--seq-len=384", "--env=X", sim, d}, "--env takes KEY=VALUE"},
		{[]string{"recommend", "--seq-len=384", "--format=xml", sim, d}, "must be one of table, json"},
		{[]string{"recommend", "--seq-len=384", "--format=hami", "--kind=allocator", sim, d}, "--kind process or device"},
		{[]string{"recommend", "--seq-len=384", "--format=slurm", "--json", sim, d}, "exclude each other"},
		{[]string{"max-seq-len", "--quota=0", sim, d}, "--quota is 0 bytes, and must be more than 0"},
		{[]string{"max-seq-len", sim, d}, "name the quota"},
		{[]string{"max-seq-len", "--quota=1GiB", sim, d}, "no seq_len fits 1024 MiB"},
		{[]string{"max-batch", "--seq-len=256", "--quota=12GB", sim, d}, "--quota"},
		{[]string{"replicas", "--card-memory=2GiB", "--seq-len=384", sim, d}, "no run fits"},
		{[]string{"compare", "--seq-len=384", sim, d}, "--with"},
		{[]string{"compare", "--seq-len=384", "--with=colour=red", sim, d}, "with takes FIELD=VALUE"},
		{[]string{"compare", "--seq-len=384", "--with=origin=measured", sim, d}, "never subtracted"},
		{[]string{"recommend", "--seq-len=384", "--format=slurm", "--shards-per-gpu=1025", sim, d}, "--shards-per-gpu is 1025"},
		{[]string{"recommend", "--seq-len=384", "--env=PYTORCH_CUDA_ALLOC_CONF=per_process_memory_fraction:0.5", sim, d}, "leave it out"},
		{[]string{"recommend", "--seq-len=384", "--env=PYTORCH_CUDA_ALLOC_CONF=garbage:1", sim, d}, "garbage"},
	} {
		out, errs, code := fleetctl(t, append([]string{"quota"}, tt.args...)...)
		if code != exitUsage || out != "" || !strings.Contains(errs, tt.words) || strings.Count(strings.TrimSpace(errs), "\n") > 0 {
			t.Errorf("%v: exit code %d, %q %q, want %q", tt.args, code, out, errs, tt.words)
		}
	}
}

// TestQuotaDocuments: with --json each question prints one document.
func TestQuotaDocuments(t *testing.T) {
	serveWorld(t, traceDir)
	for _, args := range [][]string{
		{"recommend", "--seq-len=384"}, {"recommend", "--seq-len=384", "--quota-kind=process"}, {"max-seq-len", "--quota=12GiB"},
		{"max-batch", "--quota=12GiB", "--seq-len=256"}, {"replicas", "--seq-len=384"}, {"compare", "--seq-len=384", "--with=driver=" + quotatest.Synthetic},
	} {
		out, errs, code := fleetctl(t, append(append([]string{"quota"}, args...), "--origin=simulated", "--driver="+quotatest.Driver, "--json")...)
		var d map[string]any
		if err := json.Unmarshal([]byte(out), &d); code != 0 || errs != "" || err != nil || d["applied_index"] == nil || d["role"] != "leader" {
			t.Errorf("%v: exit code %d, %v\n%s%s", args, code, err, out, errs)
		}
	}
}

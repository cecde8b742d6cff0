package main

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/oomfleet/oomfleet/coordinator/api"
	"github.com/oomfleet/oomfleet/proto"
)

// pod is a part of a pod's manifest: to be merged into one that has an image.
type pod struct {
	limits []string // NAME: NUMBER
	vars   map[string]string
	notes  []string
}

func (p pod) yaml(r api.Recommendation) string {
	var b strings.Builder
	fmt.Fprintf(&b, "# %s\n%s", summary(r), comments(p.notes))
	fmt.Fprintf(&b, "metadata:\n  annotations:\n")
	for _, pair := range [][2]string{{"quota-kind", string(r.QuotaKind)}, {"quota-bytes", fmt.Sprint(int64(r.Quota))}, {"basis", string(r.Basis)},
		{"origin", string(r.Origin)}, {"run", runOf(r)}, {"gpu", r.GPU}, {"driver", r.Driver}, {"applied-index", fmt.Sprint(r.AppliedIndex)}} {
		fmt.Fprintf(&b, "    oomfleet/%s: %s\n", pair[0], text(pair[1]))
	}
	fmt.Fprintf(&b, "spec:\n  containers:\n    - name: %s\n", containerName(r.Workload))
	if len(p.vars) > 0 {
		b.WriteString("      env:\n")
	}
	for _, name := range slices.Sorted(maps.Keys(p.vars)) {
		fmt.Fprintf(&b, "        - name: %s\n          value: %s\n", name, text(p.vars[name]))
	}
	b.WriteString("      resources:\n        limits:\n")
	for _, limit := range p.limits {
		fmt.Fprintf(&b, "          %s\n", limit)
	}
	return b.String()
}

// containerName is a workload's name in the letters that Kubernetes takes.
func containerName(workload string) string {
	name := strings.Trim(strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9':
			return r
		case r >= 'A' && r <= 'Z':
			return r + 'a' - 'A'
		}
		return '-'
	}, workload), "-")
	if name == "" {
		return "workload"
	}
	return strings.TrimRight(name[:min(len(name), 63)], "-")
}

// kubernetes is the plain form: a whole card, and PyTorch's own limit.
func (f *formFlags) kubernetes(r api.Recommendation) (string, error) {
	if r.QuotaKind != proto.QuotaAllocator {
		return "", fmt.Errorf("plain Kubernetes hands out whole cards and enforces no %s quota: ask with --kind allocator, or with --format hami or mps", r.QuotaKind)
	}
	vars, notes, err := f.variables(r)
	if err != nil {
		return "", err
	}
	return pod{limits: []string{"nvidia.com/gpu: 1"}, vars: vars, notes: notes}.yaml(r), nil
}

// hami is HAMi's form: it limits what a container holds on the card.
func (f *formFlags) hami(r api.Recommendation) (string, error) {
	if r.QuotaKind == proto.QuotaAllocator {
		return "", errors.New("HAMi limits all that a container holds on the card, CUDA context included, which an allocator quota does not count: ask with --kind process or device")
	}
	return pod{limits: []string{"nvidia.com/gpu: 1", fmt.Sprintf("nvidia.com/gpumem: %d", wholeMiBUp(r.Quota))}, vars: r.Env,
		notes: []string{"gpumem is in MiB, one virtual GPU of it"}}.yaml(r), nil
}

// quotaOf is a kind's quota with its article.
func quotaOf(kind proto.QuotaKind) string {
	if kind == proto.QuotaAllocator {
		return "an allocator quota"
	}
	return fmt.Sprintf("a %s quota", kind)
}

// mps is the NVIDIA device plugin's form: its configuration, which divides a
// card's memory evenly, and the pod that takes one part.
func (f *formFlags) mps(r api.Recommendation) (string, error) {
	if r.QuotaKind != proto.QuotaProcess {
		return "", fmt.Errorf("MPS limits a process, which is not what %s counts: ask with --kind process", quotaOf(r.QuotaKind))
	}
	if f.total == 0 {
		return "", errors.New("the card's total is not known from any run, and MPS divides it: give --card-memory")
	}
	if r.Quota <= 0 || f.total < r.Quota {
		return "", fmt.Errorf("a quota of %s divides no card of %s", r.Quota, f.total)
	}
	replicas := int64(f.total / r.Quota)
	vars, notes, err := f.variables(r)
	if err != nil {
		return "", err
	}
	config := fmt.Sprintf(`# configuration of the NVIDIA device plugin: %d replicas of %s, each at least the quota
version: v1
sharing:
  mps:
    resources:
      - name: nvidia.com/gpu
        replicas: %d
`, replicas, mib((f.total / proto.Bytes(replicas)).RoundDown(proto.MiB)), replicas)
	return config + "---\n" + pod{limits: []string{"nvidia.com/gpu: 1"}, vars: vars, notes: notes}.yaml(r), nil
}

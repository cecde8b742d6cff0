package matrix

import (
	"reflect"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"go.yaml.in/yaml/v4"

	"github.com/oomfleet/oomfleet/proto"
)

// Options is what a file is read with. The zero value reads it as it stands.
type Options struct {
	// Installed are the stacks of the registered agents. They stand for the
	// word `installed`; nil means that nothing is known of agents.
	Installed []proto.Stack
	// Set are overrides in the order given, each "path=value" as --set takes
	// it: see docs/matrix.md.
	Set []string
}

// Spec is a matrix file that was read and found good, before `installed` is
// resolved and the axes are combined.
type Spec struct {
	Name     string
	Workload proto.Workload
	// GPU is the target's model, or Installed. It is empty while the file has
	// a problem that leaves it open.
	GPU       string
	QuotaKind proto.QuotaKind
	Step      proto.Bytes
	Search    proto.Search
	// MaxCells is the limit that holds for this file.
	MaxCells int
	// Notices are remarks in the order of the file; they stop nothing.
	Notices Problems
	// Rollout is the standing order of the file; nil for a matrix that is
	// swept once.
	Rollout *proto.RolloutPolicy

	layout
}

// layout is what of a file `installed` and the product still have to come to.
type layout struct {
	gpuAt   *yaml.Node
	axes    selection
	exclude []selection
	include []selection
}

// NeedsInstalled reports whether cells of the spec depend on which agents are
// registered.
func (s *Spec) NeedsInstalled() bool {
	if s.GPU == Installed {
		return true
	}
	for _, sel := range slices.Concat([]selection{s.axes}, s.exclude, s.include) {
		for _, driver := range sel.driver {
			if driver.value == Installed {
				return true
			}
		}
	}
	return false
}

// Parse reads a matrix file and checks all that can be checked without knowing
// the agents. The error is a Problems with everything that is wrong.
func Parse(source []byte, options Options) (*Spec, error) {
	r := &reader{}
	spec := r.parse(source, options)
	if len(r.problems) > 0 {
		return nil, r.finish(r.problems)
	}
	spec.Notices = r.finish(r.notices)
	return spec, nil
}

// parse returns a spec with everything that could be read; it is usable only
// when r has no problems afterwards.
func (r *reader) parse(source []byte, options Options) *Spec {
	spec := &Spec{GPU: Installed, MaxCells: DefaultMaxCells}
	root := r.load(source)
	if root == nil {
		return spec
	}
	r.override(root, options.Set)
	before := len(r.problems)
	s, ok := r.section(root, "", reflect.TypeFor[File]())
	if !ok {
		return spec
	}
	if len(r.problems) > before && s.value("target") == nil {
		spec.GPU = "" // the misspelt key may be target
	}
	r.header(s, spec)
	if at := s.value("workload"); at != nil {
		spec.Workload = r.workload(at)
	} else {
		r.fail(s.node, "workload is missing: the program to run, for example workload: {name: esmfold}")
	}
	if at := s.value("axes"); at != nil {
		spec.axes = r.axes(at)
	} else {
		r.fail(s.node, "axes is missing: the values to combine, for example axes: {seq_len: [128, 256]}")
	}
	spec.exclude = r.rules(s, "exclude")
	spec.include = r.rules(s, "include")
	r.target(s.value("target"), spec)
	r.quota(s.value("quota"), spec)
	r.search(s.value("search"), &spec.Search)
	spec.MaxCells = r.limits(s.value("limits"))
	r.rollout(s.value("rollout"), spec)
	return spec
}

var sweepName = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)

func (r *reader) header(s section, spec *Spec) {
	if at := s.value("apiVersion"); at == nil {
		r.fail(s.node, "apiVersion is missing; the first line of a matrix is apiVersion: %s", APIVersion)
	} else if text, ok := r.word(at, "apiVersion"); ok && text != APIVersion {
		r.fail(follow(at), "apiVersion is %q; this build reads %s", text, APIVersion)
	}
	at := s.value("name")
	if at == nil {
		r.fail(s.node, "name is missing: lower-case letters, digits and hyphens")
		return
	}
	text, ok := r.word(at, "name")
	if ok && !sweepName.MatchString(text) {
		r.fail(follow(at), "name: %q is not up to 63 lower-case letters, digits and inner hyphens", text)
	}
	spec.Name = text
}

// maxGPUName is longer than any product name of NVML (96 bytes with its NUL).
const maxGPUName = 96

func (r *reader) target(n *yaml.Node, spec *Spec) {
	if n == nil {
		return
	}
	before := len(r.problems)
	s, ok := r.section(n, "target", reflect.TypeFor[FileTarget]())
	if len(r.problems) > before {
		spec.GPU = "" // what follows from an unknown model would be a false alarm
	}
	if !ok || s.value("gpu") == nil {
		return
	}
	at := follow(s.value("gpu"))
	spec.GPU = ""
	text, ok := r.word(at, "target.gpu")
	if !ok {
		return
	}
	if len(text) > maxGPUName || strings.ContainsFunc(text, func(c rune) bool { return !unicode.IsPrint(c) }) || text != strings.TrimSpace(text) {
		r.fail(at, "target.gpu: %q is no product name as NVML prints it, for example NVIDIA H200", text)
		return
	}
	spec.GPU, spec.gpuAt = text, at
}

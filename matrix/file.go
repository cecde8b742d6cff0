package matrix

import (
	"reflect"
	"strings"
)

// APIVersion is what a matrix file says of itself in its apiVersion key.
const APIVersion = "oomfleet/v1"

// Bounds of values. They are far above what a run can use and keep a typing
// mistake from becoming a sweep.
const (
	MaxSeqLen    = 65_536
	MaxBatch     = 4_096
	MaxChunkSize = 65_536
	MaxRecycles  = 64
)

// Limits of a sweep: what applies when limits.max_cells is not set, and what
// no file can lift.
const (
	DefaultMaxCells = 10_000
	HardMaxCells    = 100_000
)

// File is a test matrix for OOMFleet: the combinations of axes whose GPU memory
// boundary the fleet finds.
//
// It is the shape of the document that people write. The parser takes the names
// of its keys from here, and schema.json is generated from here, so the two and
// this text cannot drift apart; the values themselves are read from the source.
type File struct {
	// The version of this format: oomfleet/v1.
	APIVersion string `json:"apiVersion"`
	// The sweep's name: lower-case letters, digits and hyphens.
	Name     string       `json:"name"`
	Workload FileWorkload `json:"workload"`
	Target   FileTarget   `json:"target,omitzero"`
	Axes     FileAxes     `json:"axes"`
	// Rules that take cells out of the product of the axes. A rule that matches nothing is an error.
	Exclude []FileRule `json:"exclude,omitempty"`
	// Rules that add cells after the exclusions. An axis that a rule leaves out means every value of that axis.
	Include []FileRule `json:"include,omitempty"`
	Quota   FileQuota  `json:"quota,omitzero"`
	Search  FileSearch `json:"search,omitzero"`
	Limits  FileLimits `json:"limits,omitzero"`
	// A standing order for stacks to come. Without it a matrix is swept once.
	Rollout FileRollout `json:"rollout,omitzero"`
}

// FileWorkload is the program that every cell runs.
type FileWorkload struct {
	// Either esmfold, or module:function for a program of your own.
	Name string `json:"name"`
	// For esmfold: model, weights, stem, trunk, recycles. For a program of your own: any names with plain values, passed on as text.
	Params map[string]string `json:"params,omitempty"`
}

// FileESMFold is the parameters of the workload esmfold.
type FileESMFold struct {
	// The published configuration to build: esmfold_v1 (default) or esmfold_8b.
	Model string `json:"model,omitempty"`
	// Either random (default; memory does not depend on the values of weights) or the absolute path of a checkpoint on the agents.
	Weights string `json:"weights,omitempty"`
	// The language model's data type; default bfloat16.
	Stem string `json:"stem,omitempty"`
	// The folding trunk's data type; default float32.
	Trunk string `json:"trunk,omitempty"`
	// How often the trunk runs again (num_recycles); default 1.
	Recycles Recycles `json:"recycles,omitempty"`
}

// FileTarget is the hardware that the sweep is for.
type FileTarget struct {
	// The GPU model as NVML names it, for example NVIDIA H200; default installed, the one model that the registered agents have.
	GPU string `json:"gpu,omitempty"`
}

// FileAxes is the values to combine. Each is one value or a list of values.
type FileAxes struct {
	// Sequence lengths in residues.
	SeqLen SeqLens `json:"seq_len"`
	// Sequences at once; default 1.
	Batch Batches `json:"batch,omitempty"`
	// The trunk's chunk sizes; 0 (default) is no chunking.
	ChunkSize ChunkSizes `json:"chunk_size,omitempty"`
	// Driver versions as NVML prints them, taken as text; default installed, every driver that registered agents have on the target GPU.
	Driver Drivers `json:"driver,omitempty"`
	// Environments that the runner gets; default one item {}, which adds nothing.
	Env Envs `json:"env,omitempty"`
}

// FileRule selects cells: each key is one value or a list of values, a key that
// is left out means every value of that axis.
type FileRule struct {
	SeqLen    SeqLens    `json:"seq_len,omitempty"`
	Batch     Batches    `json:"batch,omitempty"`
	ChunkSize ChunkSizes `json:"chunk_size,omitempty"`
	Driver    Drivers    `json:"driver,omitempty"`
	// Whole environments: {} matches the default settings only.
	Env Envs `json:"env,omitempty"`
}

// FileQuota is the limit whose boundary is looked for.
type FileQuota struct {
	// What a quota limits: allocator (default: bytes that PyTorch's allocator reserves), process (the whole process) or device (what is left of the card).
	Kind string `json:"kind,omitempty"`
	// No probe goes below; a multiple of the step. Default: no bound.
	Min Amount `json:"min,omitempty"`
	// No probe goes above; a multiple of the step. Default: the card's memory.
	Max Amount `json:"max,omitempty"`
	// The grid of quotas: a multiple of 2MiB, which is the default.
	Step Amount `json:"step,omitempty"`
}

// FileSearch is how boundaries are looked for.
type FileSearch struct {
	// Either predict (default: replay recordings, certify with real probes) or bisect (real probes only).
	Strategy string `json:"strategy,omitempty"`
	// Which predictions real probes certify: edges (default), all, none, or "sample N%".
	Certify string `json:"certify,omitempty"`
}

// FileLimits keeps a typing mistake from becoming a sweep.
type FileLimits struct {
	// The most cells that the file may expand to; default 10000.
	MaxCells MaxCells `json:"max_cells,omitempty"`
}

// FileRollout makes the coordinator sweep the matrix again by itself, and says
// what a comparison with the sweep before takes for a change.
type FileRollout struct {
	// When to sweep again: new-stack, whenever an agent announces a GPU and driver that the matrix has not covered. Required.
	On string `json:"on"`
	// The most sweeps that start by themselves within 24 hours; default 4.
	MaxPerDay MaxPerDay `json:"max_per_day,omitempty"`
	// The difference that does not matter; default 16MiB.
	Margin Amount `json:"margin,omitempty"`
	// The rate at which verdicts should hold, 0.5 to 0.999; default 0.95.
	Confidence Confidence `json:"confidence,omitempty"`
	// How many more recordings a cell gets that a comparison cannot decide; default 0, none.
	Repeat Repeats `json:"repeat,omitempty"`
}

// The types of values that the schema describes in detail; nothing is decoded
// into them.
type (
	// SeqLens is one sequence length or a list of them.
	SeqLens []int
	// Batches is one batch size or a list of them.
	Batches []int
	// ChunkSizes is one chunk size or a list of them.
	ChunkSizes []int
	// Drivers is one driver version or a list of them.
	Drivers []string
	// Envs is one environment or a list of them.
	Envs []map[string]string
	// Amount is an amount of memory: bytes, or a number with a binary unit.
	Amount string
	// Recycles is a number of recycles.
	Recycles int
	// MaxCells is a number of cells.
	MaxCells int
	// MaxPerDay is a number of sweeps.
	MaxPerDay int
	// Repeats is a number of recordings.
	Repeats int
	// Confidence is a rate between one half and one.
	Confidence float64
)

// keysOf lists the YAML keys of a struct of this file in the order in which they
// are declared.
func keysOf(shape reflect.Type) []string {
	keys := make([]string, 0, shape.NumField())
	for i := range shape.NumField() {
		key, _, _ := strings.Cut(shape.Field(i).Tag.Get("json"), ",")
		keys = append(keys, key)
	}
	return keys
}

package proto

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// CellID identifies a cell: 32 lower-case hexadecimal digits of the SHA-256 of
// its canonical form. It is safe as a file name, a queue subject and a URL part.
type CellID string

// Workload names the program that a cell runs and the parameters that change
// what it allocates.
type Workload struct {
	// Name is "esmfold", or "module:function" for a user's own program.
	Name string `json:"name"`
	// Params are the workload's parameters as canonical text, for ESMFold:
	// model, weights ("random" or a path), stem, trunk (dtypes), recycles.
	Params map[string]string `json:"params,omitempty"`
}

// String is the workload as one word for tables: name, or name/model.
func (w Workload) String() string {
	if model := w.Params["model"]; model != "" {
		return w.Name + "/" + model
	}
	return w.Name
}

// Equal reports whether two workloads have the same name and parameters.
func (w Workload) Equal(o Workload) bool {
	return w.Name == o.Name && maps.Equal(w.Params, o.Params)
}

// Cell is one combination of a matrix. A cell is a value: all that tells it
// apart from another is here, and ID hashes exactly these fields.
type Cell struct {
	Workload Workload `json:"workload"`
	// GPU is the card's model as NVML names it, for example "NVIDIA H200".
	GPU string `json:"gpu"`
	// Driver is the driver's version as NVML prints it, kept as text.
	Driver string `json:"driver"`
	// SeqLen is the sequence length in residues, Batch the sequences at once.
	SeqLen int `json:"seq_len"`
	Batch  int `json:"batch"`
	// ChunkSize is the trunk's chunk size; 0 is no chunking.
	ChunkSize int `json:"chunk_size"`
	// Env is the environment that the cell adds to the runner's. A key with
	// an empty value is set to the empty string, which is not the same as unset.
	Env map[string]string `json:"env"`
	// QuotaKind and Step say what a boundary of this cell means.
	QuotaKind QuotaKind `json:"quota_kind"`
	Step      Bytes     `json:"step_bytes"`
}

// ID is the hash of workload and parameters, GPU model, axes, quota kind, step
// and protocol version. It depends on no map order.
func (c Cell) ID() CellID {
	if c.Env == nil {
		c.Env = map[string]string{}
	}
	text, err := json.Marshal(struct { // encoding/json sorts map keys
		Protocol int  `json:"protocol"`
		Cell     Cell `json:"cell"`
	}{Version, c})
	if err != nil {
		panic(fmt.Sprintf("proto: a cell is plain data and always marshals: %v", err))
	}
	sum := sha256.Sum256(text)
	return CellID(hex.EncodeToString(sum[:16]))
}

// String is the cell for people: "L384 B1 c64 580.10 KEY=VALUE".
func (c Cell) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "L%d B%d", c.SeqLen, c.Batch)
	if c.ChunkSize > 0 {
		fmt.Fprintf(&b, " c%d", c.ChunkSize)
	}
	fmt.Fprintf(&b, " %s", c.Driver)
	if env := EnvString(c.Env); env != "" {
		b.WriteString(" " + env)
	}
	return b.String()
}

// EnvString is an environment as KEY=VALUE pairs, sorted by key and separated
// by single spaces; the empty string for none.
func EnvString(env map[string]string) string {
	pairs := make([]string, 0, len(env))
	for _, key := range slices.Sorted(maps.Keys(env)) {
		pairs = append(pairs, key+"="+env[key])
	}
	return strings.Join(pairs, " ")
}

// allocatorVariable reports whether a variable of the environment sets the
// caching allocator alone: it moves blocks, and changes nothing of what the
// program asks for.
func allocatorVariable(name string) bool {
	return name == "PYTORCH_CUDA_ALLOC_CONF" || name == "PYTORCH_ALLOC_CONF"
}

// AllocatorEnv is the part of the environment that sets the caching allocator;
// never nil. Cells that differ in nothing else run one and the same program.
func (c Cell) AllocatorEnv() map[string]string {
	kept := make(map[string]string)
	for name, value := range c.Env {
		if allocatorVariable(name) {
			kept[name] = value
		}
	}
	return kept
}

// ProgramEnv is the rest of the environment, which may change the program
// itself; never nil.
func (c Cell) ProgramEnv() map[string]string {
	kept := make(map[string]string)
	for name, value := range c.Env {
		if !allocatorVariable(name) {
			kept[name] = value
		}
	}
	return kept
}

// Compare orders cells for tables and canonical lists: workload, GPU, driver,
// chunk size, batch, sequence length, environment, quota kind.
func (c Cell) Compare(o Cell) int {
	for _, r := range []int{
		strings.Compare(c.Workload.String(), o.Workload.String()),
		strings.Compare(c.GPU, o.GPU),
		strings.Compare(c.Driver, o.Driver),
		c.ChunkSize - o.ChunkSize,
		c.Batch - o.Batch,
		c.SeqLen - o.SeqLen,
		strings.Compare(EnvString(c.Env), EnvString(o.Env)),
		strings.Compare(string(c.QuotaKind), string(o.QuotaKind)),
	} {
		if r != 0 {
			return r
		}
	}
	return strings.Compare(string(c.ID()), string(o.ID()))
}

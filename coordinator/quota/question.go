package quota

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/oomfleet/oomfleet/allocator"
	"github.com/oomfleet/oomfleet/proto"
)

// DefaultRisk is the probability of an out-of-memory that a quota from fitted
// coefficients may carry where nobody says another.
const DefaultRisk = 0.01

// The risks that can be asked for: below, a handful of recordings says nothing;
// above, it is no quota.
const minRisk, maxRisk = 0.0001, 0.5

// Axes that no workload of ours comes near to; beyond them a question is a slip.
const maxSeqLen, maxBatch = 1_000_000, 100_000

// Subject is the workload and where it runs: all of a question but its length
// and batch. Empty GPU, Driver and Params match what the registry knows, as long
// as that is one.
type Subject struct {
	Workload  string            `json:"workload"`
	Params    map[string]string `json:"params,omitempty"`
	GPU       string            `json:"gpu"`
	Driver    string            `json:"driver"`
	ChunkSize int               `json:"chunk_size"`
	Env       map[string]string `json:"env"`
}

// Question asks for the quota of one run.
type Question struct {
	Subject
	SeqLen, Batch int
	Kind          proto.QuotaKind
	Origin        proto.Origin
	// Risk is how probable an out-of-memory may be where the answer is a
	// fit's; 0 is DefaultRisk.
	Risk float64
	// Extrapolate answers outside the fitted domain too, and marks it.
	Extrapolate bool
}

// Code is what kind of refusal it is, for machines.
type Code string

// The closed set of refusals.
const (
	// BadQuestion: the question is wrong in itself.
	BadQuestion Code = "bad_request"
	// UnknownDriver: no cell of this driver is known to this origin.
	UnknownDriver Code = "unknown_driver"
	// Ambiguous: several stacks or variants answer; the question must name one.
	Ambiguous Code = "ambiguous"
	// OutsideDomain: there is evidence, but not for this length and batch.
	OutsideDomain Code = "outside_domain"
	// NotCovered: nothing is known of this combination.
	NotCovered Code = "not_covered"
	// NothingFits: the smallest that is known needs more than was offered.
	NothingFits Code = "nothing_fits"
)

// Refusal is why there is no answer: a code for machines and one sentence for
// people, which says what to do.
type Refusal struct {
	Code Code
	Why  string
}

// Error is the sentence.
func (r *Refusal) Error() string { return r.Why }

func refusef(code Code, format string, args ...any) error {
	return &Refusal{Code: code, Why: fmt.Sprintf(format, args...)}
}

// Validate says what is wrong with the question itself; nil for nothing. The
// error is a *Refusal.
func (q Question) Validate() error {
	switch {
	case q.SeqLen < 1 || q.SeqLen > maxSeqLen:
		return refusef(BadQuestion, "seq_len is %d, and must be between 1 and %d", q.SeqLen, maxSeqLen)
	case q.Batch < 1 || q.Batch > maxBatch:
		return refusef(BadQuestion, "batch is %d, and must be between 1 and %d", q.Batch, maxBatch)
	}
	return q.valid()
}

// valid is Validate without length and batch.
func (q Question) valid() error {
	if q.ChunkSize < 0 {
		return refusef(BadQuestion, "chunk_size is %d, and must be at least 0 (0 is no chunking)", q.ChunkSize)
	}
	if q.Risk != 0 && !(q.Risk >= minRisk && q.Risk <= maxRisk) {
		return refusef(BadQuestion, "risk is %g, and must be a probability between %g and %g", q.Risk, minRisk, maxRisk)
	}
	if _, err := proto.ParseQuotaKind(string(q.Kind)); err != nil {
		return refusef(BadQuestion, "quota_kind: %v", err)
	}
	if _, err := proto.ParseOrigin(string(q.Origin)); err != nil {
		return refusef(BadQuestion, "origin: %v", err)
	}
	return q.settings()
}

// settings refuses what torch would, and the limit that is the answer itself.
// Settings that no replay knows are fine: their cells are probed.
func (q Question) settings() error {
	env := proto.Cell{Env: q.Env}.AllocatorEnv()
	var unsupported *allocator.UnsupportedEnvError
	if _, err := allocator.SettingsFromEnv(env); err != nil && !errors.Is(err, allocator.ErrBackend) && !errors.As(err, &unsupported) {
		return refusef(BadQuestion, "env: %v", err)
	}
	for name, conf := range env {
		if strings.Contains(strings.Join(strings.Fields(conf), ""), "per_process_memory_fraction") {
			return refusef(BadQuestion, "env: %s sets per_process_memory_fraction, which is what the quota sets: leave it out", name)
		}
	}
	return nil
}

// risk is the asked risk or the default.
func (q Question) risk() float64 {
	if q.Risk == 0 {
		return DefaultRisk
	}
	return q.Risk
}

// target is what a fit must predict for the question's kind.
func (q Question) limitsProcess() bool { return q.Kind != proto.QuotaAllocator }

// within reports whether all that some says is so in all.
func within(some, all map[string]string) bool {
	for name, value := range some {
		if got, ok := all[name]; !ok || got != value {
			return false
		}
	}
	return true
}

// sortedKeys lists a set for people.
func sortedKeys[V any](set map[string]V) string {
	return strings.Join(slices.Sorted(maps.Keys(set)), ", ")
}

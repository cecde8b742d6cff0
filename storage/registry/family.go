package registry

import (
	"cmp"
	"slices"
	"time"

	"github.com/oomfleet/oomfleet/proto"
)

// FamilyKey identifies the cells that a few recordings may determine: those of
// one workload on one stack that differ in length, batch, allocator settings
// and quota alone. A batch of one takes other paths through many programs than
// larger ones do, so the two are families of their own.
type FamilyKey struct {
	Origin proto.Origin `json:"origin"`
	// Family is the canonical JSON of what the cells have in common.
	Family string `json:"family"`
}

// Batch classes of a family.
const (
	singleBatch  = "1"
	severalBatch = "2+"
)

// FamilyOf is the family of a cell. It is known before anything was run. The
// allocator's own variables are left out, since they move blocks and change
// nothing of what a program asks for, and so are quota kind and step, since a
// recording has no quota.
func FamilyOf(origin proto.Origin, c proto.Cell) FamilyKey {
	class := severalBatch
	if c.Batch == 1 {
		class = singleBatch
	}
	return FamilyKey{Origin: origin, Family: canonical(struct {
		Workload  proto.Workload    `json:"workload"`
		GPU       string            `json:"gpu"`
		Driver    string            `json:"driver"`
		ChunkSize int               `json:"chunk_size"`
		Env       map[string]string `json:"env"`
		Batch     string            `json:"batch"`
	}{c.Workload, c.GPU, c.Driver, c.ChunkSize, c.ProgramEnv(), class})}
}

// Compare orders keys: origin, family.
func (k FamilyKey) Compare(o FamilyKey) int {
	return cmp.Or(cmp.Compare(k.Origin, o.Origin), cmp.Compare(k.Family, o.Family))
}

// ProgramDomain is where a piece of a program holds; all ends are included. It
// is coarser than the program's own word: a replay may still refuse a cell.
type ProgramDomain struct {
	SeqLen proto.Range `json:"seq_len"`
	Batch  proto.Range `json:"batch"`
	// Partial is whether the last chunk may hold fewer rows than the others.
	Partial bool `json:"partial,omitempty"`
}

// Holds reports whether a cell of the program's family may lie in the domain.
func (d ProgramDomain) Holds(c proto.Cell) bool {
	within := func(n int, r proto.Range) bool { return n >= r[0] && n <= r[1] }
	full := d.Partial || c.ChunkSize == 0 || c.Batch*c.SeqLen%c.ChunkSize == 0
	return within(c.SeqLen, d.SeqLen) && within(c.Batch, d.Batch) && full
}

// ProgramHistoryLimit is how many earlier programs a family remembers.
const ProgramHistoryLimit = 16

// Program is what a family's recordings came to.
type Program struct {
	Family FamilyKey `json:"family"`
	// Inputs are the recordings that it was made from, sorted.
	Inputs []proto.Digest `json:"inputs"`
	// Digest names the program in the trace store; empty when there is none.
	Digest proto.Digest `json:"digest,omitempty"`
	// Refused is why the recordings give no program. With NeedMore further
	// recordings may help; without, every length and batch is recorded.
	Refused  string          `json:"refused,omitempty"`
	NeedMore bool            `json:"need_more,omitempty"`
	Domains  []ProgramDomain `json:"domains,omitempty"`
	// Tested says how far the program was held against recordings that it was
	// not made from.
	Tested string `json:"tested,omitempty"`
	// Stale is what a later recording showed to be otherwise: the program
	// predicts nothing any more.
	Stale string `json:"stale,omitempty"`
	// Earlier are the family's programs before this one, oldest first, at most
	// ProgramHistoryLimit. Predictions may still name them.
	Earlier []proto.Digest `json:"earlier,omitempty"`
	// Revision counts changes of this family from 1; Index is the raft index,
	// Set the log entry's time.
	Revision int       `json:"revision"`
	Index    uint64    `json:"index"`
	Set      time.Time `json:"set"`
}

// Usable reports whether p predicts cells; a nil program does not.
func (p *Program) Usable() bool { return p != nil && p.Digest != "" && p.Stale == "" }

// Covers reports whether a cell of the family may be predicted from p.
func (p *Program) Covers(c proto.Cell) bool {
	return p.Usable() && slices.ContainsFunc(p.Domains, func(d ProgramDomain) bool { return d.Holds(c) })
}

// MadeFrom reports whether p was made from exactly these recordings, sorted.
func (p *Program) MadeFrom(inputs []proto.Digest) bool {
	return p != nil && slices.Equal(p.Inputs, inputs)
}

// PredictedFrom is what the record's prediction was read off; empty without one.
func (r *Record) PredictedFrom() proto.PredictedFrom {
	if r.Prediction == nil {
		return ""
	}
	switch {
	case r.Prediction.Program != "":
		return proto.FromProgram
	case r.Prediction.Lesson != nil:
		return proto.FromProbe
	}
	if run := r.Recording(); run != nil && run.Trace != nil && run.Trace.Digest == r.Prediction.Trace {
		return proto.FromRecording
	}
	return proto.FromSettings
}

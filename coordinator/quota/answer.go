package quota

import (
	"github.com/oomfleet/oomfleet/proto"
)

// Basis says what an answer rests on. The set is closed.
type Basis string

// The bases, best first.
const (
	// BasisBoundary: real probes found the boundary of exactly this cell.
	BasisBoundary Basis = "boundary"
	// BasisPrediction: replay named the boundary of exactly this cell; nothing
	// was probed yet, or nothing was to be.
	BasisPrediction Basis = "prediction"
	// BasisRecording: a recording of this length and batch was replayed now.
	BasisRecording Basis = "recording"
	// BasisProgram: the family's allocation program was replayed now.
	BasisProgram Basis = "program"
	// BasisTranslated: the same cell under another kind of quota.
	BasisTranslated Basis = "translated"
	// BasisNeighbour: the boundary of a longer or larger run, an upper bound.
	BasisNeighbour Basis = "neighbour"
	// BasisCoefficients: the fit's upper bound at the risk.
	BasisCoefficients Basis = "coefficients"
)

// Recommendation is a quota with its evidence.
type Recommendation struct {
	Asked
	Amounts
	Grounds
	// Article is what the rules of thumb would have asked for.
	Article []Rule `json:"article"`
	// Notes are what a reader should know before trusting the numbers.
	Notes []string `json:"notes"`
	Stamp
}

// Asked is the question as it was understood.
type Asked struct {
	Subject
	SeqLen    int             `json:"seq_len"`
	Batch     int             `json:"batch"`
	QuotaKind proto.QuotaKind `json:"quota_kind"`
	Origin    proto.Origin    `json:"origin"`
}

// Amounts are the answer's bytes.
type Amounts struct {
	// Quota is what to ask for: Survive plus Margin, rounded up to the step.
	Quota proto.Bytes `json:"quota_bytes"`
	// Survive is the smallest quota that the evidence holds to pass, and every
	// larger one with it; for coefficients it is the bound at the risk.
	Survive   proto.Bytes `json:"survive_bytes"`
	Margin    proto.Bytes `json:"margin_bytes"`
	MarginWhy string      `json:"margin_why"`
	// NoRetry is a quota from which on the allocator never flushes and tries
	// again; absent where it is not known.
	NoRetry *proto.Bytes `json:"no_retry_bytes,omitempty"`
	// BandsKnown is false when larger quotas than Survive may fail again: a
	// bisection sees one edge of several.
	BandsKnown bool         `json:"bands_known"`
	FailBands  []proto.Band `json:"fail_bands"`
	// Predicted is the fit's expectation below its bound.
	Predicted proto.Bytes `json:"predicted_bytes,omitempty"`
	// Outside is what such a process holds on the card beside the allocator's
	// memory (the most that was measured), CardTotal the card that evidence
	// comes from; 0 where it is not known.
	Outside   proto.Bytes `json:"outside_allocator_bytes,omitempty"`
	CardTotal proto.Bytes `json:"card_total_bytes,omitempty"`
	Step      proto.Bytes `json:"step_bytes"`
}

// Grounds say what the amounts rest on.
type Grounds struct {
	Basis     Basis           `json:"basis"`
	CellState proto.CellState `json:"cell_state,omitempty"`
	CellID    proto.CellID    `json:"cell_id,omitempty"`
	Evidence  []Evidence      `json:"evidence"`
	// Domain is where the basis holds; none for a boundary, which holds at its
	// own cell.
	Domain *proto.Domain `json:"domain,omitempty"`
	// Extrapolated marks an answer from outside the domain.
	Extrapolated bool `json:"extrapolated"`
	// Risk is the probability of an out-of-memory that a fit's bound leaves;
	// absent for every other basis, which is no statement about probability.
	Risk *float64 `json:"risk,omitempty"`
	// Translation is set where the kind of the evidence is not the asked one.
	Translation *Translation `json:"translation,omitempty"`
	// Torch is the version of the stack that the evidence is of.
	Torch string `json:"torch,omitempty"`
}

// Evidence is one thing that an answer rests on.
type Evidence struct {
	// What is cell, prediction, recording, program, coefficients or overhead.
	What  string          `json:"what"`
	Cell  string          `json:"cell,omitempty"`
	ID    proto.CellID    `json:"cell_id,omitempty"`
	State proto.CellState `json:"state,omitempty"`
	// Passes and Fails count the probes at the boundary and one step below.
	Passes  int          `json:"passes,omitempty"`
	Fails   int          `json:"fails,omitempty"`
	Trace   proto.Digest `json:"trace,omitempty"`
	Program proto.Digest `json:"program,omitempty"`
	// Bytes is what it says, Detail the rest of it in words.
	Bytes  proto.Bytes `json:"bytes,omitempty"`
	Detail string      `json:"detail,omitempty"`
	// Index is the log position that set it, AgeSeconds how long ago that was;
	// 0 where it is not known.
	Index      uint64  `json:"index,omitempty"`
	AgeSeconds float64 `json:"age_seconds,omitempty"`
}

// Translation is how a quota of one kind became one of another: the bytes that
// a process holds outside the allocator were added or taken off.
type Translation struct {
	From proto.QuotaKind `json:"from_kind"`
	To   proto.QuotaKind `json:"to_kind"`
	// Outside is what was added (or, towards allocator, taken off): process
	// peak less reserved peak. Context is the part of it that was held before
	// the first tensor, Modules the rest.
	Outside proto.Bytes `json:"outside_allocator_bytes"`
	Context proto.Bytes `json:"context_bytes,omitempty"`
	Modules proto.Bytes `json:"modules_bytes,omitempty"`
	// Recordings is how many it was measured in.
	Recordings int `json:"recordings"`
}

// Rule is what a rule of thumb asks for, beside the quota.
type Rule struct {
	Rule  string      `json:"rule"`
	Asks  proto.Bytes `json:"asks_bytes"`
	Basis string      `json:"basis"`
	// Waste is what it asks for beyond the quota; negative for a shortfall.
	Waste proto.Bytes `json:"waste_bytes"`
	// Verdict is what a run under it would come to.
	Verdict Verdict `json:"verdict"`
}

// Verdict is what a run under some other quota would come to. The set is closed.
type Verdict string

// The verdicts. Below a bound, or where bands are not known or lie below the
// boundary, a quota may pass or fail.
const (
	Passes     Verdict = "passes"
	Fails      Verdict = "fails"
	NotAssured Verdict = "not assured"
)

// Stamp says at which log position an answer holds, how old that may be at most,
// and who answered.
type Stamp struct {
	AppliedIndex uint64  `json:"applied_index"`
	AgeSeconds   float64 `json:"age_seconds"`
	Role         string  `json:"role"`
}

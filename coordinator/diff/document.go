package diff

import (
	"math"

	"github.com/oomfleet/oomfleet/fit"
	"github.com/oomfleet/oomfleet/proto"
)

// Document is a comparison of two sweeps; docs/rollouts.md describes it.
type Document struct {
	Before Stack `json:"before"`
	After  Stack `json:"after"`
	// Terms on which the comparison was made.
	Basis Basis `json:"basis"`
	// Verdict is changed if any group changed, same if all are the same, else
	// need more. Summary is the verdict in one line.
	Verdict proto.VerdictWord `json:"verdict"`
	Summary string            `json:"summary"`
	Counts  Counts            `json:"counts"`
	Groups  []Group           `json:"groups"`
	Cells   []Cell            `json:"cells"`
	// Unpaired are cells that one side lacks; no verdict rests on them.
	Unpaired []Unpaired `json:"unpaired"`
	// Repeat are cells that need more recordings.
	Repeat []Repeat `json:"repeat"`
	// Jobs says what all this means for those who run under quotas.
	Jobs Jobs `json:"jobs"`
}

// Stack is one side of a comparison.
type Stack struct {
	Sweep  proto.MatrixRef `json:"sweep"`
	GPU    string          `json:"gpu"`
	Driver string          `json:"driver"`
	// CUDA and Torch are those of the side's recordings, the newest where
	// there are several; empty where nothing was recorded.
	CUDA  string `json:"cuda,omitempty"`
	Torch string `json:"torch,omitempty"`
}

// Basis is what both sides have in common, and how they were judged.
type Basis struct {
	Origin     proto.Origin    `json:"origin"`
	QuotaKind  proto.QuotaKind `json:"quota_kind"`
	Step       proto.Bytes     `json:"step_bytes"`
	Margin     proto.Bytes     `json:"margin_bytes"`
	Confidence float64         `json:"confidence"`
	// RecordingsOnly is whether one set of cells was compared under two versions
	// of torch: boundaries, which are not told apart by torch, are left out.
	RecordingsOnly bool `json:"recordings_only,omitempty"`
	// Correction says how the verdicts were kept honest although there are
	// many of them.
	Correction string   `json:"correction"`
	Notes      []string `json:"notes,omitempty"`
}

// Counts are the cells that both sides have, by verdict.
type Counts struct {
	Same     int `json:"same"`
	Changed  int `json:"changed"`
	NeedMore int `json:"need_more"`
}

// Group is what a group's recordings say, term by term.
type Group struct {
	Workload  proto.Workload    `json:"workload"`
	ChunkSize int               `json:"chunk_size"`
	Env       map[string]string `json:"env"`
	Verdict   proto.VerdictWord `json:"verdict"`
	// Moved names the terms that changed; empty if none did.
	Moved string           `json:"moved,omitempty"`
	Terms []fit.TermChange `json:"terms"`
	// Noise is how much runs differ, as standard deviation, by measure.
	Noise map[string]int64 `json:"noise_bytes,omitempty"`
	Notes []string         `json:"notes,omitempty"`
}

// Cell is one cell that both sides have.
type Cell struct {
	Before    proto.CellID      `json:"before_id"`
	After     proto.CellID      `json:"after_id"`
	Workload  proto.Workload    `json:"workload"`
	SeqLen    int               `json:"seq_len"`
	Batch     int               `json:"batch"`
	ChunkSize int               `json:"chunk_size"`
	Env       map[string]string `json:"env"`
	Verdict   proto.VerdictWord `json:"verdict"`
	Measures  []Measure         `json:"measures"`
	Job       *Job              `json:"job,omitempty"`
	// Reason says why there is less to compare than there should be.
	Reason string `json:"reason,omitempty"`
}

// Measure is one number of a cell on both sides: allocated, reserved, process
// or boundary.
type Measure struct {
	Name   string      `json:"name"`
	Before proto.Bytes `json:"before_bytes"`
	After  proto.Bytes `json:"after_bytes"`
	// Runs are the recordings that each side rests on; 0 for a boundary.
	Runs [2]int `json:"runs"`
	fit.Change
}

// Job is what a cell's numbers mean for a job of this cell.
type Job struct {
	// FitsOldQuota is whether a job still passes under the smallest quota that
	// sufficed before.
	FitsOldQuota bool `json:"fits_old_quota"`
	// NeedBefore and NeedAfter are what the job takes of a card at the least,
	// its boundary and what lies outside the allocator; 0 = not known.
	NeedBefore proto.Bytes `json:"card_need_before_bytes"`
	NeedAfter  proto.Bytes `json:"card_need_after_bytes"`
}

// Unpaired is a cell that only one side has a result of.
type Unpaired struct {
	Cell   string `json:"cell"`
	Only   string `json:"only"` // before or after
	Reason string `json:"reason,omitempty"`
}

// Repeat asks for more recordings of one cell on both sides.
type Repeat struct {
	Before proto.CellID `json:"before_id"`
	After  proto.CellID `json:"after_id"`
	Cell   string       `json:"cell"`
	// More is how many recordings each side needs beside what it has, as far
	// as the noise that was seen tells.
	More int `json:"more"`
	// Runs is how many recordings the side with fewer has.
	Runs int `json:"runs"`
	// HalfNow and HalfThen are half the widest interval of the cell now, and
	// as it is expected with More; 0 where nothing tells yet how runs differ.
	HalfNow  proto.Bytes `json:"half_width_now_bytes,omitempty"`
	HalfThen proto.Bytes `json:"half_width_then_bytes,omitempty"`
}

// Half is half the width that the widest interval is expected to have after so
// many repeats: it narrows with the root of the runs.
func (r Repeat) Half(repeats int) proto.Bytes {
	return proto.Bytes(float64(r.HalfNow) * math.Sqrt(float64(r.Runs)/float64(r.Runs+repeats)))
}

// Jobs is what a comparison means for those who run under quotas.
type Jobs struct {
	// QuotaTooSmall and CardTooSmall name cells that no longer fit the quota
	// that sufficed before, and the card that held them before.
	QuotaTooSmall []string `json:"quota_too_small"`
	CardTooSmall  []string `json:"card_too_small"`
	// Card is the card's memory that was asked about; 0 for none.
	Card      proto.Bytes `json:"card_bytes,omitempty"`
	Sentences []string    `json:"sentences"`
}

package proto

// Band is a run of failing quotas between the lowest pass and the boundary;
// both ends are inside the band and on the grid.
type Band struct {
	From Bytes `json:"from_bytes"`
	To   Bytes `json:"to_bytes"`
}

// CellState is how far a cell has come.
type CellState string

const (
	CellPending   CellState = "pending"   // nothing was run yet
	CellRunning   CellState = "running"   // a task is out
	CellRecorded  CellState = "recorded"  // a recording is in, no boundary yet
	CellPredicted CellState = "predicted" // replay named a boundary; with certify none it is final
	CellCertified CellState = "certified" // real probes hold the predicted edges
	CellBisected  CellState = "bisected"  // real probes alone found one edge
	CellAdaptive  CellState = "adaptive"  // the workload behaves otherwise under pressure
	CellFailed    CellState = "failed"    // given up, with a reason
	CellCancelled CellState = "cancelled" // every sweep that wanted it was cancelled
)

// Boundary is what is known of a cell's quotas.
type Boundary struct {
	// Boundary is the survive quota, LowestPass the smallest passing quota,
	// NoRetry the smallest from which on the allocator never flushes. Zero
	// means not known; a bisection knows neither of the last two.
	Boundary   Bytes  `json:"boundary_bytes"`
	LowestPass Bytes  `json:"lowest_pass_bytes"`
	NoRetry    Bytes  `json:"no_retry_bytes"`
	FailBands  []Band `json:"fail_bands"`
	// BandsKnown is false for a bisection: its edge may be any of several.
	BandsKnown bool `json:"bands_known"`
	// LayoutSensitive marks a prediction that depends on the addresses which
	// the driver hands out (ties between equal segments).
	LayoutSensitive bool `json:"layout_sensitive,omitempty"`
}

// Prediction is a boundary read off by replay: of a recording (the cell's own,
// or one of the same length and batch under other allocator settings), or of a
// program that was made from recordings of other lengths and batches.
type Prediction struct {
	Boundary
	// Trace is the recording that was replayed; empty for a program's.
	Trace Digest `json:"trace"`
	// Program is the program that was replayed; empty for a recording's.
	Program Digest `json:"program,omitempty"`
	// PeakAllocated and PeakReserved are the replay's peaks without a quota,
	// under the cell's settings; 0 = not known. They are no measurement.
	PeakAllocated Bytes `json:"predicted_peak_allocated_bytes,omitempty"`
	PeakReserved  Bytes `json:"predicted_peak_reserved_bytes,omitempty"`
	// RefusedPeak is what the replay has allocated at most when it is refused under
	// the quota one step below the boundary; 0 = not known. A run that is refused
	// there with another peak does something else than was replayed.
	RefusedPeak Bytes `json:"refused_peak_allocated_bytes,omitempty"`
	// Lesson is set when Trace is that of a probe that spoke against an earlier
	// prediction.
	Lesson *Lesson `json:"lesson,omitempty"`
	// Varies is set when a run of the cell was seen to free its blocks in another
	// order than the one that this is read off.
	Varies bool `json:"varies,omitempty"`
	// Refused is why replay would not predict (self-check, settings that it
	// cannot model, a cell outside the program's domain); then the boundary is
	// empty. A cell whose own recording is refused is bisected.
	Refused string `json:"refused,omitempty"`
}

// Lesson is how a probe spoke against a prediction, and what its trace showed. One
// that was refused as predicted, and elsewhere in the run, speaks against it too.
type Lesson struct {
	// Number counts the lessons on one source, from 1. The source is the
	// recording Trace or the program Program, and Said its word.
	Number  int      `json:"number"`
	Trace   Digest   `json:"trace,omitempty"`
	Program Digest   `json:"program,omitempty"`
	Said    Boundary `json:"said"`
	// Quota is the probe's, Passed whether it passed where a fail was said.
	Quota  Bytes      `json:"quota_bytes"`
	Passed bool       `json:"passed"`
	Kind   LessonKind `json:"kind,omitempty"`
}

// LessonKind is what a probe's trace shows beside what was predicted.
type LessonKind string

const (
	LessonCaught LessonKind = "caught" // it went on after a refusal
	LessonOrder  LessonKind = "order"  // the same blocks, freed elsewhere: runs differ
	LessonExtra  LessonKind = "extra"  // other blocks
	LessonSame   LessonKind = "same"   // the same requests, placed otherwise
)

// PredictedFrom says what a prediction was read off.
type PredictedFrom string

const (
	FromRecording PredictedFrom = "recording" // the cell's own
	FromSettings  PredictedFrom = "settings"  // a recording of its length and batch under other allocator settings
	FromProbe     PredictedFrom = "probe"     // a probe of the cell that spoke against another prediction
	FromProgram   PredictedFrom = "program"   // a program made from recordings of other lengths and batches
)

// CellReport is one cell in a status document: identity, state and numbers.
// Peaks are of the cell's own uncapped recording; 0 = not known. What replay says
// of a cell without one is in the predicted fields. Probes counts all runs under a
// quota, void ones included, and GPUSeconds is the time in seconds that runs of
// the cell occupied the card, its recordings' included.
type CellReport struct {
	ID             CellID            `json:"id"`
	GPU            string            `json:"gpu"`
	Driver         string            `json:"driver"`
	Workload       Workload          `json:"workload"`
	SeqLen         int               `json:"seq_len"`
	Batch          int               `json:"batch"`
	ChunkSize      int               `json:"chunk_size"`
	Env            map[string]string `json:"env"`
	QuotaKind      QuotaKind         `json:"quota_kind"`
	Step           Bytes             `json:"step_bytes,omitempty"`
	Origin         Origin            `json:"origin"`
	State          CellState         `json:"state"`
	Reason         string            `json:"reason,omitempty"`
	Boundary                         // boundary_bytes, lowest_pass_bytes, ...
	PredictedBytes Bytes             `json:"predicted_bytes,omitempty"`
	PeakAllocated  Bytes             `json:"peak_allocated_bytes"`
	PeakReserved   Bytes             `json:"peak_reserved_bytes"`
	ProcessPeak    Bytes             `json:"process_peak_bytes"`
	// PredictedFrom is what the prediction was read off; empty without one.
	PredictedFrom          PredictedFrom `json:"predicted_from,omitempty"`
	Program                Digest        `json:"program,omitempty"`
	PredictedPeakAllocated Bytes         `json:"predicted_peak_allocated_bytes,omitempty"`
	PredictedPeakReserved  Bytes         `json:"predicted_peak_reserved_bytes,omitempty"`

	Probes      int       `json:"probes"`
	GPUSeconds  float64   `json:"gpu_seconds"`
	LateResults int       `json:"late_results,omitempty"`
	Trace       *TraceRef `json:"trace,omitempty"`
	Stack       *Stack    `json:"stack,omitempty"`
	// Recordings are all uncapped runs that passed, in the order of the log:
	// the peaks above are the first one's.
	Recordings []Recording `json:"recordings,omitempty"`
}

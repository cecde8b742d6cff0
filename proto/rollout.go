package proto

// Rollout is what a sweep has to do with a new stack: what its matrix file asks
// for, what made the coordinator submit it, and what came of comparing it.
type Rollout struct {
	// Policy is the rollout section of the matrix file; a sweep that has one
	// is the matrix's standing order for stacks to come.
	Policy *RolloutPolicy `json:"policy,omitempty"`
	// Ended is whether the standing order was cancelled after its own cells had
	// settled; their results stay.
	Ended bool `json:"ended,omitempty"`
	// Trigger is nil for a sweep that a person submitted.
	Trigger *RolloutTrigger `json:"trigger,omitempty"`
	// Verdict is nil until the sweep has settled and was compared.
	Verdict *SweepVerdict `json:"verdict,omitempty"`
}

// RolloutPolicy is the rollout section of a matrix file.
type RolloutPolicy struct {
	// MaxPerDay is how many sweeps the coordinator may submit by itself for
	// this matrix within 24 hours.
	MaxPerDay int `json:"max_per_day"`
	// Margin is the difference that does not matter, Confidence the rate at
	// which verdicts should hold.
	Margin     Bytes   `json:"margin_bytes"`
	Confidence float64 `json:"confidence"`
	// Repeats is how many more recordings a cell gets of which a comparison
	// says that it needs more; 0 is none.
	Repeats int `json:"repeats,omitempty"`
}

// TriggerKind says why a sweep was submitted by no person, or beside a matrix.
type TriggerKind string

const (
	// TriggerNewStack: an agent announced a stack that a standing order had
	// not covered.
	TriggerNewStack TriggerKind = "new-stack"
	// TriggerRepeat: a comparison needs more recordings of some cells.
	TriggerRepeat TriggerKind = "repeat"
)

// RolloutTrigger is what made a sweep.
type RolloutTrigger struct {
	Kind TriggerKind `json:"kind"`
	// Of is the standing order, or the sweep whose cells are repeated.
	Of MatrixID `json:"of"`
	// Stack is the new stack and Agent the first one that announced it.
	Stack *Stack  `json:"stack,omitempty"`
	Agent AgentID `json:"agent,omitempty"`
	// Repeats is how many recordings of each cell a repeat asks for.
	Repeats int `json:"repeats,omitempty"`
}

// VerdictWord is what a comparison says; the set is closed.
type VerdictWord string

const (
	VerdictSame     VerdictWord = "same"      // any difference is within the margin
	VerdictChanged  VerdictWord = "changed"   // a difference is beyond doubt and beyond the margin
	VerdictNeedMore VerdictWord = "need more" // the recordings do not tell
)

// SweepVerdict is the short form of a comparison with the sweep that this one
// replaces. The whole of it is made again from the two sweeps when asked for.
type SweepVerdict struct {
	Base    MatrixID    `json:"base"`
	From    Stack       `json:"from"`
	To      Stack       `json:"to"`
	Verdict VerdictWord `json:"verdict"`
	// Summary is one line: "changed: context +40 MiB".
	Summary string `json:"summary"`
	// Same, Changed and NeedMore count the cells that both have.
	Same       int     `json:"same"`
	Changed    int     `json:"changed"`
	NeedMore   int     `json:"need_more"`
	Margin     Bytes   `json:"margin_bytes"`
	Confidence float64 `json:"confidence"`
}

// Recording is what one uncapped run of a cell showed; 0 = not known. The amounts
// are those of Meters.
type Recording struct {
	PeakAllocated  Bytes  `json:"peak_allocated_bytes,omitempty"`
	PeakReserved   Bytes  `json:"peak_reserved_bytes,omitempty"`
	ProcessPeak    Bytes  `json:"process_peak_bytes,omitempty"`
	Context        Bytes  `json:"context_bytes,omitempty"`
	Weights        Bytes  `json:"weights_bytes,omitempty"`
	LoadedReserved Bytes  `json:"loaded_reserved_bytes,omitempty"`
	CUDA           string `json:"cuda,omitempty"`
	Torch          string `json:"torch,omitempty"`
}

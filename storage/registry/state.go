package registry

import (
	"time"

	"github.com/oomfleet/oomfleet/proto"
)

// Key identifies a cell's record: the same cell measured and simulated are two
// records that never meet.
type Key struct {
	Origin proto.Origin `json:"origin"`
	Cell   proto.CellID `json:"cell"`
}

// Sweep is one submission of a matrix.
type Sweep struct {
	ID     proto.MatrixID `json:"id"`
	Name   string         `json:"name"`
	Origin proto.Origin   `json:"origin"`
	Search proto.Search   `json:"search"`
	// Source is the matrix file as it was submitted and Set its overrides, one
	// KEY=VALUE each: for people, who would not know the cells from the file
	// alone.
	Source string   `json:"source"`
	Set    []string `json:"set,omitempty"`
	// Cells are in canonical order (proto.Cell.Compare).
	Cells     []proto.CellID `json:"cells"`
	Cancelled bool           `json:"cancelled,omitempty"`
	// CancelledIndex is the raft index of the entry that cancelled it, else 0.
	CancelledIndex uint64 `json:"cancelled_index,omitempty"`
	// Submission is when and by what request the sweep was made.
	Submission
	// Rollout is what the sweep has to do with a new stack; nil for nothing.
	Rollout *proto.Rollout `json:"rollout,omitempty"`
}

// Run is what the registry keeps of one accepted result. The texts of its evidence
// (exception, tail of the output) are not kept; Why says what they came to.
// Seconds is the time that the run occupied the card.
type Run struct {
	Task        proto.TaskID    `json:"task"`
	Kind        proto.TaskKind  `json:"kind"`
	Quota       proto.Bytes     `json:"quota_bytes,omitempty"`
	Outcome     proto.Outcome   `json:"outcome"`
	Why         string          `json:"why,omitempty"`
	Agent       proto.AgentID   `json:"agent"`
	Stack       proto.Stack     `json:"stack"`
	Card        proto.Card      `json:"card"`
	Meters      proto.Meters    `json:"meters"`
	Seconds     float64         `json:"seconds"`
	Trace       *proto.TraceRef `json:"trace,omitempty"`
	AppliedTime time.Time       `json:"applied_time"`
	Index       uint64          `json:"index"`
}

// OpenTask is a task that was issued and has no accepted result yet.
type OpenTask struct {
	Task   proto.Task `json:"task"`
	Issued time.Time  `json:"issued"` // the log entry's time
}

// Record is all that is known of one cell of one origin.
type Record struct {
	Key    Key              `json:"key"`
	Cell   proto.Cell       `json:"cell"`
	Search proto.Search     `json:"search"`
	Sweeps []proto.MatrixID `json:"sweeps"`
	// Runs are accepted results in log order. NextRun numbers tasks, from 1.
	Runs    []Run      `json:"runs,omitempty"`
	Open    []OpenTask `json:"open,omitempty"`
	NextRun int        `json:"next_run"`
	// RunsBefore is how many of Runs were made before the record was last
	// reopened by a new sweep: they stay evidence, but a limit on repeats
	// counts from here, or a failed cell would be given up again at once.
	RunsBefore int `json:"runs_before,omitempty"`
	// Prediction is read off by replay, of this cell's recording or of what
	// stands in for it; nil until then.
	Prediction *proto.Prediction `json:"prediction,omitempty"`
	// Settled is set once and stays, unless a new sweep reopens the record
	// (see AddSweep); nil while the cell is in work.
	Settled *Settlement `json:"settled,omitempty"`
	// Lateness is what came without a matching open task.
	Lateness
	// LastIndex is the raft index of the last entry that changed what a plan
	// reads here. Late alone does not move it: doubled deliveries must not
	// make a plan stale.
	LastIndex uint64 `json:"last_index"`
}

// Settlement is the final word on a cell.
type Settlement struct {
	State    proto.CellState `json:"state"` // certified | predicted | bisected | adaptive | failed | cancelled
	Reason   string          `json:"reason,omitempty"`
	Boundary proto.Boundary  `json:"boundary"`
	Index    uint64          `json:"index"`
	// Revision counts the settlements of this cell from 1.
	Revision int `json:"revision,omitempty"`
}

// GroupKey identifies a set of coefficients.
type GroupKey struct {
	Origin    proto.Origin    `json:"origin"`
	QuotaKind proto.QuotaKind `json:"quota_kind"`
	// Group is the canonical JSON of the proto.Group.
	Group string `json:"group"`
}

// CoefficientSet is one committed fit of one group.
type CoefficientSet struct {
	Key    GroupKey             `json:"key"`
	Models []proto.Coefficients `json:"models"` // one per target
	// Evidence are the tasks whose recordings went in, sorted.
	Evidence []proto.TaskID `json:"evidence"`
	// Revision counts commits of this key from 1; Index is the raft index.
	Revision int       `json:"revision"`
	Index    uint64    `json:"index"`
	Fitted   time.Time `json:"fitted"`
}

// Member is a coordinator of the cluster: its raft id and its API's base URL,
// so that followers can send writers to the leader.
type Member struct {
	ID  string `json:"id"`
	API string `json:"api"`
	// CommandVersion is the newest command version that the member's build
	// applies. A version is proposed only when every voter has announced it.
	CommandVersion int `json:"command_version,omitempty"`
}

// View is a consistent read of the whole registry at one log position. All that
// it reaches is shared and must not be changed.
type View struct {
	AppliedIndex uint64
	AppliedTime  time.Time
	Sweeps       map[proto.MatrixID]*Sweep
	Records      map[Key]*Record
	// Coefficients are the newest set of each key; History the sets before
	// it, oldest first, at most HistoryLimit.
	Coefficients map[GroupKey]*CoefficientSet
	History      map[GroupKey][]*CoefficientSet
	// Settlements are those of before a cell was reopened, oldest first, at
	// most HistoryLimit.
	Settlements map[Key][]*Settlement
	// Programs are the newest of each family.
	Programs map[FamilyKey]*Program
	Members  map[string]Member
	// Late counts results for cells or tasks that the registry never knew.
	Late int
	// Restored is the position at which a backup replaced all that was there
	// before; 0 when that never happened.
	Restored uint64
}

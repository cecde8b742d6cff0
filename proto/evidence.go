package proto

// Digest is the SHA-256 of a stored object, 64 lower-case hexadecimal digits.
type Digest string

// TraceRef names a stored trace: its content hash, its size and its events.
type TraceRef struct {
	Digest Digest `json:"digest"`
	Size   Bytes  `json:"size_bytes"`
	Events int64  `json:"events"`
}

// Meters are the three ways in which a run's memory is seen. A value that could
// not be read is nil with a reason in Missing, never 0.
type Meters struct {
	// The allocator's own counters, from the runner.
	PeakAllocated *Bytes `json:"peak_allocated_bytes,omitempty"`
	PeakReserved  *Bytes `json:"peak_reserved_bytes,omitempty"`
	// Loaded*: after the weights were loaded, before the forward pass.
	LoadedAllocated *Bytes `json:"loaded_allocated_bytes,omitempty"`
	LoadedReserved  *Bytes `json:"loaded_reserved_bytes,omitempty"`
	Weights         *Bytes `json:"weights_bytes,omitempty"`
	// ProcessPeak is the most that the process held on the card, Context what
	// it held before its first tensor (both: device memory in use, less what
	// was in use before the process, or NVML's figure for the process).
	ProcessPeak *Bytes `json:"process_peak_bytes,omitempty"`
	Context     *Bytes `json:"context_bytes,omitempty"`
	// DeviceFreeBefore is what the card had free before the run began (under
	// a device quota: with the ballast in place).
	DeviceFreeBefore *Bytes `json:"device_free_before_bytes,omitempty"`
	DeviceTotal      *Bytes `json:"device_total_bytes,omitempty"`
	// NumAllocRetries and NumOOMs are the allocator's counters.
	NumAllocRetries *int64 `json:"num_alloc_retries,omitempty"`
	NumOOMs         *int64 `json:"num_ooms,omitempty"`
	// Missing says for a meter name why it could not be read.
	Missing map[string]string `json:"missing,omitempty"`
}

// Evidence is what an agent saw of one run. It holds no judgement: package
// outcome names the Outcome.
type Evidence struct {
	// ExitCode is the run's exit status; nil when a signal ended it or when
	// it never started. Signal is the signal's name ("killed").
	ExitCode *int   `json:"exit_code,omitempty"`
	Signal   string `json:"signal,omitempty"`
	// Phase is how far the run came: start, load, forward, done.
	Phase string `json:"phase,omitempty"`
	// Exception and Message are the error that the run itself reported,
	// Traceback its tail; StderrTail the last bytes it wrote to stderr.
	Exception  string `json:"exception,omitempty"`
	Message    string `json:"message,omitempty"`
	Traceback  string `json:"traceback,omitempty"`
	StderrTail string `json:"stderr_tail,omitempty"`
	TimedOut   bool   `json:"timed_out,omitempty"`
	// HostOOMKills is by how much the cgroup's oom_kill counter moved.
	HostOOMKills int64 `json:"host_oom_kills,omitempty"`
	// OutputFinite is whether every output was finite; nil when not reached.
	OutputFinite *bool  `json:"output_finite,omitempty"`
	Meters       Meters `json:"meters"`
	// Neighbours is how many other processes held memory on the card, and
	// NeighbourMoved the most less the least that was in use of them all during
	// the run.
	Neighbours     int   `json:"neighbours,omitempty"`
	NeighbourMoved Bytes `json:"neighbour_moved_bytes,omitempty"`
	// Settings are the allocator's effective settings as the run saw them,
	// and Dtypes the types really found in the parameters, per module.
	Settings map[string]string `json:"settings,omitempty"`
	Dtypes   map[string]string `json:"dtypes,omitempty"`
	// Fault is the agent's own trouble in running the task, in one sentence
	// that says what to do; then nothing was learnt about the cell.
	Fault string `json:"fault,omitempty"`
	// Seconds is the time that the run occupied the card; for a simulated
	// run it is the simulator's model of it.
	Seconds float64 `json:"seconds,omitempty"`
	// Trace is the uploaded trace, TraceTruncated whether its start was lost.
	Trace          *TraceRef `json:"trace,omitempty"`
	TraceTruncated bool      `json:"trace_truncated,omitempty"`
}

// Result carries a task's evidence and outcome back to the coordinator.
type Result struct {
	Task     TaskID   `json:"task"`
	Protocol int      `json:"protocol"`
	Fence    Fence    `json:"fence"`
	CellID   CellID   `json:"cell_id"`
	Origin   Origin   `json:"origin"`
	Kind     TaskKind `json:"kind"`
	Quota    Bytes    `json:"quota_bytes,omitempty"`
	Agent    AgentID  `json:"agent"`
	Stack    Stack    `json:"stack"`
	Card     Card     `json:"card"`
	Outcome  Outcome  `json:"outcome"`
	// Why is one sentence: what in the evidence decided the outcome.
	Why      string   `json:"why,omitempty"`
	Evidence Evidence `json:"evidence"`
}

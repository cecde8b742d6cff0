package proto

import (
	"crypto/sha256"
	"encoding/hex"
)

// Stack is what decides, beside the cell itself, how much memory a run takes.
type Stack struct {
	GPU          string `json:"gpu"`
	Driver       string `json:"driver"`
	CUDA         string `json:"cuda,omitempty"`
	Torch        string `json:"torch,omitempty"`
	Transformers string `json:"transformers,omitempty"`
	Python       string `json:"python,omitempty"`
}

// Pool names the queue that an agent pulls from: one per origin, GPU model and
// driver. Axis values never appear raw in a subject (dots would make tokens),
// so a pool is 16 hexadecimal digits of a hash.
type Pool string

// PoolOf returns the pool for tasks of this origin, GPU model and driver.
func PoolOf(origin Origin, gpu, driver string) Pool {
	sum := sha256.Sum256([]byte(string(origin) + "\x00" + gpu + "\x00" + driver))
	return Pool(hex.EncodeToString(sum[:8]))
}

// Pool returns the pool that an agent with this stack serves.
func (s Stack) Pool(origin Origin) Pool { return PoolOf(origin, s.GPU, s.Driver) }

// Card is the one physical (or simulated) GPU that an agent owns.
type Card struct {
	UUID  string `json:"uuid"`
	Total Bytes  `json:"total_bytes"`
}

// AgentID identifies an agent: derived from its card's UUID, in [a-z0-9-].
type AgentID string

// AgentInfo is what an agent announces of itself.
type AgentInfo struct {
	ID     AgentID `json:"id"`
	Origin Origin  `json:"origin"`
	Stack  Stack   `json:"stack"`
	Card   Card    `json:"card"`
	// Host is the machine's name; PID the agent's process.
	Host string `json:"host,omitempty"`
	PID  int    `json:"pid,omitempty"`
	// Version is the build of fleetctl that the agent runs.
	Version string `json:"version,omitempty"`
	// QuotaKinds are the kinds that this agent can enforce.
	QuotaKinds []QuotaKind `json:"quota_kinds"`
	// State is what it does; Reason says why, Task what it runs.
	State  AgentState `json:"state"`
	Reason string     `json:"reason,omitempty"`
	Task   TaskID     `json:"task,omitempty"`
	// SeenUnixMS is the agent's own clock at the announcement. It is shown
	// and compared for skew only; nothing is ordered by it.
	SeenUnixMS int64 `json:"seen_unix_ms,omitempty"`
}

// AgentState is what an agent is doing.
type AgentState string

const (
	AgentIdle        AgentState = "idle"
	AgentBusy        AgentState = "busy"
	AgentQuarantined AgentState = "quarantined"
	// AgentDraining: it finishes what it runs, takes no more, and ends.
	AgentDraining AgentState = "draining"
)

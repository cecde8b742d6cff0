package proto

import "slices"

// Control is what a coordinator says to the agents of a pool. It is heard by
// those that listen at that moment and kept by nobody: whoever says it looks at
// what the agents announce and says it again.
type Control struct {
	// Stop are tasks that were not open any more at log position Seen. A run of
	// one of them that was issued up to there teaches nothing, and is ended. A
	// task that was issued later, under the same id after a restored backup, is
	// another one.
	Stop []TaskID `json:"stop,omitempty"`
	Seen Fence    `json:"seen,omitempty"`
	// Drain are agents that are to take no more work and end; what they run may
	// go on for DrainSeconds, 0 for as long as an agent thinks right.
	Drain        []AgentID `json:"drain,omitempty"`
	DrainSeconds int       `json:"drain_seconds,omitempty"`
}

// Stops reports whether a run of t is to end.
func (c Control) Stops(t Task) bool { return t.Fence <= c.Seen && slices.Contains(c.Stop, t.ID) }

// Drains reports whether the agent is to take no more work and end.
func (c Control) Drains(id AgentID) bool { return slices.Contains(c.Drain, id) }

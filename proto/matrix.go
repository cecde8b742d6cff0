package proto

import "time"

// MatrixID identifies a submission of a matrix: [a-z0-9-].
type MatrixID string

// MatrixRef names a sweep in documents.
type MatrixRef struct {
	Name string   `json:"name"`
	ID   MatrixID `json:"id"`
}

// Counts says where the cells of a sweep stand. The numbers add up to Total.
type Counts struct {
	Total     int `json:"total"`
	Pending   int `json:"pending"`
	Running   int `json:"running"`
	Certified int `json:"certified"`
	Predicted int `json:"predicted"`
	Bisected  int `json:"bisected"`
	Adaptive  int `json:"adaptive"`
	Failed    int `json:"failed"`
	Cancelled int `json:"cancelled"`
}

// Settled is how many cells will not change any more.
func (c Counts) Settled() int {
	return c.Certified + c.Predicted + c.Bisected + c.Adaptive + c.Failed + c.Cancelled
}

// OpenCells are the cells of one stack that a run was asked for and has not come
// back: an agent is at work, or none is there.
type OpenCells struct {
	GPU    string `json:"gpu"`
	Driver string `json:"driver"`
	Cells  int    `json:"cells"`
	// Since is when the oldest of these runs was asked for, in the log's time.
	Since time.Time `json:"since"`
}

// Report is the status document of a sweep: what `fleetctl dev --submit --json`
// and `matrix status --json` print, and what the API answers.
type Report struct {
	Matrix       MatrixRef      `json:"matrix"`
	State        string         `json:"state"` // running | settled | cancelled
	Origin       Origin         `json:"origin"`
	Counts       Counts         `json:"counts"`
	Cells        []CellReport   `json:"cells"`
	Coefficients []Coefficients `json:"coefficients"`
	// Rollout is nil for a sweep that has to do with no new stack.
	Rollout *Rollout `json:"rollout,omitempty"`
	// Open is what a running sweep has asked agents for, one entry a stack.
	Open []OpenCells `json:"open,omitempty"`
	// AppliedIndex is the log position that this answer was read at, Role the
	// answering node's ("leader" or "follower").
	AppliedIndex uint64 `json:"applied_index"`
	Role         string `json:"role,omitempty"`
}

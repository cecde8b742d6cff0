package registry

import (
	"github.com/oomfleet/oomfleet/proto"
)

// Command is one entry of the replicated log: exactly one field beside Version
// is set. Commands are data; times, ids and fits are computed before they are
// proposed and travel as they are.
type Command struct {
	Version         int              `json:"v"`
	AddSweep        *AddSweep        `json:"add_sweep,omitempty"`
	CancelSweep     *CancelSweep     `json:"cancel_sweep,omitempty"`
	Issue           *Issue           `json:"issue,omitempty"`
	TakeResult      *TakeResult      `json:"take_result,omitempty"`
	SetPrediction   *SetPrediction   `json:"set_prediction,omitempty"`
	SetProgram      *SetProgram      `json:"set_program,omitempty"`
	Settle          *Settle          `json:"settle,omitempty"`
	SetCoefficients *SetCoefficients `json:"set_coefficients,omitempty"`
	SetMember       *SetMember       `json:"set_member,omitempty"`
	SetVerdict      *SetVerdict      `json:"set_verdict,omitempty"`
}

// CommandVersion is the newest command version this build applies. All that was
// added before the first release is version 1: no log of an older build is kept
// anywhere. Needs says what raises it after that.
const CommandVersion = 1

// AddSweep adds a submission and the records of cells not known yet. The same
// id again changes nothing; the same id with other cells is refused.
//
// A cell that is known joins the sweep: its search is widened to what any of
// its sweeps asks for. A settled record is reopened, keeping its runs, when it
// was cancelled, when it failed (submitting again is how failed cells are
// retried), or when the new sweep asks for more than those before (a stricter
// certification, prediction instead of bisection, a wider range of quotas).
type AddSweep struct {
	ID     proto.MatrixID `json:"id"`
	Name   string         `json:"name"`
	Origin proto.Origin   `json:"origin"`
	Search proto.Search   `json:"search"`
	// Source is the matrix file, Set its overrides; cells are what the two
	// came to.
	Source string       `json:"source"`
	Set    []string     `json:"set,omitempty"`
	Cells  []proto.Cell `json:"cells"`
	// Rollout holds the policy or the trigger of the sweep; see Sweep.
	Rollout *proto.Rollout `json:"rollout,omitempty"`
	// Request is the key of a client's request, empty for none. The same again
	// is the sweep that it has made, whatever ID it comes under; see Submission.
	Request string `json:"request,omitempty"`
}

// CancelSweep stops a sweep: cells that no other live sweep wants are settled
// as cancelled and their open tasks closed. A sweep that has settled is refused,
// unless it is a standing order: that ends, and its results stay.
type CancelSweep struct {
	ID proto.MatrixID `json:"id"`
}

// Issue opens tasks. Seen is the applied index of the view that the plan was
// made from; a request whose record changed since (Record's own LastIndex) is
// refused by being left out of the reply, and the plan is made again.
type Issue struct {
	Seen     uint64         `json:"seen"`
	Requests []IssueRequest `json:"requests"`
}

// IssueRequest asks for one run of a cell.
type IssueRequest struct {
	Key            Key            `json:"key"`
	Kind           proto.TaskKind `json:"kind"`
	Quota          proto.Bytes    `json:"quota_bytes,omitempty"`
	TimeoutSeconds int            `json:"timeout_seconds"`
	// Expect is what a prediction says of a probe.
	Expect proto.Expectation `json:"expect,omitempty"`
	// ExpectPeak is proto.Task.ExpectPeak.
	ExpectPeak proto.Bytes `json:"expect_peak_allocated_bytes,omitempty"`
	// Repeat asks for one more recording of a cell that has settled with a
	// result; its settlement stays. Without it the cell must be in work.
	Repeat bool `json:"repeat,omitempty"`
}

// TakeResult offers an agent's result; the registry takes the first one under
// the current fence and counts every other as late.
type TakeResult struct {
	Result proto.Result `json:"result"`
}

// SetPrediction stores what replay said of a cell: from a recording, or from a
// program. The same source again changes nothing.
type SetPrediction struct {
	Key        Key              `json:"key"`
	Prediction proto.Prediction `json:"prediction"`
}

// SetProgram stores what a family's recordings came to. The first word on the
// same recordings holds; what may still be added to it is that it is stale,
// which needs the family's program to be the one named.
type SetProgram struct {
	Family FamilyKey `json:"family"`
	// Inputs are the recordings; their order does not matter.
	Inputs   []proto.Digest  `json:"inputs"`
	Program  proto.Digest    `json:"program,omitempty"`
	Refused  string          `json:"refused,omitempty"`
	NeedMore bool            `json:"need_more,omitempty"`
	Domains  []ProgramDomain `json:"domains,omitempty"`
	Tested   string          `json:"tested,omitempty"`
	Stale    string          `json:"stale,omitempty"`
}

// Settle ends a cell's search. A settled cell is never settled again.
type Settle struct {
	Key        Key        `json:"key"`
	Settlement Settlement `json:"settlement"`
	// Runs is how many runs the plan had seen; a different number refuses.
	Runs int `json:"runs"`
	// Seen is the applied index of the view that the plan was made from; a
	// record that changed since (a new sweep may have widened its search)
	// refuses. Zero is not checked.
	Seen uint64 `json:"seen,omitempty"`
}

// SetCoefficients commits a fit. The same models from the same evidence again
// change nothing.
type SetCoefficients struct {
	Key      GroupKey             `json:"key"`
	Models   []proto.Coefficients `json:"models"`
	Evidence []proto.TaskID       `json:"evidence"`
}

// SetMember makes a coordinator's API address known to all; a member without one
// is forgotten, since it has left the cluster.
type SetMember struct {
	Member Member `json:"member"`
}

// Reply is what Apply returns for a command.
type Reply struct {
	// Index is the raft index of the entry.
	Index uint64 `json:"index"`
	// Issued are the tasks that Issue opened, fence and id filled in.
	Issued []proto.Task `json:"issued,omitempty"`
	// Accepted is whether the command changed what it is about. Refused says
	// why not, in a sentence; it is empty when nothing is wrong and there was
	// only nothing to do (the same command again).
	Accepted bool   `json:"accepted"`
	Refused  string `json:"refused,omitempty"`
	// Sweep is the sweep that AddSweep is about: its ID, or what the same request
	// made before.
	Sweep proto.MatrixID `json:"sweep,omitempty"`
	// New, Known and Settled count the cells of AddSweep as they stand after
	// it: new to the registry, known and in work, known and settled.
	New     int `json:"new,omitempty"`
	Known   int `json:"known,omitempty"`
	Settled int `json:"settled,omitempty"`
	// Closed are the open tasks that CancelSweep closed.
	Closed []proto.Task `json:"closed,omitempty"`
}

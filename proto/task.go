package proto

import (
	"errors"
	"fmt"
)

// TaskID identifies one run that was asked for: the origin's letter, the cell's id
// and a running number of the cell, as in s-CELL-3. It is safe in a queue subject:
// [a-z0-9-].
type TaskID string

// Fence is the raft index of the log entry that issued a task.
type Fence uint64

// TaskKind is what a run is for.
type TaskKind string

const (
	// TaskRecord is an uncapped run with the allocator's trace.
	TaskRecord TaskKind = "record"
	// TaskProbe is a run under a quota.
	TaskProbe TaskKind = "probe"
)

// Expectation is what a prediction says of a probe; empty when nothing does.
type Expectation string

// What a probe is expected to do.
const (
	ExpectPass Expectation = "pass"
	ExpectFail Expectation = "fail"
)

// Task is one run that an agent is asked for.
type Task struct {
	ID       TaskID   `json:"id"`
	Protocol int      `json:"protocol"`
	Fence    Fence    `json:"fence"`
	Attempt  int      `json:"attempt"` // of this kind and quota in the cell, from 1
	Kind     TaskKind `json:"kind"`
	Origin   Origin   `json:"origin"`
	CellID   CellID   `json:"cell_id"`
	Cell     Cell     `json:"cell"`
	// Quota is the limit of the cell's kind; 0 for a recording.
	Quota Bytes `json:"quota_bytes,omitempty"`
	// Expect makes an agent watch the allocator of a probe and keep its trace if
	// the probe does otherwise; an agent that does not know it just probes.
	Expect Expectation `json:"expect,omitempty"`
	// ExpectPeak is, of a probe that is expected to fail, what it has allocated
	// at most when it is refused; 0 = not known. One that is refused with another
	// peak does otherwise too, and its trace is kept.
	ExpectPeak Bytes `json:"expect_peak_allocated_bytes,omitempty"`
	// TimeoutSeconds ends a run that hangs; counted from the runner's start
	// of this run, imports excluded.
	TimeoutSeconds int `json:"timeout_seconds"`
}

// Pool is the queue that this task belongs to.
func (t Task) Pool() Pool { return PoolOf(t.Origin, t.Cell.GPU, t.Cell.Driver) }

// Watched reports whether the run is to be made with the allocator's trace.
func (t Task) Watched() bool { return t.Kind == TaskRecord || t.Expect != "" }

// Teaches reports whether the trace of a run with this outcome is worth keeping:
// that of a recording always is, that of a probe when it passed or was refused
// against what was expected.
func (t Task) Teaches(o Outcome) bool {
	switch v := o.Verdict(); {
	case t.Kind == TaskRecord:
		return true
	case t.Expect == ExpectPass:
		return v == VerdictFail
	case t.Expect == ExpectFail:
		return v == VerdictPass
	}
	return false
}

// Keeps reports whether the trace of a run that ended so is to be kept: where it
// Teaches, and where a refusal that was expected came elsewhere than it was
// expected.
func (t Task) Keeps(o Outcome, m Meters) bool {
	return t.Teaches(o) || t.Expect == ExpectFail && t.ExpectPeak > 0 && o.Verdict() == VerdictFail &&
		m.PeakAllocated != nil && *m.PeakAllocated != t.ExpectPeak
}

// Validate reports everything that makes a task unusable, at once. Agents call
// it on what the queue delivers; a task that fails is dropped, never retried.
func (t Task) Validate() error {
	var errs []error
	if t.Protocol != Version {
		errs = append(errs, fmt.Errorf("protocol %d, this build speaks %d", t.Protocol, Version))
	}
	if t.ID == "" || t.Fence == 0 {
		errs = append(errs, errors.New("no id or no fence"))
	}
	if t.CellID != t.Cell.ID() {
		errs = append(errs, fmt.Errorf("cell id %.80s does not match the cell", t.CellID))
	}
	switch t.Kind {
	case TaskRecord:
		if t.Quota != 0 {
			errs = append(errs, fmt.Errorf("a recording has no quota, got %d bytes", int64(t.Quota)))
		}
	case TaskProbe:
		if t.Quota <= 0 {
			errs = append(errs, fmt.Errorf("a probe needs a quota, got %d bytes", int64(t.Quota)))
		}
	default:
		errs = append(errs, fmt.Errorf("unknown kind %.80q", t.Kind))
	}
	if _, err := ParseQuotaKind(string(t.Cell.QuotaKind)); err != nil {
		errs = append(errs, err)
	}
	if t.TimeoutSeconds <= 0 {
		errs = append(errs, errors.New("no timeout"))
	}
	return errors.Join(errs...)
}

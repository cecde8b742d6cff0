package api

import (
	"errors"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/oomfleet/oomfleet/coordinator"
	"github.com/oomfleet/oomfleet/matrix"
	"github.com/oomfleet/oomfleet/storage/registry"
	"github.com/oomfleet/oomfleet/storage/trace"
)

// Codes for machines; the sentence beside one is for people.
const (
	CodeBadMatrix   = "bad_matrix"
	CodeBadRequest  = "bad_request"
	CodeNotFound    = "not_found"
	CodeRefused     = "refused"
	CodeNoLeader    = "no_leader"
	CodeUnavailable = "unavailable"
	CodeNotCovered  = "not_covered"
	CodeNoToken     = "no_token"
	CodeBadToken    = "bad_token"
	CodeStaleToken  = "stale_token"
	CodeForbidden   = "forbidden"
	CodeUncertain   = "uncertain"
	CodeTooOld      = "too_old"
	CodeNotEmpty    = "not_empty"
	CodeBadBackup   = "bad_backup"
	CodeTooMany     = "too_many"
	CodeInternal    = "internal"

	CodeMethodNotAllowed = "method_not_allowed"
)

// Problem is the body of every error answer.
type Problem struct {
	// Code is one of the Code constants, Message a sentence that says what to
	// do. Details are a matrix file's problems.
	Code    string          `json:"code"`
	Message string          `json:"message"`
	Details matrix.Problems `json:"details,omitempty"`
	status  int
}

// Error is the sentence.
func (p *Problem) Error() string { return p.Message }

// GetStatus is the HTTP status (huma's name for it).
func (p *Problem) GetStatus() int { return p.status }

func problem(status int, code, message string) *Problem {
	return &Problem{Code: code, Message: message, status: status}
}

// uncertain is the answer to a write whose fate nobody knows.
func uncertain() *Problem {
	return problem(http.StatusServiceUnavailable, CodeUncertain, "the leader was lost on the way, so this may or may not have been done; the same request again is harmless, and a new one that is to be a sweep of its own is not: look at matrix list first")
}

// problemOf turns an error of the packages below into an answer; what is not
// known to be harmless stays inside and is logged.
func (s *server) problemOf(err error) error {
	var bad matrix.Problems
	var refused *coordinator.RefusedError
	switch {
	case errors.As(err, &bad):
		p := problem(http.StatusUnprocessableEntity, CodeBadMatrix, "the matrix file has errors")
		p.Details = bad
		return p
	case errors.As(err, &refused):
		return problem(http.StatusConflict, CodeRefused, refused.Why)
	case errors.Is(err, coordinator.ErrUnknownSweep):
		return problem(http.StatusNotFound, CodeNotFound, "there is no such sweep; matrix list shows them")
	case errors.Is(err, registry.ErrUncertain):
		return uncertain()
	case errors.Is(err, registry.ErrNotLeader), errors.Is(err, registry.ErrClosed):
		return noLeader()
	case errors.Is(err, registry.ErrOldMember):
		return problem(http.StatusConflict, CodeRefused, "a coordinator of the cluster is of an older build and could not apply this: upgrade it, or remove it if it is gone for good")
	case errors.Is(err, registry.ErrTooLarge):
		return problem(http.StatusRequestEntityTooLarge, CodeRefused, "the matrix has too many cells for one submission; split it")
	case errors.Is(err, trace.ErrNoLink):
		return problem(http.StatusConflict, CodeRefused, "the trace store has no address that clients could use (it is a folder, or listens on its own machine only): "+
			"fetch the trace through a coordinator, or name traces.public_url in the coordinators' configuration")
	case errors.Is(err, trace.ErrNotFound):
		return problem(http.StatusNotFound, CodeNotFound, "the trace store has no such trace")
	}
	s.Log.Error("request failed", "error", err)
	return problem(http.StatusServiceUnavailable, CodeUnavailable, "a part of the fleet cannot be reached; the coordinator's log says which")
}

// problemAt is problemOf for a request that needs one part of the fleet besides
// the registry: where that is why there is no answer, the answer names it.
func (s *server) problemAt(part string, err error) *Problem {
	p := s.problemOf(err).(*Problem)
	if p.Code == CodeUnavailable {
		p.Message = part + " cannot be reached or used: is it running, and are its address and keys right? the coordinator's log says more"
	}
	return p
}

// The parts that a request may need besides the registry.
const (
	partQueue  = "the queue (NATS)"
	partTraces = "the trace store"
)

var _ huma.StatusError = (*Problem)(nil)

package api

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/oomfleet/oomfleet/proto"
)

// The headers of an answer that say where it stands, and the one by which a
// client that has written something asks for answers that know of it.
const (
	headerIndex   = "Oomfleet-Applied-Index"
	headerAge     = "Oomfleet-Age-Seconds"
	headerRole    = "Oomfleet-Role"
	headerAtLeast = "Oomfleet-Min-Index"
)

// knownWithin is how long a read waits for this node to apply what the reader
// knows of: a follower hears of an entry within a heartbeat, and one that does
// not is better passed over.
const knownWithin = 2 * time.Second

// written stamps the answer of a write with the log position that holds it, when
// the answer begins: a write is applied here before it is answered.
type written struct {
	http.ResponseWriter
	server *server
	begun  bool
}

// Unwrap is for http.ResponseController.
func (w *written) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// WriteHeader implements http.ResponseWriter.
func (w *written) WriteHeader(status int) {
	if !w.begun {
		w.begun = true
		w.Header().Set(headerIndex, strconv.FormatUint(w.server.Registry.View().AppliedIndex, 10))
	}
	w.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (w *written) Write(text []byte) (int, error) {
	if !w.begun {
		w.WriteHeader(http.StatusOK)
	}
	return w.ResponseWriter.Write(text)
}

// knows reports whether this node may answer a reader who has seen a write. If
// not, it has answered: that it is too far behind, or with the leader's word on
// a sweep that it has not heard of. Whoever was told of a sweep by somebody else,
// a shell script's next line for one, has no position to ask from.
func (s *server) knows(w http.ResponseWriter, r *http.Request, pattern string) bool {
	if text := r.Header.Get(headerAtLeast); text != "" {
		index, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			writeProblem(w, problem(http.StatusUnprocessableEntity, CodeBadRequest, fmt.Sprintf("%s is a log position, not %q", headerAtLeast, text)))
			return false
		}
		if at := s.reach(r.Context(), index); at < index {
			writeProblem(w, problem(http.StatusServiceUnavailable, CodeTooOld, fmt.Sprintf(
				"this replica stands at log position %d and %d was asked for; ask another coordinator", at, index)))
			return false
		}
	}
	if pattern != "GET "+sweepPath || s.leads() || r.Header.Get(hopHeader) != "" || s.Registry.LeaderID() == "" {
		return true
	}
	id := proto.MatrixID(strings.TrimPrefix(r.URL.Path, strings.TrimSuffix(sweepPath, "{id}")))
	if s.Registry.View().Sweeps[id] != nil {
		return true
	}
	s.toLeader(w, r)
	return false
}

// reach waits until this node has applied index, for a while, and returns what
// it has applied.
func (s *server) reach(ctx context.Context, index uint64) uint64 {
	at := s.Registry.View().AppliedIndex
	if at >= index {
		return at
	}
	late := time.NewTimer(knownWithin)
	defer late.Stop()
	for at < index {
		select {
		case <-s.Registry.Changed(at):
		case <-late.C:
			return s.Registry.View().AppliedIndex
		case <-ctx.Done():
			return at
		}
		at = s.Registry.View().AppliedIndex
	}
	return at
}

// documentHeaders names an operation's answer headers in the OpenAPI document.
func documentHeaders(op *huma.Operation, names ...string) {
	about := map[string]*huma.Param{
		headerIndex: {Description: "the log position that the answer holds at", Schema: &huma.Schema{Type: huma.TypeInteger}},
		headerAge:   {Description: "how old the answer may be at most, in seconds; 0 on the leader", Schema: &huma.Schema{Type: huma.TypeNumber}},
		headerRole: {Description: "who answered", Schema: &huma.Schema{Type: huma.TypeString,
			Enum: []any{roleLeader, roleFollower, roleCatchingUp}}},
	}
	answer := op.Responses["200"]
	if answer == nil {
		return
	}
	if answer.Headers == nil {
		answer.Headers = map[string]*huma.Param{}
	}
	for _, name := range names {
		answer.Headers[name] = about[name]
	}
}

func ptr[T any](v T) *T { return &v }

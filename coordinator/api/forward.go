package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"
)

// hopHeader marks a request that a follower has passed on already.
const hopHeader = "Oomfleet-Forwarded-By"

// maxBody bounds what a writer may send: a matrix file and its overrides.
const maxBody = 4 << 20

// forwardedReadWithin bounds the wait for a leader to begin its answer to a
// read: what it gives itself to find a majority, and the way. A write waits as
// long as the proxy does, since giving it up leaves its fate unknown.
const forwardedReadWithin = consistentWithin + time.Second

// forward passes writes that reach a follower on to the leader, once. Reads are
// answered here, or passed on where they ask for what only the leader knows.
func (s *server) forward(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if reads(r) || s.leads() {
			r.Body = http.MaxBytesReader(w, r.Body, limit(r))
			next.ServeHTTP(w, r)
			return
		}
		s.toLeader(w, r)
	})
}

// reads reports whether a request changes nothing.
func reads(r *http.Request) bool { return r.Method == http.MethodGet || r.Method == http.MethodHead }

// limit is how much a request may send.
func limit(r *http.Request) int64 {
	if r.URL.Path == restorePath {
		return maxBackup
	}
	return maxBody
}

// toLeader passes a request on, unless it was passed on already.
func (s *server) toLeader(w http.ResponseWriter, r *http.Request) {
	leader := s.Registry.LeaderID()
	member, known := s.Registry.View().Members[leader]
	if leader == "" || !known || r.Header.Get(hopHeader) != "" {
		writeProblem(w, noLeader())
		return
	}
	s.pass(w, r, member.API)
}

func (s *server) pass(w http.ResponseWriter, r *http.Request, base string) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, limit(r)))
	if err != nil {
		writeProblem(w, badBody(err, limit(r)))
		return
	}
	target, err := url.JoinPath(base, r.URL.EscapedPath())
	if err != nil {
		writeProblem(w, problem(http.StatusServiceUnavailable, CodeNoLeader, "the leader's address is not usable: "+base))
		return
	}
	if r.URL.RawQuery != "" {
		target += "?" + r.URL.RawQuery
	}
	out, err := http.NewRequestWithContext(r.Context(), r.Method, target, bytes.NewReader(body))
	if err != nil {
		writeProblem(w, problem(http.StatusServiceUnavailable, CodeNoLeader, "the leader's address is not usable: "+base))
		return
	}
	out.Header.Set("Content-Type", r.Header.Get("Content-Type"))
	out.Header.Set(hopHeader, s.ID)
	// With a key net/http sends a request once more where a connection that it had
	// kept ends without an answer; an empty list says that and sends no key.
	switch key := r.Header.Get(headerKey); {
	case key != "":
		out.Header.Set(headerKey, key)
	case strings.HasSuffix(r.URL.Path, "/cancel"):
		out.Header[headerKey] = []string{}
	}
	if token, ok := bearer(r.Header); ok {
		if !s.Peers.Insecure && !private(out.URL) {
			s.Log.Error("request was not passed on, the leader's address is plain http", "leader", base)
			writeProblem(w, problem(http.StatusServiceUnavailable, CodeUnavailable, "the leader can only be reached in plain text, so this coordinator does not pass the token on; ask the leader itself"))
			return
		}
		show(out, token)
	}
	var late *time.Timer
	if reads(r) {
		ctx, cancel := context.WithCancel(out.Context())
		defer cancel()
		late = time.AfterFunc(forwardedReadWithin, cancel)
		out = out.WithContext(ctx)
	}
	answer, err := s.proxy.Do(out)
	if late != nil {
		late.Stop()
	}
	if err != nil {
		s.Log.Warn("leader could not be reached", "leader", base, "error", err)
		p := problem(http.StatusServiceUnavailable, CodeNoLeader, "the leader does not answer; try again in a second")
		if !reads(r) && !refused(err) {
			p = uncertain() // it may have got that far
		}
		writeProblem(w, p)
		return
	}
	defer answer.Body.Close()
	for name, values := range answer.Header {
		if name == "Content-Type" || strings.HasPrefix(name, "Oomfleet-") {
			w.Header()[name] = values
		}
	}
	w.WriteHeader(answer.StatusCode)
	if _, err := io.Copy(w, answer.Body); err != nil {
		s.Log.Warn("the leader's answer broke off", "leader", base, "error", err)
		panic(http.ErrAbortHandler) // or it would end here as if it were whole
	}
}

// badBody is the answer to a request whose body could not be read.
func badBody(err error, most int64) *Problem {
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		return problem(http.StatusRequestEntityTooLarge, CodeBadRequest, fmt.Sprintf("the request is larger than %d MiB", most>>20))
	case errors.Is(err, os.ErrDeadlineExceeded):
		return problem(http.StatusRequestTimeout, CodeBadRequest, "the request took too long to come; send it again on a faster line, or split it")
	}
	return problem(http.StatusBadRequest, CodeBadRequest, "the request broke off before its end")
}

// refused reports whether a request was not sent at all.
func refused(err error) bool {
	var dial *net.OpError
	return errors.As(err, &dial) && dial.Op == "dial"
}

func writeProblem(w http.ResponseWriter, p *Problem) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(p.status)
	json.NewEncoder(w).Encode(p)
}

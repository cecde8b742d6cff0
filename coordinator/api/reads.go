package api

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/oomfleet/oomfleet/storage/registry"
)

// Position says where an answer stands: what it was read from and how old that
// may be.
type Position struct {
	// AppliedIndex is the log position that the answer holds at.
	AppliedIndex uint64 `json:"applied_index"`
	// AgeSeconds is how old that may be at most: 0 on the leader; on a follower
	// the time since it last knew that it had everything.
	AgeSeconds float64 `json:"age_seconds"`
	// Role is the answering node's: leader, follower or catching up.
	Role string `json:"role"`
}

// The roles of a node.
const (
	roleLeader     = "leader"
	roleFollower   = "follower"
	roleCatchingUp = "catching up"
)

// The names of the parameters that every read has.
const (
	paramConsistent = "consistent"
	paramMaxAge     = "max_age"
)

// consistentWithin bounds the wait for a majority.
const consistentWithin = 5 * time.Second

// look takes a view and says where it stands. The age is taken first: a view of
// after is not older than it says.
func (s *server) look() (registry.View, Position) {
	age, _ := s.Registry.Standing()
	role := s.role()
	view := s.Registry.View()
	return view, Position{AppliedIndex: view.AppliedIndex, AgeSeconds: seconds(age), Role: role}
}

// seconds rounds up to a millisecond: an age is a bound.
func seconds(age time.Duration) float64 { return math.Ceil(age.Seconds()*1000) / 1000 }

// role is what this node is to those who ask. A node that leads or follows and
// has not applied its log yet is of little use, and says so.
func (s *server) role() string {
	_, ready := s.Registry.Standing()
	switch {
	case !ready:
		return roleCatchingUp
	case s.leads():
		return roleLeader
	}
	return roleFollower
}

// queries are the query parameters of each operation, by mux pattern.
type queries map[string]parameters

// parameters are those that an operation takes, sorted, and of them those that
// may be given more than once.
type parameters struct{ names, lists []string }

// queriesOf reads them off the OpenAPI document, after adding to reads what all
// of them take.
func queriesOf(h huma.API) queries {
	out := queries{}
	for path, item := range h.OpenAPI().Paths {
		for _, op := range operationsOf(item) {
			if op.Method == http.MethodGet && ofRegistry(op.OperationID, path) {
				op.Parameters = append(op.Parameters,
					&huma.Param{Name: paramConsistent, In: "query", Schema: &huma.Schema{Type: huma.TypeBoolean},
						Description: "answer with everything that was acknowledged before; the leader does, after a majority confirmed it"},
					&huma.Param{Name: paramMaxAge, In: "query", Schema: &huma.Schema{Type: huma.TypeString},
						Description: "refuse rather than answer from a replica that may be further behind, like 5s or 500ms"},
					&huma.Param{Name: headerAtLeast, In: "header", Schema: &huma.Schema{Type: huma.TypeInteger, Minimum: ptr(0.0)},
						Description: "answer from this log position on: what " + headerIndex + " of a write said, so that one reads what one wrote"})
				documentHeaders(op, headerIndex, headerAge, headerRole)
			}
			if op.Method != http.MethodGet {
				documentHeaders(op, headerIndex)
			}
			var takes parameters
			for _, p := range op.Parameters {
				if p.In != "query" {
					continue
				}
				takes.names = append(takes.names, p.Name)
				if p.Schema != nil && p.Schema.Type == huma.TypeArray {
					takes.lists = append(takes.lists, p.Name)
				}
			}
			slices.Sort(takes.names)
			out[op.Method+" "+path] = takes
		}
	}
	return out
}

// ofRegistry reports whether a read answers from this node's replica, at once.
func ofRegistry(id, path string) bool {
	return strings.HasPrefix(path, "/v1/") && !slices.Contains([]string{"agents", "trace", "trace-url", "watch", "cluster"}, id)
}

// refuse names the parameters that an operation does not take, a misspelt filter
// would else select everything; and one that is given twice, of which all but
// one value would else be passed over.
func (q queries) refuse(pattern string, given url.Values) *Problem {
	known, ok := q[pattern]
	if !ok {
		return nil // no operation of ours: the mux says so
	}
	names, twice := []string{}, []string{}
	for name, values := range given {
		switch {
		case !slices.Contains(known.names, name):
			names = append(names, strconv.Quote(name))
		case len(values) > 1 && !slices.Contains(known.lists, name):
			twice = append(twice, name)
		}
	}
	if len(names) == 0 && len(twice) > 0 {
		return problem(http.StatusUnprocessableEntity, CodeBadRequest, fmt.Sprintf("query parameter %s is given more than once, and takes one value", slices.Min(twice)))
	}
	if len(names) == 0 {
		return nil
	}
	slices.Sort(names)
	takes := "none"
	if len(known.names) > 0 {
		takes = strings.Join(known.names, ", ")
	}
	return problem(http.StatusUnprocessableEntity, CodeBadRequest, fmt.Sprintf("unknown query parameter %s; known here: %s", strings.Join(names, ", "), takes))
}

// check looks at the parameters of a request, and sees to it that a read is
// answered from a state as new as it asks for.
func (s *server) check(mux *http.ServeMux, known queries) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		given, err := url.ParseQuery(r.URL.RawQuery)
		if err != nil {
			writeProblem(w, problem(http.StatusUnprocessableEntity, CodeBadRequest, "the query cannot be read: "+err.Error()))
			return
		}
		none, pattern := mux.Handler(r)
		if pattern == "" && unknown(w, r, none) {
			return
		}
		if p := known.refuse(pattern, given); p != nil {
			writeProblem(w, p)
			return
		}
		if slices.Contains(known[pattern].names, paramConsistent) {
			if !s.fresh(w, r, given) || !s.knows(w, r, pattern) {
				return
			}
			_, at := s.look()
			w.Header().Set(headerIndex, strconv.FormatUint(at.AppliedIndex, 10))
			w.Header().Set(headerAge, strconv.FormatFloat(at.AgeSeconds, 'f', -1, 64))
			w.Header().Set(headerRole, at.Role)
			if at.Role == roleCatchingUp {
				w = &behind{ResponseWriter: w, leaderless: s.Registry.LeaderID() == ""}
			}
		}
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			w = &written{ResponseWriter: w, server: s}
		}
		mux.ServeHTTP(w, r)
	})
}

// fresh reports whether this node may answer now. If not, it has answered: with
// the leader's word, or with why there is none.
func (s *server) fresh(w http.ResponseWriter, r *http.Request, given url.Values) bool {
	consistent, limit, p := freshness(given)
	switch {
	case p != nil:
		writeProblem(w, p)
	case !consistent && limit < 0:
		return true
	case s.leads(): // also for a bounded age: only a majority knows that this node still leads
		ctx, cancel := context.WithTimeout(r.Context(), consistentWithin)
		defer cancel()
		err := s.Registry.Consistent(ctx)
		if err == nil {
			return true
		}
		s.Log.Info("consistent read was refused", "error", err)
		writeProblem(w, noLeader())
	case consistent:
		s.toLeader(w, r)
	default:
		age, _ := s.Registry.Standing()
		if age <= limit {
			return true
		}
		writeProblem(w, problem(http.StatusServiceUnavailable, CodeTooOld, fmt.Sprintf(
			"this replica may be %s behind, and %s is the most that was asked for; ask another coordinator, or with consistent=true",
			age.Round(time.Millisecond), limit)))
	}
	return false
}

// freshness reads the two parameters; a limit below 0 is none.
func freshness(given url.Values) (consistent bool, limit time.Duration, p *Problem) {
	limit = -1
	if text := given.Get(paramConsistent); text != "" {
		var err error
		if consistent, err = strconv.ParseBool(text); err != nil {
			return false, limit, problem(http.StatusUnprocessableEntity, CodeBadRequest, fmt.Sprintf("consistent is true or false, not %q", text))
		}
	}
	text := given.Get(paramMaxAge)
	if text == "" {
		return consistent, limit, nil
	}
	limit, err := time.ParseDuration(text)
	if number, plain := strconv.ParseFloat(text, 64); plain == nil && number >= 0 && number < 1e9 {
		limit, err = time.Duration(number*float64(time.Second)), nil
	}
	switch {
	case err != nil || limit < 0:
		return consistent, limit, problem(http.StatusUnprocessableEntity, CodeBadRequest, fmt.Sprintf("max_age is a time like 5s or 500ms, or a number of seconds, not %q", text))
	case consistent:
		return consistent, limit, problem(http.StatusUnprocessableEntity, CodeBadRequest, "consistent and max_age exclude each other: a consistent answer has no age")
	}
	return consistent, limit, nil
}

func noLeader() *Problem {
	return problem(http.StatusServiceUnavailable, CodeNoLeader, "the coordinators are choosing a leader; try again in a second")
}

// readyz says whether this node should be asked at all.
func (s *server) readyz(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	if s.role() != roleCatchingUp {
		fmt.Fprintln(w, "ok")
		return
	}
	w.WriteHeader(http.StatusServiceUnavailable)
	why := "catching up with the log"
	if s.Registry.LeaderID() == "" {
		why = "no leader is known"
	}
	fmt.Fprintln(w, why)
}

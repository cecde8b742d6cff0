package api

import (
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/oomfleet/oomfleet/internal/secret"
)

// Role is what the bearer of a token may do; each role may all that the ones
// before it may.
type Role string

const (
	// RoleRead asks: every GET.
	RoleRead Role = "read"
	// RoleWrite submits and cancels too.
	RoleWrite Role = "write"
	// RoleAdmin changes the cluster itself and restores its state.
	RoleAdmin Role = "admin"
)

// ParseRole reads a role's name.
func ParseRole(name string) (Role, error) {
	switch r := Role(name); r {
	case RoleRead, RoleWrite, RoleAdmin:
		return r, nil
	}
	return "", errors.New(`a role is "read", "write" or "admin"`)
}

// may reports whether r includes other.
func (r Role) may(other Role) bool { return r.rank() >= other.rank() }

func (r Role) rank() int {
	switch r {
	case RoleRead:
		return 1
	case RoleWrite:
		return 2
	case RoleAdmin:
		return 3
	}
	return 0 // nobody: may nothing that needs a role
}

// adminPaths begin the paths whose writes change the cluster itself.
func adminPaths() []string {
	return []string{"/v1/cluster", "/v1/backup", "/v1/restore", "/v1/registry", collectPath}
}

// roleFor is what a request needs; "" for what everybody may ask: whether the
// process lives, and what the API looks like. Unknown paths need a token too.
func roleFor(method, path string) Role {
	read := method == http.MethodGet || method == http.MethodHead
	switch {
	case read && (path == "/healthz" || path == "/readyz" || strings.HasPrefix(path, "/openapi")):
		return ""
	case read && path == backupPath: // all there is, in one file
		return RoleAdmin
	case read:
		return RoleRead
	}
	for _, prefix := range adminPaths() {
		if path == prefix || strings.HasPrefix(path, prefix+"/") {
			return RoleAdmin
		}
	}
	return RoleWrite
}

// describeTokens says in the OpenAPI document how a token is shown. A coordinator
// on the loopback interface may want none, so none is an alternative.
func describeTokens(config *huma.Config) {
	config.Components.SecuritySchemes = map[string]*huma.SecurityScheme{"token": {Type: "http", Scheme: "bearer",
		Description: "made by fleetctl token new; read asks, write submits and cancels, admin changes the cluster and takes backups"}}
	config.Security = []map[string][]string{{"token": {}}, {}}
}

// authenticate lets a request pass whose token's role is enough. Each
// coordinator asks for itself: what a follower passes on carries the caller's
// own token, and the leader judges it again.
func (s *server) authenticate(next http.Handler) http.Handler {
	if s.Tokens == nil {
		return next
	}
	denied := &denials{log: s.Log}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		need := roleFor(r.Method, r.URL.Path)
		if need == "" {
			next.ServeHTTP(w, r)
			return
		}
		token, ok := bearer(r.Header)
		if !ok {
			challenge(w, r, denied, problem(http.StatusUnauthorized, CodeNoToken, "this coordinator wants a token: set $OOMFLEET_TOKEN_FILE, or send Authorization: Bearer"))
			return
		}
		holder, err := s.Tokens.Check(token, time.Now())
		switch {
		case errors.Is(err, ErrStaleToken):
			challenge(w, r, denied, problem(http.StatusUnauthorized, CodeStaleToken, "this token has expired; make a new one with fleetctl token new"))
		case err != nil:
			challenge(w, r, denied, problem(http.StatusUnauthorized, CodeBadToken, "this token is unknown here; it may have been taken back"))
		case !holder.Role.may(need):
			p := problem(http.StatusForbidden, CodeForbidden, "a token with the role "+string(holder.Role)+" may not do this; it needs the role "+string(need))
			denied.note(r, p, holder)
			writeProblem(w, p)
		default:
			next.ServeHTTP(w, r)
		}
	})
}

func challenge(w http.ResponseWriter, r *http.Request, denied *denials, p *Problem) {
	denied.note(r, p, Holder{})
	w.Header().Set("WWW-Authenticate", `Bearer realm="oomfleet"`)
	writeProblem(w, p)
}

// bearer reads the one token of a request. Two are none: what stands between may
// have looked at the other.
func bearer(h http.Header) (secret.Text, bool) {
	values := h.Values("Authorization")
	if len(values) != 1 {
		return secret.Text{}, false
	}
	scheme, token, ok := strings.Cut(values[0], " ")
	if !ok || !strings.EqualFold(scheme, "Bearer") || strings.TrimSpace(token) == "" {
		return secret.Text{}, false
	}
	return secret.Of(strings.TrimSpace(token)), true
}

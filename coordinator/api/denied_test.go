package api_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/oomfleet/oomfleet/coordinator/api"
)

// route is one operation of the API's own description.
type route struct{ method, path string }

// routes are all that the OpenAPI document describes, with something in the
// place of parameters.
func routes(t *testing.T, c *cluster, at string) []route {
	t.Helper()
	var doc struct {
		Paths map[string]map[string]any `json:"paths"`
	}
	if err := json.Unmarshal([]byte(c.ask("GET", at+"/openapi.json", "", http.Header{}).body), &doc); err != nil {
		t.Fatal(err)
	}
	var out []route
	for path, methods := range doc.Paths {
		for method := range methods {
			out = append(out, route{strings.ToUpper(method), strings.NewReplacer("{id}", "x", "{digest}", strings.Repeat("a", 64), "{cell}", "x").Replace(path)})
		}
	}
	return out
}

// TestEveryRouteRefuses goes through every route that the API describes: without a
// good token none but the open ones answers, and no write is a reader's.
func TestEveryRouteRefuses(t *testing.T) {
	c := newCluster(t)
	k := newKeyring(t)
	var log syncBuffer
	s := c.guarded("n1", k, &log, httptest.NewServer, api.Access{})
	all := routes(t, c, s.URL)
	writes := 0
	for _, r := range all {
		if strings.Contains(r.path, "{") {
			t.Fatalf("%s has a parameter that this test does not know", r.path)
		}
		open := slices.Contains([]string{"/healthz", "/readyz"}, r.path)
		if r.method != http.MethodGet {
			writes++
			bearer := http.Header{"Authorization": {"Bearer " + k.read.Reveal()}, "Content-Type": {"application/json"}}
			c.ask(r.method, s.URL+r.path, "{}", bearer).wantProblem(t, 403, api.CodeForbidden, "role")
		}
		if open {
			continue
		}
		token := k.admin.Reveal()
		for what, shown := range map[string]string{
			"nothing": "", "no scheme": token, "another scheme": "Token " + token, "in quotes": `Bearer "` + token + `"`, "cut": "Bearer " + token[:20],
			"two": "Bearer " + token + " " + token, "its hash": "Bearer sha256:" + strings.Repeat("ab", 32), "a comma": "Bearer " + token + ",",
		} {
			header := http.Header{"Content-Type": {"application/json"}}
			if shown != "" {
				header.Set("Authorization", shown)
			}
			got := c.ask(r.method, s.URL+r.path, "{}", header)
			if got.status != 401 {
				t.Errorf("%s %s with %s: %d %s", r.method, r.path, what, got.status, got.body)
			}
		}
		for _, name := range []string{"token", "access_token", "authorization"} {
			if got := c.ask(r.method, s.URL+r.path+"?"+name+"="+url.QueryEscape("Bearer "+token), "{}", http.Header{"Content-Type": {"application/json"}}); got.status != 401 {
				t.Errorf("%s %s with a token in the query: %d", r.method, r.path, got.status)
			}
		}
	}
	if len(all) < 25 || writes < 8 {
		t.Errorf("only %d routes, %d of them write", len(all), writes)
	}
	if n := len(c.machine.View().Sweeps); n != 0 {
		t.Errorf("%d sweeps", n)
	}
	if strings.Contains(log.String(), k.admin.Reveal()) || strings.Contains(log.String(), k.read.Reveal()) {
		t.Error("a token is in the log")
	}
}

// TestSpellingsOfAPath: another spelling of a path needs no smaller role than the
// path itself, whoever takes it for what.
func TestSpellingsOfAPath(t *testing.T) {
	c := newCluster(t)
	k := newKeyring(t)
	s := c.guarded("n1", k, &syncBuffer{}, httptest.NewServer, api.Access{})
	follower := c.guarded("n2", k, &syncBuffer{}, httptest.NewServer, api.Access{})
	for _, at := range []string{s.URL, follower.URL} {
		for _, path := range []string{"/v1/restore", "/v1/%72estore", "/v1//restore", "//v1/restore", "/v1/./restore", "/v1/x/../restore", "/v1/restore/", "/v1%2frestore", "/V1/restore"} {
			for _, method := range []string{"POST", "PUT", "PATCH", "DELETE"} {
				header := http.Header{"Authorization": {"Bearer " + k.write.Reveal()}, "Content-Type": {"application/json"}}
				if got := c.ask(method, at+path, "{}", header); got.status < 400 {
					t.Errorf("%s %s as a writer: %d %s", method, path, got.status, got.body)
				}
			}
		}
		for _, path := range []string{"/v1/backup", "/v1/%62ackup", "/v1//backup", "/v1/backup?x", "/v1/sweeps/../backup"} {
			header := http.Header{"Authorization": {"Bearer " + k.read.Reveal()}}
			if got := c.ask("GET", at+path, "", header); got.status < 400 {
				t.Errorf("GET %s as a reader: %d %q", path, got.status, got.kind)
			}
		}
	}
}

// TestRefusalsAreLogged: who was refused what is in the log, never what was shown,
// and a stranger does not fill it.
func TestRefusalsAreLogged(t *testing.T) {
	c := newCluster(t)
	k := newKeyring(t)
	var log syncBuffer
	s := c.guarded("n1", k, &log, httptest.NewServer, api.Access{})
	ask := func(path string, token string) {
		header := http.Header{"Content-Type": {"application/json"}}
		if token != "" {
			header.Set("Authorization", "Bearer "+token)
		}
		c.ask("POST", s.URL+path, "{}", header)
	}
	ask("/v1/sweeps?token="+k.admin.Reveal(), "")
	ask("/v1/sweeps", k.gone.Reveal())
	ask("/v1/sweeps", k.stale.Reveal())
	ask("/v1/restore", k.write.Reveal())
	for _, want := range []string{api.CodeNoToken, api.CodeBadToken, api.CodeStaleToken, api.CodeForbidden, "from=127.0.0.1", "method=POST", "path=/v1/restore", "holder=t.write", "role=write"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("%q is not in the log:\n%s", want, log.String())
		}
	}
	for range 100 {
		ask("/v1/"+strings.Repeat("long", 1000), k.gone.Reveal())
	}
	if n := strings.Count(log.String(), "request refused"); n < 20 || n > 60 { // a minute may begin anew meanwhile
		t.Errorf("%d refusals are in the log", n)
	}
	if strings.Contains(log.String(), strings.Repeat("long", 100)) {
		t.Error("the log has whole paths of strangers")
	}
	for name, token := range map[string]string{"admin": k.admin.Reveal(), "gone": k.gone.Reveal(), "stale": k.stale.Reveal(), "write": k.write.Reveal()} {
		if strings.Contains(log.String(), token) {
			t.Errorf("the %s token is in the log", name)
		}
	}
}

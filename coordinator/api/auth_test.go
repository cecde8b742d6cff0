package api_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/oomfleet/oomfleet/coordinator"
	"github.com/oomfleet/oomfleet/coordinator/api"
	"github.com/oomfleet/oomfleet/internal/secret"
	"github.com/oomfleet/oomfleet/storage/registry"
)

// keyring is a token file with one token of each kind.
type keyring struct {
	path                            string
	read, write, admin, stale, gone secret.Text
}

func newKeyring(t *testing.T) keyring {
	t.Helper()
	k := keyring{path: filepath.Join(t.TempDir(), "tokens")}
	var lines []string
	for _, one := range []struct {
		into *secret.Text
		role api.Role
		end  time.Time
		keep bool
	}{
		{&k.read, api.RoleRead, time.Time{}, true},
		{&k.write, api.RoleWrite, time.Now().Add(time.Hour), true},
		{&k.admin, api.RoleAdmin, time.Time{}, true},
		{&k.stale, api.RoleAdmin, time.Now().Add(-time.Second), true},
		{&k.gone, api.RoleAdmin, time.Time{}, false},
	} {
		token, holder, err := api.NewToken("t."+string(one.role), one.role, one.end)
		if err != nil {
			t.Fatal(err)
		}
		*one.into = token
		if one.keep {
			lines = append(lines, holder.Line()+" # a comment")
		}
	}
	k.store(t, "# who may ask\n\n"+strings.Join(lines, "\n")+"\n")
	return k
}

func (k keyring) store(t *testing.T, text string) {
	t.Helper()
	if err := os.WriteFile(k.path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// syncBuffer is a log that several goroutines write.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// guarded starts one node that wants tokens, over TLS if peers trusts any.
func (c *cluster) guarded(id string, k keyring, log *syncBuffer, start func(http.Handler) *httptest.Server, peers api.Access) *httptest.Server {
	c.Helper()
	node := replica{c, id}
	service, err := coordinator.New(coordinator.Config{}, coordinator.Deps{Registry: node, Queue: c.queue, Traces: c.traces})
	if err != nil {
		c.Fatal(err)
	}
	logger := slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	tokens, err := api.OpenTokens(k.path, logger)
	if err != nil {
		c.Fatal(err)
	}
	handler, err := api.New(api.Deps{ID: id, Version: "v1", Sweeps: service, Registry: node, Traces: c.traces, Agents: c.queue,
		Metrics: http.NotFoundHandler(), Tokens: tokens, Peers: peers, Log: logger})
	if err != nil {
		c.Fatal(err)
	}
	server := start(handler)
	c.Cleanup(server.Close)
	c.apply(registry.Command{SetMember: &registry.SetMember{Member: registry.Member{ID: id, API: server.URL, CommandVersion: registry.CommandVersion}}})
	return server
}

// TestRoles asks every kind of question with every kind of token.
func TestRoles(t *testing.T) {
	c := newCluster(t)
	k := newKeyring(t)
	var log syncBuffer
	s := c.guarded("n1", k, &log, httptest.NewServer, api.Access{})
	type row struct {
		name   string
		header string
		status map[string]int // by question
		code   string
	}
	questions := map[string]struct{ method, path, body string }{
		"health":  {"GET", "/healthz", ""},
		"openapi": {"GET", "/openapi.json", ""},
		"read":    {"GET", "/v1/sweeps", ""},
		"metrics": {"GET", "/metrics", ""},
		"write":   {"POST", "/v1/sweeps", `{"source":"x"}`},
		"cluster": {"POST", "/v1/cluster/remove", `{}`},
		"backup":  {"GET", "/v1/backup", ""},
		"restore": {"POST", "/v1/restore", "x"},
		"collect": {"POST", "/v1/traces/collect", `{}`},
		"drain":   {"POST", "/v1/agents/gpu-1/drain", `{}`},
		"import":  {"POST", "/v1/coefficients", `{}`},
		"unknown": {"GET", "/v1/nothing", ""},
	}
	open := func(read, write, admin int) map[string]int {
		return map[string]int{"health": 200, "openapi": 200, "read": read, "metrics": read, "write": write, "cluster": admin, "unknown": read,
			"backup": admin, "restore": admin, "import": write, "collect": admin, "drain": write}
	}
	const in = -1 // let in: whatever the operation itself answers
	for _, tt := range []row{
		{"no token", "", open(401, 401, 401), api.CodeNoToken},
		{"basic", "Basic dXNlcjpwYXNz", open(401, 401, 401), api.CodeNoToken},
		{"empty", "Bearer ", open(401, 401, 401), api.CodeNoToken},
		{"unknown", "Bearer " + k.gone.Reveal(), open(401, 401, 401), api.CodeBadToken},
		{"longer", "Bearer " + k.admin.Reveal() + "x", open(401, 401, 401), api.CodeBadToken},
		{"stale", "Bearer " + k.stale.Reveal(), open(401, 401, 401), api.CodeStaleToken},
		{"reader", "Bearer " + k.read.Reveal(), open(in, 403, 403), api.CodeForbidden},
		{"writer", "bearer " + k.write.Reveal(), open(in, in, 403), api.CodeForbidden},
		{"admin", "Bearer " + k.admin.Reveal(), open(in, in, in), ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for name, q := range questions {
				header := http.Header{"Content-Type": {"application/json"}}
				if tt.header != "" {
					header.Set("Authorization", tt.header)
				}
				got := c.ask(q.method, s.URL+q.path, q.body, header)
				switch want := tt.status[name]; want {
				case in:
					if got.status == 401 || got.status == 403 {
						t.Errorf("%s: %d %s", name, got.status, got.body)
					}
				case 200:
					if got.status != 200 {
						t.Errorf("%s: %d %s", name, got.status, got.body)
					}
				default:
					got.wantProblem(t, want, tt.code, "token")
				}
			}
		})
	}
	if n := len(c.machine.View().Sweeps); n != 0 {
		t.Errorf("%d sweeps", n)
	}
	for name, token := range map[string]secret.Text{"read": k.read, "write": k.write, "admin": k.admin, "stale": k.stale, "gone": k.gone} {
		if strings.Contains(log.String(), token.Reveal()) {
			t.Errorf("the %s token is in the log", name)
		}
	}
}

// ask is request with a header of its own.
func (c *cluster) ask(method, url, body string, header http.Header) answer {
	c.Helper()
	req, err := http.NewRequestWithContext(c.Context(), method, url, strings.NewReader(body))
	if err != nil {
		c.Fatal(err)
	}
	req.Header = header
	got, err := http.DefaultClient.Do(req)
	if err != nil {
		c.Fatal(err)
	}
	defer got.Body.Close()
	var text bytes.Buffer
	if _, err := text.ReadFrom(got.Body); err != nil {
		c.Fatal(err)
	}
	return answer{got.StatusCode, got.Header.Get("Content-Type"), text.String()}
}

func TestTwoTokensAreNone(t *testing.T) {
	c := newCluster(t)
	k := newKeyring(t)
	s := c.guarded("n1", k, &syncBuffer{}, httptest.NewServer, api.Access{})
	both := http.Header{"Authorization": {"Bearer " + k.read.Reveal(), "Bearer " + k.write.Reveal()}}
	c.ask("GET", s.URL+"/v1/sweeps", "", both).wantProblem(t, 401, api.CodeNoToken, "token")
}

// TestTokenFileChanges: a token is taken back without a restart, and a file
// that cannot be read does not open the door nor close it.
func TestTokenFileChanges(t *testing.T) {
	k := newKeyring(t)
	var log syncBuffer
	tokens, err := api.OpenTokens(k.path, slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	if h, err := tokens.Check(k.write, now); err != nil || h.Role != api.RoleWrite || h.Name != "t.write" {
		t.Fatalf("%+v, %v", h, err)
	}
	if _, err := tokens.Check(k.write, now.Add(2*time.Hour)); !errors.Is(err, api.ErrStaleToken) {
		t.Errorf("two hours later: %v", err)
	}
	k.store(t, "read someone never "+strings.Repeat("ab", 20))
	for range 2 {
		if _, err := tokens.Check(k.write, now); err != nil {
			t.Errorf("a broken file took tokens away: %v", err)
		}
		if _, err := tokens.Check(k.gone, now); !errors.Is(err, api.ErrUnknownToken) {
			t.Errorf("a broken file let a stranger in: %v", err)
		}
	}
	if n := strings.Count(log.String(), "token file cannot be read"); n != 1 {
		t.Errorf("told %d times:\n%s", n, log.String())
	}
	k.store(t, "# nobody\n")
	if _, err := tokens.Check(k.write, now); !errors.Is(err, api.ErrUnknownToken) {
		t.Errorf("taken back: %v", err)
	}
}

func TestTokenFileIsRefused(t *testing.T) {
	token, holder, err := api.NewToken("n", api.RoleRead, time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	good := holder.Line()
	for name, text := range map[string]string{
		"the token itself": strings.Fields(good)[0] + " n never " + token.Reveal(),
		"role":             strings.Replace(good, "read", "root", 1),
		"name":             strings.Replace(good, " n ", " n;m ", 1),
		"end":              strings.Replace(good, "never", "tomorrow", 1),
		"fields":           good + " more",
		"hash":             good[:len(good)-2],
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "tokens")
			os.WriteFile(path, []byte("\n"+text), 0o600)
			_, err := api.OpenTokens(path, nil)
			if err == nil || !strings.Contains(err.Error(), "line 2") || strings.Contains(err.Error(), token.Reveal()) {
				t.Errorf("got %v", err)
			}
		})
	}
	path := filepath.Join(t.TempDir(), "tokens")
	os.WriteFile(path, []byte(good), 0o600)
	os.Chmod(path, 0o666)
	if _, err := api.OpenTokens(path, nil); err == nil || !strings.Contains(err.Error(), "chmod 600") {
		t.Errorf("a file that all may write: %v", err)
	}
	if strings.Contains(good, token.Reveal()) {
		t.Error("the line has the token")
	}
	for _, bad := range []string{"", "a b", "a#b", strings.Repeat("x", 65)} {
		if _, _, err := api.NewToken(bad, api.RoleRead, time.Time{}); err == nil {
			t.Errorf("no error for the name %q", bad)
		}
	}
	if _, _, err := api.NewToken("n", "root", time.Time{}); err == nil {
		t.Error("no error for an unknown role")
	}
}

// TestForwardKeepsIdentity: a follower passes the caller's token on over TLS,
// and the leader judges it again, by its own file.
func TestForwardKeepsIdentity(t *testing.T) {
	c := newCluster(t)
	k, leaders := newKeyring(t), newKeyring(t)
	writer, err := os.ReadFile(k.path)
	if err != nil {
		t.Fatal(err)
	}
	leaders.store(t, string(writer))
	leader := c.guarded("n1", leaders, &syncBuffer{}, httptest.NewTLSServer, api.Access{})
	trust := x509.NewCertPool()
	trust.AddCert(leader.Certificate())
	access := api.Access{TLS: &tls.Config{RootCAs: trust, MinVersion: tls.VersionTLS12}}
	follower := c.guarded("n2", k, &syncBuffer{}, httptest.NewTLSServer, access)
	as := func(token secret.Text) *api.Client {
		client, err := c.client(follower).With(api.Access{Token: token, TLS: access.TLS})
		if err != nil {
			t.Fatal(err)
		}
		return client
	}
	if reply, err := as(k.write).Submit(t.Context(), submission()); err != nil || reply.New != 1 {
		t.Fatalf("%+v, %v", reply, err)
	}
	wantCode := func(err error, status int, code string) {
		t.Helper()
		var p *api.Problem
		if !errors.As(err, &p) || p.GetStatus() != status || p.Code != code {
			t.Errorf("got %v, want %d %s", err, status, code)
		}
	}
	_, err = as(k.read).Submit(t.Context(), submission())
	wantCode(err, 403, api.CodeForbidden)
	_, err = as(secret.Text{}).Submit(t.Context(), submission())
	wantCode(err, 401, api.CodeNoToken)
	leaders.store(t, "# the leader knows nobody any more\n")
	_, err = as(k.write).Submit(t.Context(), submission())
	wantCode(err, 401, api.CodeBadToken)
}

// TestTokenStaysOffPlainNetworks: neither a client nor a follower shows a token
// to an address that leaves the machine in plain text.
func TestTokenStaysOffPlainNetworks(t *testing.T) {
	token := secret.Of("t")
	for address, open := range map[string]bool{
		"http://127.0.0.1:1": true, "http://localhost:1": true, "http://[::1]:1": true, "https://10.0.0.1:1": true,
		"http://10.0.0.1:1": false, "http://host-a.example:1": false, "http://127.0.0.1:1,http://host-a.example:1": false,
		"http://localhost.example:1": false, "http://127.0.0.1.example:1": false, "http://0.0.0.0:1": false,
	} {
		client, err := api.NewClient(address)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := client.With(api.Access{Token: token}); (err == nil) != open {
			t.Errorf("%s: %v", address, err)
		}
		if _, err := client.With(api.Access{Token: token, Insecure: true}); err != nil {
			t.Errorf("%s, insecure: %v", address, err)
		}
		if _, err := client.With(api.Access{}); err != nil {
			t.Errorf("%s, no token: %v", address, err)
		}
	}
	c := newCluster(t)
	k := newKeyring(t)
	c.guarded("n1", k, &syncBuffer{}, httptest.NewServer, api.Access{})
	follower := c.guarded("n2", k, &syncBuffer{}, httptest.NewServer, api.Access{})
	c.apply(registry.Command{SetMember: &registry.SetMember{Member: registry.Member{ID: "n1", API: "http://host-a.example:7400", CommandVersion: registry.CommandVersion}}})
	header := http.Header{"Authorization": {"Bearer " + k.write.Reveal()}, "Content-Type": {"application/json"}}
	c.ask("POST", follower.URL+"/v1/sweeps", "{}", header).wantProblem(t, 503, api.CodeUnavailable, "plain text")
}

// TestRedirectsAreNotFollowed: a coordinator's address that now redirects
// elsewhere does not get the token sent there.
func TestRedirectsAreNotFollowed(t *testing.T) {
	var seen syncBuffer
	thief := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		seen.Write([]byte("asked " + r.Header.Get("Authorization")))
	}))
	defer thief.Close()
	door := httptest.NewServer(http.RedirectHandler(thief.URL, http.StatusTemporaryRedirect))
	defer door.Close()
	client, err := api.NewClient(door.URL)
	if err != nil {
		t.Fatal(err)
	}
	if client, err = client.With(api.Access{Token: secret.Of("marked")}); err != nil {
		t.Fatal(err)
	}
	if _, err := client.Sweeps(context.WithoutCancel(t.Context())); err == nil {
		t.Error("no error")
	}
	if seen.String() != "" {
		t.Errorf("the redirect was followed: %s", seen.String())
	}
}

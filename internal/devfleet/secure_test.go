package devfleet

import (
	"bytes"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/oomfleet/oomfleet/internal/certs"
	"github.com/oomfleet/oomfleet/internal/config"
	"github.com/oomfleet/oomfleet/storage/trace"
)

// clientEnv is how a command reaches the fleet and is let in.
func (w *world) clientEnv() []string {
	env := []string{"OOMFLEET_SERVER=" + w.API()}
	if w.cfg.Secure {
		env = append(env, "OOMFLEET_TOKEN_FILE="+w.TokenFile(), "OOMFLEET_CA="+w.CAFile())
	}
	return env
}

// secrets are all that the fleet must keep, by what they are.
func (w *world) secrets() map[string]string {
	w.t.Helper()
	found := map[string]string{}
	for _, pair := range w.keys {
		name, value, _ := strings.Cut(pair, "=")
		if name != config.EnvAccessKey { // a name, as S3 shows it everywhere
			found[name] = value
		}
	}
	names, err := filepath.Glob(w.keyFile("*"))
	if err != nil {
		w.t.Fatal(err)
	}
	for _, path := range names {
		info, err := os.Stat(path)
		if err != nil {
			w.t.Fatal(err)
		}
		public := strings.HasSuffix(path, ".pem")
		if !public && info.Mode().Perm() != 0o600 {
			w.t.Errorf("%s has the mode %s", path, info.Mode())
		}
		text, err := os.ReadFile(path)
		if err != nil {
			w.t.Fatal(err)
		}
		name, value := filepath.Base(path), strings.TrimSpace(string(text))
		switch {
		case public || name == "users.conf" || name == "tokens": // certificates, public keys, hashes
			continue
		case strings.HasSuffix(name, ".key"):
			block, _ := pem.Decode(text)
			value = base64.StdEncoding.EncodeToString(block.Bytes)[:60]
		}
		found[name] = value
	}
	return found
}

// TestSecretsAreNowhere runs a whole secure fleet and looks for its secrets
// wherever others can look: command lines, the runners' environment, logs,
// metrics, answers, traces, the registry's log, and every file but the keys'.
func TestSecretsAreNowhere(t *testing.T) {
	t.Parallel()
	const planted = "planted-hugging-face-token"
	w := start(t, Config{Secure: true, Coordinators: 3, AgentEnv: []string{"HF_TOKEN=" + planted}})
	hidden := w.secrets()
	hidden["HF_TOKEN"] = planted
	if len(hidden) != 8 { // S3, three seeds, token, two keys, planted
		t.Fatalf("%d secrets", len(hidden))
	}
	places := map[string]string{}
	id := w.submit()
	w.running(w.cfg.Agents)
	for _, p := range living(t, w.program) {
		places["command line of "+p.args] += p.args
		if strings.Contains(p.args, "internal guard") || strings.Contains(p.args, "simrun") {
			env, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", p.pid))
			if err != nil {
				t.Fatal(err)
			}
			places["environment of "+p.args] += string(env)
		}
	}
	report := w.finish(id)
	if why := differ(undisturbedReport(t), report); why != "" {
		t.Errorf("a secure fleet comes to something else: %s", why)
	}
	w.answers(places)
	for name, text := range w.logs() {
		places["log of "+name] = text
	}
	for _, c := range w.conf.Coordinators {
		w.down("coordinator-" + c.ID)
	}
	committed, err := json.Marshal(slices.Collect(maps.Values(open(t, w.conf.Coordinators[0].DataDir).state.View().Records)))
	if err != nil {
		t.Fatal(err)
	}
	places["the registry's log"] = string(committed)
	w.files(places)
	if len(places) < 60 {
		t.Errorf("only %d places were looked at", len(places))
	}
	for place, text := range places {
		for name, value := range hidden {
			if strings.Contains(text, value) {
				t.Errorf("%s is in the %s", name, place)
			}
		}
	}
}

// answers collects what the fleet says over HTTP, traces unpacked.
func (w *world) answers(places map[string]string) {
	w.t.Helper()
	client := w.client()
	for _, c := range w.conf.Coordinators {
		for _, path := range []string{"/metrics", "/v1/status", "/v1/agents", "/v1/sweeps", "/v1/traces", "/v1/coefficients", "/openapi.json"} {
			places[path+" of "+c.ID] = w.get(c.API+path, true)
		}
	}
	for _, name := range w.agents() {
		places["metrics of "+name] = w.get("http://"+w.procs[name].currentAddress()+"/metrics", false)
	}
	list, err := client.Traces(w.t.Context(), "")
	if err != nil || len(list.Traces) == 0 {
		w.t.Fatalf("%d traces, %v", len(list.Traces), err)
	}
	for _, entry := range list.Traces {
		content, err := client.Trace(w.t.Context(), entry.Ref.Digest)
		if err != nil {
			w.t.Fatal(err)
		}
		text, err := io.ReadAll(content)
		if err != nil {
			w.t.Fatal(err)
		}
		_, meta, err := trace.Decode(bytes.NewReader(text), int64(len(text)))
		if err != nil {
			w.t.Fatal(err)
		}
		places["trace "+string(entry.Ref.Digest)] = fmt.Sprintf("%+v", meta)
	}
}

// get reads one address as the fleet's client does.
func (w *world) get(address string, secure bool) string {
	w.t.Helper()
	access, err := w.Access()
	if err != nil {
		w.t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(w.t.Context(), http.MethodGet, address, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	transport := &http.Transport{TLSClientConfig: access.TLS, DisableKeepAlives: true}
	if secure {
		req.Header.Set("Authorization", "Bearer "+access.Token.Reveal())
	}
	answer, err := (&http.Client{Transport: transport}).Do(req)
	if err != nil {
		w.t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode != http.StatusOK {
		w.t.Fatalf("%s: %s, %v", address, answer.Status, err)
	}
	return string(text)
}

// files collects every file of the fleet but its keys.
func (w *world) files(places map[string]string) {
	w.t.Helper()
	err := filepath.WalkDir(w.dir, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return nil // it went meanwhile
		case entry.IsDir() && path == filepath.Clean(w.keyFile("")):
			return filepath.SkipDir
		case !entry.Type().IsRegular():
			return nil
		}
		text, err := os.ReadFile(path)
		if err == nil {
			places["file "+strings.TrimPrefix(path, w.dir)] = string(text)
		}
		return nil
	})
	if err != nil {
		w.t.Fatal(err)
	}
}

// TestWrongPartiesAtAFleet: whoever has no right gets nowhere at the ports of a
// secure fleet, and is told why.
func TestWrongPartiesAtAFleet(t *testing.T) {
	t.Parallel()
	w := start(t, Config{Secure: true})
	commands := func(env []string, args ...string) said { return command(t, w.program, env, args...) }
	ca := "OOMFLEET_CA=" + w.CAFile()
	server := "OOMFLEET_SERVER=" + w.API()
	reader := filepath.Join(t.TempDir(), "reader.token")
	if s := commands(nil, "token", "new", "--role", "read", "--name", "reader", "--out", reader, "--add", w.keyFile("tokens")); s.code != 0 || strings.Contains(s.out, "oomfleet_") {
		t.Fatalf("%+v", s)
	}
	stale := filepath.Join(t.TempDir(), "stale.token")
	if s := commands(nil, "token", "new", "--role", "admin", "--name", "stale", "--expires", "1ns", "--out", stale, "--add", w.keyFile("tokens")); s.code != 0 {
		t.Fatalf("%+v", s)
	}
	open := filepath.Join(t.TempDir(), "open.token")
	if err := os.WriteFile(open, []byte("x"), 0o644); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		env  []string
		args []string
		code int
		says string
	}{
		"reader reads":         {[]string{server, ca, "OOMFLEET_TOKEN_FILE=" + reader}, []string{"matrix", "list"}, 0, ""},
		"reader writes":        {[]string{server, ca, "OOMFLEET_TOKEN_FILE=" + reader}, []string{"matrix", "submit", smallMatrix, "--origin", "simulated"}, 2, "needs the role write"},
		"no token":             {[]string{server, ca}, []string{"matrix", "list"}, 2, "wants a token"},
		"stale token":          {[]string{server, ca, "OOMFLEET_TOKEN_FILE=" + stale}, []string{"matrix", "list"}, 2, "has expired"},
		"made-up token":        {[]string{server, ca, "OOMFLEET_TOKEN=oomfleet_x"}, []string{"matrix", "list"}, 2, "unknown here"},
		"file all may read":    {[]string{server, ca, "OOMFLEET_TOKEN_FILE=" + open}, []string{"matrix", "list"}, 2, "chmod 600"},
		"unknown authority":    {[]string{server, "OOMFLEET_TOKEN_FILE=" + reader}, []string{"matrix", "list"}, 1, "certificate"},
		"plain http":           {[]string{"OOMFLEET_SERVER=" + strings.Replace(w.API(), "https", "http", 1)}, []string{"matrix", "list"}, 1, ""},
		"token to the network": {[]string{"OOMFLEET_SERVER=http://host-a.example:7400", "OOMFLEET_TOKEN_FILE=" + reader}, []string{"matrix", "list"}, 2, "plain http"},
	} {
		t.Run(name, func(t *testing.T) {
			s := commands(c.env, c.args...)
			if s.code != c.code || !strings.Contains(s.errors, c.says) {
				t.Errorf("exit code %d, want %d: %s", s.code, c.code, s.errors)
			}
		})
	}
	t.Run("health needs no token", func(t *testing.T) {
		trust, err := (certs.Files{CA: w.CAFile()}).Client()
		if err != nil {
			t.Fatal(err)
		}
		answer, err := (&http.Client{Transport: &http.Transport{TLSClientConfig: trust, DisableKeepAlives: true}}).Get(w.API() + "/healthz")
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
		if answer.StatusCode != http.StatusOK {
			t.Error(answer.Status)
		}
	})
	t.Run("the queue", func(t *testing.T) {
		queue, err := url.Parse(w.conf.Queue.URL)
		if err != nil {
			t.Fatal(err)
		}
		for name, opts := range map[string][]nats.Option{"no key": {nats.RootCAs(w.CAFile())}, "no TLS": nil} {
			if nc, err := nats.Connect("nats://"+queue.Host, opts...); err == nil {
				nc.Close()
				t.Errorf("%s: let in", name)
			}
		}
	})
	t.Run("raft", func(t *testing.T) {
		trust, err := (certs.Files{CA: w.CAFile()}).Client()
		if err != nil {
			t.Fatal(err)
		}
		conn, err := tls.Dial("tcp", w.conf.Coordinators[0].Raft, trust) // with no certificate of its own
		if err != nil {
			return
		}
		defer conn.Close()
		if _, err := conn.Read(make([]byte, 1)); err == nil {
			t.Error("let in")
		}
	})
	t.Run("the agents' metrics stay on this machine", func(t *testing.T) {
		for _, name := range w.agents() {
			if address := w.procs[name].currentAddress(); !strings.HasPrefix(address, "127.0.0.1:") {
				t.Errorf("%s serves at %s", name, address)
			}
		}
	})
}

// TestExposedFleetDoesNotStart: a fleet that leaves its machine unprotected is
// refused with everything that is missing, unless the file says that it may.
func TestExposedFleetDoesNotStart(t *testing.T) {
	t.Parallel()
	program, conf := lonely(t, func(f *config.Fleet) {
		f.Queue = config.Queue{URL: "nats://queue.example:4222"}
		f.Traces = config.Traces{URL: "http://s3.example", Bucket: "b"}
		f.Coordinators[0].API, f.Coordinators[0].Raft = "http://host-a.example:7400", "host-a.example:7300"
	})
	for _, args := range [][]string{{"coordinator"}, {"agent", "--sim", "--work-dir", t.TempDir()}} {
		s := command(t, program, nil, append(args, "--config", conf)...)
		for _, want := range []string{"plain http: write https, with api.cert_file", "api.tokens_file", "raft.cert_file", "queue.ca_file", "queue.nkey_file", "trace store is plain", "docs/security.md", "insecure: true"} {
			if s.code != 2 || !strings.Contains(s.errors, want) {
				t.Errorf("%s: exit code %d, want 2 and %q:\n%s", args[0], s.code, want, s.errors)
			}
		}
	}
}

// TestSecurityTable holds docs/security.md to the tests that it names.
func TestSecurityTable(t *testing.T) {
	text, err := os.ReadFile("../../docs/security.md")
	if err != nil {
		t.Fatal(err)
	}
	named := regexp.MustCompile("`([a-z0-9/]+) (Test[A-Za-z0-9]+)`")
	rows := 0
	var missing []string
	for line := range strings.Lines(string(text)) {
		if !strings.HasPrefix(line, "| ") || strings.Contains(line, "| Test |") {
			continue
		}
		rows++
		tests := named.FindAllStringSubmatch(line, -1)
		if len(tests) == 0 {
			t.Errorf("this row names no test: %s", line)
		}
		for _, m := range tests {
			if !declares(t, m[1], m[2]) {
				missing = append(missing, m[0])
			}
		}
	}
	if rows < 15 {
		t.Errorf("there are only %d rows", rows)
	}
	slices.Sort(missing)
	if len(missing) > 0 {
		t.Errorf("there are no such tests: %v", slices.Compact(missing))
	}
}

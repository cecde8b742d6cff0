package main

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/oomfleet/oomfleet/coordinator/api"
	"github.com/oomfleet/oomfleet/proto"
)

// full is a disk without room.
type full struct{}

func (full) Write([]byte) (int, error) { return 0, errors.New("no space left on device") }

// TestLostOutputIsAFailure: no command is done whose output went nowhere, the
// ones that print a single line no less.
func TestLostOutputIsAFailure(t *testing.T) {
	server := coefficientServer(t)
	for _, line := range []string{"version", "version --json", "matrix schema", "coefficients export --server " + server,
		"coefficients export -o " + filepath.Join(t.TempDir(), "c.json") + " --server " + server, "matrix --help"} {
		var errs bytes.Buffer
		code := run(t.Context(), strings.Fields(line), streams{in: strings.NewReader(""), out: full{}, err: &errs})
		if code != exitFailed || !strings.Contains(errs.String(), "no space left") {
			t.Errorf("%s: exit %d, %q", line, code, errs.String())
		}
	}
}

// coefficientServer is a coordinator that knows one group, of two origins.
func coefficientServer(t *testing.T) string {
	t.Helper()
	one := proto.Coefficients{Origin: proto.OriginSimulated, QuotaKind: proto.QuotaAllocator, Target: "reserved", Group: proto.Group{Workload: proto.Workload{Name: "esmfold"}}}
	two := one
	two.Origin = proto.OriginImported
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if err := writeJSON(w, map[string]any{"coefficients": []proto.Coefficients{one, two}}); err != nil && r.Context().Err() == nil {
			t.Error(err)
		}
	}))
	t.Cleanup(server.Close)
	return server.URL
}

// TestOneDocument: with --json stdout is one document, for the commands too that
// write files, and for those that cannot be asked for one there is an error.
func TestOneDocument(t *testing.T) {
	dir := t.TempDir()
	server := coefficientServer(t)
	for _, line := range []string{
		"secure authority --dir " + dir,
		"secure certificate --name host-a --host host-a.example --host ::1 --dir " + dir,
		"secure nkey --role coordinator --out " + filepath.Join(dir, "c.nk"),
		"coefficients export --server " + server + " -o " + filepath.Join(dir, "c.json"),
	} {
		stdout, stderr, code := fleetctl(t, append(strings.Fields(line), "--json")...)
		var document map[string]any
		if err := json.Unmarshal([]byte(stdout), &document); err != nil || code != exitOK || len(document) < 2 {
			t.Errorf("%s: exit %d, %v, %q, %s", line, code, err, stdout, stderr)
		}
	}
	for _, line := range []string{"coefficients export --format csv --server " + server, "matrix diff a b --format csv", "matrix diff a b --format markdown"} {
		if stdout, stderr, code := fleetctl(t, append(strings.Fields(line), "--json")...); code != exitUsage || stdout != "" || !strings.Contains(stderr, "exclude each other") {
			t.Errorf("%s: exit %d, %q, %s", line, code, stdout, stderr)
		}
	}
	// Two origins of one group would overwrite one another where they are imported.
	if _, stderr, code := fleetctl(t, "coefficients", "import", filepath.Join(dir, "c.json"), "--server", server); code != exitUsage || !strings.Contains(stderr, "--origin ORIGIN") {
		t.Errorf("exit %d, %s", code, stderr)
	}
}

// TestKeysAreNeverReplaced, and no certificate is made that would fit no machine.
func TestKeysAreNeverReplaced(t *testing.T) {
	dir := t.TempDir()
	must := func(want int, says string, args ...string) {
		t.Helper()
		if _, stderr, code := fleetctl(t, append(args, "--dir", dir)...); code != want || !strings.Contains(stderr, says) {
			t.Errorf("%v: exit %d, %s", args, code, stderr)
		}
	}
	must(exitOK, "", "secure", "authority")
	key, err := os.ReadFile(filepath.Join(dir, "ca.key"))
	if err != nil {
		t.Fatal(err)
	}
	must(exitUsage, "never replaced", "secure", "authority")
	if again, err := os.ReadFile(filepath.Join(dir, "ca.key")); err != nil || !bytes.Equal(key, again) {
		t.Errorf("%v, or another key", err)
	}
	must(exitOK, "", "secure", "certificate", "--name", "a", "--host", "10.0.0.1")
	must(exitUsage, "never replaced", "secure", "certificate", "--name", "a", "--host", "10.0.0.1")
	for _, host := range []string{"", "host-a:7400", "https://host-a", "[::1]", "a b"} {
		must(exitUsage, "without a port", "secure", "certificate", "--name", "b", "--host", host)
	}
}

// TestFlagErrors are sentences of this program.
func TestFlagErrors(t *testing.T) {
	for line, says := range map[string]string{
		"quota recommend --seq-len 1e3":                  `--seq-len "1e3" is not a number as it is wanted here`,
		"quota recommend --seq-len 99999999999999999999": `--seq-len "99999999999999999999" is out of range`,
		"quota recommend":                                "fleetctl quota recommend wants --seq-len; see fleetctl quota recommend --help",
		"matrix diff a b --card 24":                      "--card is 24 bytes, less than any run takes",
		"registry backup":                                "fleetctl registry backup wants --output; see",
		"matrix list --server":                           "flag needs an argument: --server; see fleetctl matrix list --help",
		"token new --role read --name a --expires 1":     `missing unit in duration "1"`,
	} {
		_, stderr, code := fleetctl(t, strings.Fields(line)...)
		if code != exitUsage || !strings.Contains(stderr, says) || strings.Contains(stderr, "strconv") {
			t.Errorf("%s: exit %d, %s", line, code, stderr)
		}
	}
}

// TestUnreached: what can be done about a server that answers otherwise.
func TestUnreached(t *testing.T) {
	t.Setenv("OOMFLEET_CA", "")
	secure := httptest.NewUnstartedServer(http.NotFoundHandler())
	secure.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError) // which hears of each refusal
	secure.StartTLS()
	defer secure.Close()
	plain := httptest.NewServer(http.NotFoundHandler())
	defer plain.Close()
	for address, says := range map[string]string{
		secure.URL: "--ca or OOMFLEET_CA",
		strings.Replace(secure.URL, "https", "http", 1): "is asked with https://",
		strings.Replace(plain.URL, "http", "https", 1):  "it speaks plain http",
	} {
		if _, stderr, code := fleetctl(t, "matrix", "list", "--server", address); code != exitFailed || !strings.Contains(stderr, says) {
			t.Errorf("%s: exit %d, %s", address, code, stderr)
		}
	}
	if err := agentsUnknown(fmt.Errorf("ask: %w", context.DeadlineExceeded), agentsLimit); !strings.Contains(err.Error(), "within 10 s; does the queue (NATS)") {
		t.Errorf("%v", err)
	}
	a := &app{server: "https://host-a"}
	if err := a.explain(&api.Problem{Code: api.CodeNoLeader, Message: "no leader"}); !strings.Contains(err.Error(), "cluster status") {
		t.Errorf("%v", err)
	}
	if err := a.explain(fmt.Errorf("ask: %w", x509.CertificateInvalidError{Cert: &x509.Certificate{}, Reason: x509.Expired})); !strings.Contains(err.Error(), "clock") {
		t.Errorf("%v", err)
	}
	if err := a.explain(fmt.Errorf("ask: %w", x509.HostnameError{Certificate: &x509.Certificate{}, Host: "host-a"})); !strings.Contains(err.Error(), "--host") {
		t.Errorf("%v", err)
	}
}

// TestClusterInWords: what the silent ones cost, and a leader of before is none.
func TestClusterInWords(t *testing.T) {
	members := func(roles ...string) (out []api.ClusterMember) {
		for i, role := range roles {
			m := api.ClusterMember{NewMember: api.NewMember{ID: string(rune('a' + i))}, Voter: true}
			if m.Role = role; role == "" {
				m.Why = "connection refused"
			}
			out = append(out, m)
		}
		return out
	}
	for says, s := range map[string]api.ClusterStatus{
		"\na leads; 3 of 3 voters answer, 1 more may be lost\n":                               {Leader: "a", Voters: 3, Answering: 3, MayLose: 1, Members: members("leader", "follower", "follower")},
		"a is silent: connection refused\na led, and is silent; 2 of 3 voters answer, 0 more": {Leader: "a", Voters: 3, Answering: 2, Members: members("", "follower", "follower")},
		"nobody leads; 1 of 3 voters answer, which is no majority":                            {Voters: 3, Answering: 1, Members: members("", "", "candidate")},
		"Start 1 more": {Voters: 3, Answering: 1, Members: members("", "", "candidate")},
	} {
		if s.Leader == "a" && s.MayLose > 0 {
			s.Members[1].Trouble, says = "its disk is full", "\nb needs help: its disk is full"+says
		}
		var out bytes.Buffer
		if err := writeCluster(&out, s); err != nil || !strings.Contains(out.String(), says) {
			t.Errorf("%v\n%s\nlacks %q", err, out.String(), says)
		}
	}
}

// TestInstalledWhere: who wants what is installed, and asks the wrong ones for it,
// is told whom to ask.
func TestInstalledWhere(t *testing.T) {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/sweeps", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusUnprocessableEntity)
		fmt.Fprint(w, `{"code":"bad_matrix","message":"the matrix file has errors","details":[{"line":21,"column":11,"message":"axes.driver is installed, but no registered agent has the GPU NVIDIA H200"}]}`)
	})
	mux.HandleFunc("GET /v1/agents", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"agents":[{"id":"sim-1","origin":"simulated"}]}`)
	})
	server := httptest.NewServer(mux)
	defer server.Close()
	const file = "../../deploy/examples/nightly.yaml"
	for line, says := range map[string]string{
		"matrix submit " + file + " --server " + server.URL:                    "no agent that is announced is measured; all are simulated: --origin simulated asks them",
		"matrix expand " + file:                                                "expand asks no fleet",
		"matrix submit " + file + " --origin simulated --server " + server.URL: "no registered agent has the GPU",
	} {
		_, stderr, code := fleetctl(t, strings.Fields(line)...)
		if code != exitUsage || !strings.Contains(stderr, says) || strings.Contains(line, "--origin") && strings.Contains(stderr, "asks them") {
			t.Errorf("%s: exit %d, %s", line, code, stderr)
		}
	}
}

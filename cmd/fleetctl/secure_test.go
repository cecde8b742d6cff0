package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/oomfleet/oomfleet/internal/natsserver"
	"github.com/oomfleet/oomfleet/proto"
	"github.com/oomfleet/oomfleet/queue/natsq"
)

// secureCommand runs one command line.
func secureCommand(t *testing.T, args ...string) (code int, out, errs string) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	code = run(t.Context(), args, streams{in: strings.NewReader(""), out: &stdout, err: &stderr})
	return code, stdout.String(), stderr.String()
}

// TestSecureSetsUpAQueue follows docs/security.md: certificate and users made by
// the commands let exactly those in, over TLS, beyond the loopback interface.
func TestSecureSetsUpAQueue(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	must := func(args ...string) string {
		t.Helper()
		code, out, errs := secureCommand(t, args...)
		if code != exitOK {
			t.Fatalf("%v: exit code %d: %s", args, code, errs)
		}
		return out
	}
	must("secure", "authority", "--dir", dir)
	must("secure", "certificate", "--dir", dir, "--name", "queue", "--host", "127.0.0.1", "--server-only")
	agent := []string{"secure", "nkey", "--role", "agent", "--gpu", "NVIDIA H200", "--driver", "580.1", "--card", "GPU-Ab", "--out", at("agent.nk")}
	first := must(agent...)
	entries := must("secure", "nkey", "--role", "coordinator", "--out", at("coordinator.nk")) + must(append(agent, "--driver", "580.2")...)
	key := strings.Fields(first)[2]
	if !strings.Contains(entries, key) {
		t.Errorf("a second driver made another key:\n%s\n%s", first, entries)
	}
	for _, seed := range []string{"agent.nk", "coordinator.nk"} {
		text, err := os.ReadFile(at(seed))
		if err != nil {
			t.Fatal(err)
		}
		if info, err := os.Stat(at(seed)); err != nil || info.Mode().Perm() != 0o600 || strings.Contains(entries, strings.TrimSpace(string(text))) {
			t.Errorf("%s: %v, %v, or the seed was printed", seed, info.Mode(), err)
		}
	}
	if err := os.WriteFile(at("users.conf"), []byte("authorization { users = [\n"+entries+"] }\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ready, done := make(chan string, 1), make(chan error, 1)
	go func() {
		done <- natsserver.Run(ctx, natsserver.Config{Dir: at("queue"), Addr: "0.0.0.0:0", UsersFile: at("users.conf"), CertFile: at("queue.pem"),
			KeyFile: at("queue.key"), Ready: func(u string) { ready <- u }})
	}()
	defer func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	var address string
	select {
	case url := <-ready:
		address = "tls://127.0.0.1" + url[strings.LastIndexByte(url, ':'):]
	case err := <-done:
		done <- nil
		t.Fatal(err)
	}
	open := func(seed string, agent bool) (*natsq.Queue, error) {
		return natsq.Open(ctx, natsq.Config{URL: address, Agent: agent, Identity: natsq.Identity{NKeyFile: at(seed), CAFile: at("ca.pem")}})
	}
	coordinator, err := open("coordinator.nk", false)
	if err != nil {
		t.Fatal(err)
	}
	defer coordinator.Close()
	mine, err := open("agent.nk", true)
	if err != nil {
		t.Fatal(err)
	}
	defer mine.Close()
	for driver, allowed := range map[string]bool{"580.1": true, "580.2": true, "580.3": false} {
		r := proto.Result{Task: "m-1", Fence: 1, Agent: "gpu-ab", Origin: proto.OriginMeasured, Stack: proto.Stack{GPU: "NVIDIA H200", Driver: driver}}
		if err := mine.Report(ctx, r); (err == nil) != allowed {
			t.Errorf("driver %s: %v", driver, err)
		}
	}
	if _, err := natsq.Open(ctx, natsq.Config{URL: address, Identity: natsq.Identity{CAFile: at("ca.pem")}}); err == nil {
		t.Error("nobody was let in")
	}
}

func TestSecureRefuses(t *testing.T) {
	dir := t.TempDir()
	if code, _, errs := secureCommand(t, "secure", "authority", "--dir", dir); code != exitOK {
		t.Fatal(errs)
	}
	taken := filepath.Join(dir, "taken")
	if err := os.WriteFile(taken, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		args []string
		code int
		says string
	}{
		"authority twice":        {[]string{"secure", "authority", "--dir", dir}, exitUsage, "exists"},
		"agent of every stack":   {[]string{"secure", "nkey", "--role", "agent", "--out", "x"}, exitUsage, "name --gpu and --driver"},
		"coordinator of one":     {[]string{"secure", "nkey", "--role", "coordinator", "--gpu", "x", "--out", "x"}, exitUsage, "every stack"},
		"another role":           {[]string{"secure", "nkey", "--role", "root", "--out", "x"}, exitUsage, "coordinator or agent"},
		"no seed in the file":    {[]string{"secure", "nkey", "--role", "coordinator", "--out", taken}, exitUsage, "no seed"},
		"certificate outside":    {[]string{"secure", "certificate", "--dir", dir, "--name", "../x", "--host", "h"}, exitUsage, "without a folder"},
		"certificate for nobody": {[]string{"secure", "certificate", "--dir", dir, "--name", "x"}, exitUsage, "host"},
		"no authority":           {[]string{"secure", "certificate", "--dir", filepath.Join(dir, "none"), "--name", "x", "--host", "h"}, exitUsage, "authority"},
		"token of no role":       {[]string{"token", "new", "--role", "root", "--name", "x"}, exitUsage, `"read", "write" or "admin"`},
		"token of yesterday":     {[]string{"token", "new", "--role", "read", "--name", "x", "--expires", "-1h"}, exitUsage, "over already"},
		"token over a file":      {[]string{"token", "new", "--role", "read", "--name", "x", "--out", taken}, exitUsage, "there already"},
		"token for a bad name":   {[]string{"token", "new", "--role", "read", "--name", "a b"}, exitUsage, "letters"},
	} {
		t.Run(name, func(t *testing.T) {
			code, out, errs := secureCommand(t, c.args...)
			if code != c.code || !strings.Contains(errs, c.says) || strings.Contains(out, "oomfleet_") {
				t.Errorf("exit code %d, want %d with %q: %s%s", code, c.code, c.says, out, errs)
			}
		})
	}
}

// TestTokenIsShownOnce: one document, the line without the token in it, and with
// --out not even once.
func TestTokenIsShownOnce(t *testing.T) {
	dir := t.TempDir()
	code, out, _ := secureCommand(t, "token", "new", "--role", "write", "--name", "ci", "--expires", (24 * time.Hour).String(), "--json")
	if code != exitOK || strings.Count(out, "oomfleet_") != 1 || !strings.Contains(out, `"line":"write ci 2`) {
		t.Errorf("exit code %d: %s", code, out)
	}
	file, tokens := filepath.Join(dir, "token"), filepath.Join(dir, "tokens")
	for range 2 {
		code, out, errs := secureCommand(t, "token", "new", "--role", "read", "--name", "ci", "--out", file, "--add", tokens)
		if code != exitOK || strings.Contains(out, "oomfleet_") || !strings.HasPrefix(out, "line   read ci never sha256:") {
			t.Errorf("exit code %d: %s %s", code, out, errs)
		}
		if err := os.Rename(file, file+".handed-over"); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(tokens)
	if err != nil || strings.Count(string(text), "\n") != 2 {
		t.Errorf("%q, %v", text, err)
	}
}

package devfleet

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/oomfleet/oomfleet/coordinator/api"
	"github.com/oomfleet/oomfleet/internal/config"
	"github.com/oomfleet/oomfleet/proto"
)

// TestBadSurroundings: each is one sentence that says what to do, and an exit
// code that says whose turn it is.
func TestBadSurroundings(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { taken.Close() })
	file := filepath.Join(t.TempDir(), "a file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	inFile := filepath.Join(file, "no folder") // not even root can make it
	missing := "install the driver, or run this agent on a GPU node"
	if _, err := os.Stat("/dev/nvidiactl"); err == nil { // this machine has one, so the interpreter is next
		missing = "name another interpreter with --python"
	}
	for name, c := range map[string]struct {
		spoil  func(*config.Fleet)
		env    []string
		args   []string // CONFIG stands for the configuration file
		code   int
		advice string
	}{
		"config missing, coordinator": {args: []string{"coordinator", "--config", inFile}, code: 2, advice: "name the file with --config"},
		"config missing, agent":       {args: []string{"agent", "--config", inFile}, code: 2, advice: "name the file with --config"},
		"config is no YAML":           {args: []string{"coordinator", "--config", "../../README.md"}, code: 2, advice: "README.md: line "},
		"no such coordinator":         {args: []string{"coordinator", "--config", "CONFIG", "--id", "z"}, code: 2, advice: "name one with --id"},
		"no such simulated driver":    {args: []string{"agent", "--config", "CONFIG", "--sim", "--sim-driver", "x"}, code: 2, advice: "add it under simulated"},
		"no GPU or no Python":         {args: []string{"agent", "--config", "CONFIG", "--python", inFile}, code: 1, advice: missing},
		"broken runner": {args: []string{"agent", "--config", "CONFIG", "--sim", "--sim-arg", "--no-such-flag"}, code: 1,
			advice: "run it by hand to see more"},
		"work folder not writable": {args: []string{"agent", "--config", "CONFIG", "--sim", "--work-dir", inFile}, code: 1, advice: "--work-dir"},
		"metrics port in use": {args: []string{"agent", "--config", "CONFIG", "--sim", "--metrics-addr", taken.Addr().String()}, code: 1,
			advice: "name another address with --metrics-addr"},
		"API port in use": {spoil: func(f *config.Fleet) { f.Coordinators[0].API = "http://" + taken.Addr().String() },
			args: []string{"coordinator", "--config", "CONFIG"}, code: 1, advice: "change api of coordinator a in the configuration"},
		"raft port in use": {spoil: func(f *config.Fleet) { f.Coordinators[0].Raft = taken.Addr().String() },
			args: []string{"coordinator", "--config", "CONFIG"}, code: 1, advice: "its raft and data_dir are in the configuration"},
		"data folder not writable": {spoil: func(f *config.Fleet) { f.Coordinators[0].DataDir = inFile },
			args: []string{"coordinator", "--config", "CONFIG"}, code: 1, advice: "its raft and data_dir are in the configuration"},
		"trace folder not writable": {spoil: func(f *config.Fleet) { f.Traces.Dir = inFile },
			args: []string{"coordinator", "--config", "CONFIG"}, code: 1, advice: "must name one that we may write"},
		"no queue": {spoil: func(f *config.Fleet) { f.Queue.URL = "nats://127.0.0.1:1" },
			args: []string{"coordinator", "--config", "CONFIG"}, code: 1, advice: "start it, or correct queue.url in the configuration"},
		"no queue for an agent": {spoil: func(f *config.Fleet) { f.Queue.URL = "nats://127.0.0.1:1" },
			args: []string{"agent", "--config", "CONFIG", "--sim"}, code: 1, advice: "start it, or correct queue.url in the configuration"},
		"no keys of the trace store": {spoil: func(f *config.Fleet) { f.Traces = config.Traces{URL: "http://127.0.0.1:1", Bucket: "oomfleet"} },
			args: []string{"agent", "--config", "CONFIG", "--sim"}, code: 2, advice: "set $" + config.EnvAccessKey},
		"no trace store": {spoil: func(f *config.Fleet) { f.Traces = config.Traces{URL: "http://127.0.0.1:1", Bucket: "oomfleet"} },
			env:  []string{config.EnvAccessKey + "=k", config.EnvSecretKey + "=s"},
			args: []string{"coordinator", "--config", "CONFIG"}, code: 1, advice: "look at traces in the configuration"},
		"no coordinator":          {args: []string{"matrix", "list", "--server", "http://127.0.0.1:1"}, code: 1, advice: "is it running?"},
		"server is no URL":        {args: []string{"matrix", "list", "--server", "somewhere"}, code: 2, advice: "is not a URL like"},
		"dev without them":        {args: []string{"dev", "--agent", "gpu", "--python", inFile}, code: 1, advice: missing},
		"dev with another agent":  {args: []string{"dev", "--agent", "tpu"}, code: 2, advice: "agents are sim or gpu"},
		"dev: no folder":          {args: []string{"dev", "--data-dir", inFile}, code: 1, advice: "--data-dir"},
		"dev: no matrix file":     {args: []string{"dev", "--submit", inFile}, code: 2, advice: "name one that can be read"},
		"submit: no matrix file":  {args: []string{"matrix", "submit", inFile}, code: 2, advice: "name one that can be read"},
		"unknown command":         {args: []string{"matrix", "frobnicate"}, code: 2, advice: "see fleetctl matrix --help"},
		"unknown flag":            {args: []string{"dev", "--frobnicate"}, code: 2, advice: "see fleetctl dev --help"},
		"replay of no trace file": {args: []string{"trace", "replay", file}, code: 2, advice: file},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // many wait for what does not answer
			program, conf := "", ""
			spoil := c.spoil
			if spoil == nil {
				spoil = func(*config.Fleet) {}
			}
			if strings.Contains(strings.Join(c.args, " "), "CONFIG") {
				program, conf = lonely(t, spoil)
			} else {
				program = binary(t)
			}
			args := append([]string{}, c.args...)
			for i := range args {
				args[i] = strings.ReplaceAll(args[i], "CONFIG", conf)
			}
			if args[0] == "agent" && !strings.Contains(strings.Join(args, " "), "--work-dir") {
				args = append(args, "--work-dir", t.TempDir())
			}
			s := command(t, program, c.env, args...)
			if s.code != c.code || s.out != "" {
				t.Errorf("exit code %d, want %d; stdout %q", s.code, c.code, s.out)
			}
			stderr := s.errors
			if args[0] == "dev" && strings.Contains(stderr, "did not start") {
				// The fleet's sentence comes before the process's own.
				_, stderr, _ = strings.Cut(stderr, "\n")
				stderr = strings.TrimSpace(stderr)
			}
			sentence(t, stderr, c.advice)
		})
	}
}

// TestBrokenMatrix: every problem is shown with its place, by the client, and by
// the server where only that can know.
func TestBrokenMatrix(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "broken.yaml")
	const text = "apiVersion: oomfleet/v1\nname: broken\nworkload: {name: esmfold}\ntarget: {gpu: NVIDIA H200}\naxes:\n" +
		"  seq_len: [128, twelve]\n  driver: [580.159.04]\n  batch: [1]\n  depth: [1]\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	want := []string{"line 6, column 18", "twelve", "line 9, column 3", "depth"}
	w := start(t, Config{})
	for _, args := range [][]string{{"matrix", "expand", file}, {"matrix", "submit", file}, {"dev", "--submit", file}} {
		s := w.cli(args...)
		if s.code != 2 || s.out != "" {
			t.Errorf("%v: exit code %d, stdout %q", args, s.code, s.out)
		}
		for _, part := range want {
			if !strings.Contains(s.errors, part) {
				t.Errorf("%v does not say %q:\n%s", args, part, s.errors)
			}
		}
	}
	// The same file past the client.
	_, err := w.client().Submit(t.Context(), api.Submission{Source: text, Origin: proto.OriginSimulated})
	var problem *api.Problem
	if !asProblem(err, &problem) || problem.Code != api.CodeBadMatrix {
		t.Fatalf("the server says: %v", err)
	}
	for _, part := range want {
		if !strings.Contains(problem.Details.String(), part) {
			t.Errorf("the server does not say %q:\n%s", part, problem.Details)
		}
	}
	// What only the server can know: which drivers are installed.
	s := w.cli("matrix", "submit", "../../deploy/examples/esmfold-gpu.yaml", "--origin", "measured")
	if s.code != 2 || !strings.Contains(s.errors, "installed") || !strings.Contains(s.errors, "line ") {
		t.Errorf("a matrix for installed GPUs, where there are none: exit code %d\n%s", s.code, s.errors)
	}
}

// TestWrongKeys: an agent and a coordinator with keys that the trace store
// refuses. They say which, the fleet goes on, and nothing is lost.
func TestWrongKeys(t *testing.T) {
	t.Parallel()
	w := start(t, Config{})
	id := w.submit()
	w.midway(id)
	access, secret := w.keys[0], w.keys[1]
	for name, c := range map[string]struct {
		env    []string
		advice string
	}{
		"wrong secret": {[]string{access, secret + "x"}, "option secret key"},
		"unknown key":  {[]string{access + "x", secret}, "option access key"},
	} {
		t.Run(name, func(t *testing.T) {
			s := command(t, w.program, c.env, "agent", "--config", w.ConfigFile(), "--sim", "--sim-card", "7", "--work-dir", t.TempDir())
			if s.code != 1 {
				t.Errorf("exit code %d", s.code)
			}
			sentence(t, s.errors, c.advice)
			s = command(t, w.program, c.env, "coordinator", "--config", w.ConfigFile())
			if s.code != 1 {
				t.Errorf("exit code %d", s.code)
			}
			sentence(t, s.errors, c.advice)
		})
	}
	w.judge(w.finish(id))
}

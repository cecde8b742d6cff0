package devfleet

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/oomfleet/oomfleet/coordinator"
	"github.com/oomfleet/oomfleet/coordinator/api"
	"github.com/oomfleet/oomfleet/proto"
)

// The matrix of these tests, with how many cells it has.
const (
	smallMatrix = "../../deploy/examples/esmfold-small.yaml"
	smallCells  = 18
)

// witness makes the test cache know that these tests depend on all of the tree,
// which they run and do not import.
var witness = sync.OnceValue(func() error {
	return filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && (d.Name() == ".git" || d.Name() == "bin") {
			return fs.SkipDir
		}
		if err == nil && d.Type().IsRegular() {
			os.Stat(path) //nolint:errcheck // asking is the point
		}
		return err
	})
})

// binary is a program file of this test's own, so that its processes, and
// theirs, can be told from all others by /proc/PID/exe.
func binary(t *testing.T) string {
	t.Helper()
	if err := witness(); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "fleetctl")
	if err := os.Link(filepath.Join(built, "fleetctl"), path); err != nil {
		t.Fatal(err)
	}
	return path
}

// proc is one living process of a test.
type proc struct {
	pid, parent int
	args        string
}

// living lists the processes that run the program file now. A zombie runs none.
func living(t *testing.T, program string) []proc {
	t.Helper()
	entries, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	var found []proc
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		folder := filepath.Join("/proc", e.Name())
		exe, err := os.Readlink(filepath.Join(folder, "exe"))
		if err != nil || strings.TrimSuffix(exe, " (deleted)") != program {
			continue
		}
		args, errArgs := os.ReadFile(filepath.Join(folder, "cmdline"))
		stat, errStat := os.ReadFile(filepath.Join(folder, "stat"))
		if errArgs != nil || errStat != nil {
			continue // it ended meanwhile
		}
		fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
		parent, err := strconv.Atoi(fields[1])
		if err != nil {
			t.Fatal(err)
		}
		found = append(found, proc{pid, parent, strings.ReplaceAll(strings.TrimRight(string(args), "\x00"), "\x00", " ")})
	}
	return found
}

// below are the processes of all that descend from a process.
func below(all []proc, pid int) []proc {
	var found []proc
	for _, p := range all {
		if p.parent == pid {
			found = append(append(found, p), below(all, p.pid)...)
		}
	}
	return found
}

// await asks again and again until ok, and fails the test when that takes too
// long. Nothing that crosses processes tells us of it, hence the asking.
func await(t *testing.T, what string, ok func() bool) {
	t.Helper()
	limit := time.NewTimer(patience)
	defer limit.Stop()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-limit.C:
			t.Fatalf("waited %s in vain: %s", patience, what)
		case <-tick.C:
		}
	}
}

// gone waits until no process runs the program file any more.
func gone(t *testing.T, program string) {
	t.Helper()
	await(t, "the last process of "+program+" ends", func() bool { return len(living(t, program)) == 0 })
}

// said is what a command left.
type said struct {
	code        int
	out, errors string
	busy        time.Duration // processor time, that of its children included
}

// command runs the program to its end, with variables added to its environment.
func command(t *testing.T, program string, env []string, args ...string) said {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Env = append(os.Environ(), env...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	noRaces(t)
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) || ctx.Err() != nil {
		t.Fatalf("fleetctl %s: %v (%v)\n%s", strings.Join(args, " "), err, ctx.Err(), errs.String())
	}
	return said{cmd.ProcessState.ExitCode(), out.String(), errs.String(), cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()}
}

// begun is a command that runs, with its input held open.
type begun struct {
	cmd  *exec.Cmd
	temp string // its folder for temporary files
	out  *lines
	errs *lines
}

// lines collects what a process writes, and says when it has written a line.
type lines struct {
	mu    sync.Mutex // guards text
	text  []byte
	first chan struct{} // closed once there is a whole line
}

func newLines() *lines { return &lines{first: make(chan struct{})} }

// Write implements io.Writer.
func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	before := bytes.IndexByte(l.text, '\n') >= 0
	l.text = append(l.text, p...)
	if !before && bytes.IndexByte(l.text, '\n') >= 0 {
		close(l.first)
	}
	return len(p), nil
}

// String is all that was written so far.
func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return string(l.text)
}

// begin starts a command, which is killed at the end of the test.
func begin(t *testing.T, program string, args ...string) *begun {
	t.Helper()
	return beginAs(t, program, program, args...)
}

// beginAs starts a command that comes to run the program.
func beginAs(t *testing.T, program, starter string, args ...string) *begun {
	t.Helper()
	b := &begun{cmd: exec.Command(starter, args...), temp: t.TempDir(), out: newLines(), errs: newLines()}
	b.cmd.Stdout, b.cmd.Stderr = b.out, b.errs
	b.cmd.Env = append(os.Environ(), "TMPDIR="+b.temp)
	b.cmd.WaitDelay = time.Second // what it has started may hold its output
	stdin, err := b.cmd.StdinPipe()
	if err == nil {
		err = b.cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		stdin.Close()
		if b.cmd.ProcessState == nil {
			b.cmd.Process.Kill()
			b.cmd.Wait()
		}
		await(t, fmt.Sprintf("process %d ends", b.cmd.Process.Pid), func() bool {
			return !slices.ContainsFunc(living(t, program), func(p proc) bool { return p.pid == b.cmd.Process.Pid })
		})
	})
	return b
}

// ready waits for the first line, the address of a server.
func (b *begun) ready(t *testing.T) string {
	t.Helper()
	limit := time.NewTimer(patience)
	defer limit.Stop()
	select {
	case <-b.out.first:
		line, _, _ := strings.Cut(b.out.String(), "\n")
		return line
	case <-limit.C:
		t.Fatalf("not ready after %s: %s", patience, b.errors())
		return ""
	}
}

// errors is what the command has written to stderr so far.
func (b *begun) errors() string { return b.errs.String() }

// wait waits for the command's end and returns its exit code.
func (b *begun) wait(t *testing.T) int {
	t.Helper()
	late := time.AfterFunc(patience, func() { b.cmd.Process.Kill() })
	defer late.Stop()
	b.cmd.Wait() // the code says it
	return b.cmd.ProcessState.ExitCode()
}

// world is a fleet of a test: real processes, that the test may kill.
type world struct {
	t *testing.T
	*Fleet
	program string
	gate    *gate
}

// start runs a fleet until the test ends, with its runs held at the gate; then
// it looks that nothing is left of it.
func start(t *testing.T, cfg Config) *world {
	t.Helper()
	w := &world{t: t, program: binary(t), gate: newGate(t)}
	cfg.Binary, cfg.DataDir = w.program, t.TempDir()
	if cfg.Agent == "" {
		cfg.Agent = AgentSim
	}
	if cfg.AgentArgs == nil {
		cfg.AgentArgs = []string{"--sim-arg", "--fault=slow=" + w.gate.path}
	}
	if cfg.Lease == 0 {
		cfg.Lease = 2 * time.Second
	}
	var err error
	if w.Fleet, err = New(cfg); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	t.Cleanup(func() {
		w.gate.open()
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("the fleet ended with: %v", err)
		}
		for _, p := range living(t, w.program) {
			t.Errorf("left behind: %d %s", p.pid, p.args)
		}
		w.noPanics()
		noRaces(t)
		if t.Failed() {
			w.showLogs()
		}
	})
	select {
	case <-w.Ready():
	case err := <-ended:
		ended <- err
		t.FailNow()
	case <-time.After(patience):
		t.Fatal("the fleet is not ready")
	}
	return w
}

// logs are the processes' logs by name.
func (w *world) logs() map[string]string {
	found := map[string]string{}
	names, err := filepath.Glob(filepath.Join(w.Logs(), "*.log"))
	if err != nil {
		w.t.Fatal(err)
	}
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			w.t.Fatal(err)
		}
		found[strings.TrimSuffix(filepath.Base(name), ".log")] = string(text)
	}
	return found
}

func (w *world) showLogs() {
	for name, text := range w.logs() {
		lines := strings.Split(strings.TrimSpace(text), "\n")
		w.t.Logf("%s, last lines:\n%s", name, strings.Join(lines[max(0, len(lines)-12):], "\n"))
	}
}

// noPanics looks for what no process may ever write, however it died.
func (w *world) noPanics() {
	for name, text := range w.logs() {
		for _, bad := range []string{"panic:", "goroutine 1 [", "fatal error:", "DATA RACE"} {
			if strings.Contains(text, bad) {
				w.t.Errorf("%s wrote %q", name, bad)
			}
		}
	}
}

// logged waits until a process has written a text.
func (w *world) logged(name, text string) {
	w.t.Helper()
	await(w.t, fmt.Sprintf("%s logs %q", name, text), func() bool { return strings.Contains(w.logs()[name], text) })
}

// cli runs a command against this fleet.
func (w *world) cli(args ...string) said {
	w.t.Helper()
	return command(w.t, w.program, w.clientEnv(), args...)
}

// ask runs a command that must succeed and reads its one document.
func ask[T any](w *world, args ...string) T {
	w.t.Helper()
	s := w.cli(append(args, "--json")...)
	if s.code != 0 {
		w.t.Fatalf("fleetctl %s: exit code %d\n%s", strings.Join(args, " "), s.code, s.errors)
	}
	return decode[T](w.t, s.out)
}

// decode reads exactly one JSON document, strictly.
func decode[T any](t *testing.T, text string) T {
	t.Helper()
	var v T
	d := json.NewDecoder(strings.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&v); err != nil {
		t.Fatalf("decode: %v\n%s", err, text)
	}
	if d.More() {
		t.Fatalf("there is more than one document:\n%s", text)
	}
	return v
}

// submit submits the small matrix.
func (w *world) submit() proto.MatrixID {
	w.t.Helper()
	return ask[coordinator.SubmitReply](w, "matrix", "submit", smallMatrix, "--origin", "simulated").Matrix.ID
}

// client talks to all coordinators, or to one.
func (w *world) client(servers ...string) *api.Client {
	w.t.Helper()
	if len(servers) == 0 {
		servers = []string{w.API()}
	}
	c, err := api.NewClient(strings.Join(servers, ","))
	if err != nil {
		w.t.Fatal(err)
	}
	access, err := w.Access()
	if err != nil {
		w.t.Fatal(err)
	}
	if c, err = c.With(access); err != nil {
		w.t.Fatal(err)
	}
	return c
}

// settledCells waits until so many cells have settled.
func (w *world) settledCells(id proto.MatrixID, n int) {
	w.t.Helper()
	client := w.client()
	await(w.t, fmt.Sprintf("%d cells of %s settle", n, id), func() bool {
		r, err := client.Sweep(w.t.Context(), id)
		return err == nil && r.Counts.Settled() >= n
	})
}

// running waits until every agent is in the middle of a run.
func (w *world) running(agents int) {
	w.t.Helper()
	await(w.t, "every agent is in a run", func() bool {
		runs := 0
		for _, p := range living(w.t, w.program) {
			if strings.HasSuffix(p.args, "internal simrun") {
				runs++
			}
		}
		return runs >= agents
	})
}

// midway brings a sweep to its middle and holds it there: some cells have
// settled, and each agent is in a run that does not go on before the gate opens.
func (w *world) midway(id proto.MatrixID) {
	w.t.Helper()
	w.gate.open()
	w.settledCells(id, 3)
	w.gate.close()
	w.running(w.cfg.Agents)
}

// finish waits for the end of a sweep and returns its report.
func (w *world) finish(id proto.MatrixID) proto.Report {
	w.t.Helper()
	w.gate.open()
	return ask[proto.Report](w, "matrix", "status", string(id), "--wait")
}

// down kills a process, or all of them, and keeps them down.
func (w *world) down(names ...string) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), patience)
	defer cancel()
	for _, name := range names {
		if err := w.Down(ctx, name); err != nil {
			w.t.Fatal(err)
		}
	}
}

func (w *world) up(names ...string) {
	w.t.Helper()
	for _, name := range names {
		if err := w.Up(name); err != nil {
			w.t.Fatal(err)
		}
	}
}

// kill sends SIGKILL and leaves the rest to the supervisor.
func (w *world) kill(name string) (pid int) {
	w.t.Helper()
	pid, err := w.Signal(name, syscall.SIGKILL)
	if err != nil {
		w.t.Fatal(err)
	}
	return pid
}

// gate holds simulated runs: they wait to open a FIFO for reading, which they
// can while someone has it open for writing.
type gate struct {
	t    *testing.T
	path string
	file *os.File
}

// newGate returns a closed gate.
func newGate(t *testing.T) *gate {
	t.Helper()
	g := &gate{t: t, path: filepath.Join(t.TempDir(), "gate")}
	if err := syscall.Mkfifo(g.path, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(g.close)
	return g
}

func (g *gate) open() {
	if g.file != nil {
		return
	}
	var err error
	// For reading too: that never blocks.
	if g.file, err = os.OpenFile(g.path, os.O_RDWR, 0); err != nil {
		g.t.Fatal(err)
	}
}

func (g *gate) close() {
	if g.file != nil {
		g.file.Close()
		g.file = nil
	}
}

// names are the names of the fleet's agents.
func (w *world) agents() []string {
	var names []string
	for name := range w.procs {
		if strings.HasPrefix(name, "agent-") {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

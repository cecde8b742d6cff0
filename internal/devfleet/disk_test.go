package devfleet

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/oomfleet/oomfleet/internal/config"
)

// limit stops a process from writing beyond so many bytes into any file, which
// it sees as it sees a full disk, and which needs no privilege.
func limit(t *testing.T, pid int, bytes uint64) {
	t.Helper()
	if err := unix.Prlimit(pid, unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: bytes, Max: unix.RLIM_INFINITY}, nil); err != nil {
		t.Fatal(err)
	}
}

// TestAgentDiskFull: agents cannot keep a recording on disk. They carry it home
// all the same, and say what to do.
func TestAgentDiskFull(t *testing.T) {
	t.Parallel()
	w := start(t, Config{})
	id := w.submit()
	w.running(w.cfg.Agents) // the first runs are recordings, of more than 64 KiB
	for _, name := range w.agents() {
		pid, err := w.Signal(name, 0)
		if err != nil {
			t.Fatal(err)
		}
		limit(t, pid, 64<<10)
	}
	report := w.finish(id)
	for _, name := range w.agents() {
		if !strings.Contains(w.logs()[name], "outbox is not writable, free disk space in the work folder") {
			t.Errorf("%s does not say that its disk is full", name)
		}
	}
	w.judge(report)
}

// TestCoordinatorDiskFull: a coordinator cannot write its log any more. It says
// so and ends, with nothing lost, and goes on when it is started again.
func TestCoordinatorDiskFull(t *testing.T) {
	t.Parallel()
	w := start(t, Config{})
	id := w.submit()
	w.midway(id)
	pid, err := w.Signal("coordinator-a", 0)
	if err != nil {
		t.Fatal(err)
	}
	limit(t, pid, 64<<10)
	report := w.finish(id)
	if n := w.Starts("coordinator-a"); n != 2 {
		t.Errorf("the coordinator was started %d times", n)
	}
	if text := w.logs()["coordinator-a"]; !strings.Contains(text, "free disk space there and start again, nothing is lost") {
		t.Error("the coordinator does not say what to do")
	}
	w.judge(report)
}

// TestCoordinatorCannotWriteItsTerm: where raft would panic, the coordinator
// ends with a sentence, and the next start goes on.
func TestCoordinatorCannotWriteItsTerm(t *testing.T) {
	t.Parallel()
	program, file := lonely(t, func(*config.Fleet) {})
	args := []string{"coordinator", "--config", file, "--child"}
	c := begin(t, program, args...)
	api := c.ready(t)
	limit(t, c.cmd.Process.Pid, 0)
	command(t, program, nil, "matrix", "submit", smallMatrix, "--server", api) // it must write
	if code := c.wait(t); code != 1 {
		t.Errorf("exit code %d", code)
	}
	sentence(t, c.errors(), "free disk space there and start again, nothing is lost")
	begin(t, program, args...).ready(t)
}

// TestCoordinatorStartsOnAFullDisk: a new coordinator finds no room for its log,
// and the same folder serves once there is some.
func TestCoordinatorStartsOnAFullDisk(t *testing.T) {
	t.Parallel()
	program, file := lonely(t, func(*config.Fleet) {})
	args := []string{"coordinator", "--config", file, "--child"}
	c := beginLimited(t, 2<<20, program, args...)
	if code := c.wait(t); code != 1 {
		t.Errorf("exit code %d", code)
	}
	sentence(t, c.errors(), "free disk space")
	begin(t, program, args...).ready(t)
}

// lonely is the configuration file of one coordinator with a queue and a trace
// folder, and no agents. change may spoil it.
func lonely(t *testing.T, change func(*config.Fleet)) (program, file string) {
	t.Helper()
	program = binary(t)
	folder := t.TempDir()
	queue := begin(t, program, "internal", "nats", "--dir", filepath.Join(folder, "queue")).ready(t)
	raft, err := freePort()
	if err != nil {
		t.Fatal(err)
	}
	api, err := freePort()
	if err != nil {
		t.Fatal(err)
	}
	fleet := config.Fleet{APIVersion: config.APIVersion, Queue: config.Queue{URL: queue}, Traces: config.Traces{Dir: filepath.Join(folder, "traces")},
		Coordinators: []config.Coordinator{{ID: "a", Raft: raft, API: "http://" + api, DataDir: filepath.Join(folder, "a")}},
		Simulated:    []config.SimulatedDriver{{Driver: RecordedDriver}}}
	change(&fleet)
	file = filepath.Join(folder, "fleet.yaml")
	if err := fleet.Write(file); err != nil {
		t.Fatal(err)
	}
	return program, file
}

// sentence looks that a command ended with one sentence for people, that says
// what to do, and with nothing that only its authors can read.
func sentence(t *testing.T, stderr, advice string) {
	t.Helper()
	var said []string
	for _, line := range strings.Split(strings.TrimSpace(stderr), "\n") {
		if !strings.HasPrefix(line, "time=") { // a log line
			said = append(said, line)
		}
	}
	if len(said) != 1 || !strings.HasPrefix(said[0], "fleetctl: ") || !strings.Contains(said[0], advice) {
		t.Errorf("want one sentence with %q, it said:\n%s", advice, stderr)
	}
	for _, bad := range []string{"panic", "goroutine ", ".go:", "%!", "<nil>"} {
		if strings.Contains(stderr, bad) {
			t.Errorf("it said %q:\n%s", bad, stderr)
		}
	}
}

// beginLimited is begin under a limit on the size of files.
func beginLimited(t *testing.T, bytes uint64, program string, args ...string) *begun {
	t.Helper()
	shell := append([]string{"-c", fmt.Sprintf(`ulimit -f %d; exec "$0" "$@"`, bytes/512), program}, args...)
	return beginAs(t, program, "/bin/sh", shell...)
}

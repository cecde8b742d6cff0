package child

import (
	"bufio"
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/oomfleet/oomfleet/agent/runner"
	"github.com/oomfleet/oomfleet/proto"
)

// The test binary plays every process: it runs itself again under these names.
const (
	roleGuard      = "role-guard"
	roleRunner     = "role-runner"     // a runner whose runs do what their workload's name says
	roleRun        = "role-run"        // the run's own process
	roleGrandchild = "role-grandchild" // holds memory, leads its own session, ignores SIGTERM
	roleAgent      = "role-agent"      // an agent with a run that never ends
)

// pidsName is the variable that names a FIFO; every process writes its id there.
const pidsName = "CHILD_TEST_PIDS"

// waitName is the variable that names a FIFO; the run "wait" ends once it is
// opened for writing.
const waitName = "CHILD_TEST_WAIT"

func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		switch args := os.Args[2:]; os.Args[1] {
		case roleGuard:
			os.Exit(Guard(args))
		case roleRunner:
			os.Exit(fakeRunner(args))
		case roleRun:
			os.Exit(fakeRun(args))
		case roleGrandchild:
			grandchild()
		case roleAgent:
			fakeAgent()
		}
	}
	goleak.VerifyTestMain(m)
}

// say writes this process's id to the FIFO, if there is one.
func say(role string) {
	if path := os.Getenv(pidsName); path != "" {
		f, err := os.OpenFile(path, os.O_WRONLY, 0)
		if err != nil {
			panic(err)
		}
		defer f.Close()
		fmt.Fprintf(f, "%s %d\n", role, os.Getpid())
	}
}

func forever() {
	for {
		unix.Poll(nil, -1) //nolint:errcheck // a signal may end it early
	}
}

func grandchild() {
	signal.Ignore(syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	memory, err := unix.Mmap(-1, 0, 8<<20, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		panic(err)
	}
	for i := 0; i < len(memory); i += 4096 {
		memory[i] = 1
	}
	say("grandchild")
	os.NewFile(eventsFD, "ready").Close()
	forever()
}

// again is this binary under a role.
func again(role string, args ...string) *exec.Cmd {
	cmd := exec.Command(os.Args[0], append([]string{role}, args...)...)
	cmd.Stderr = os.Stderr
	return cmd
}

// fakeRunner speaks the protocol; args[0] says how it begins.
func fakeRunner(args []string) int {
	out := os.NewFile(eventsFD, "events")
	how := "hello"
	if len(args) > 0 {
		how = args[0]
	}
	hello := &runner.Hello{Protocol: runner.Protocol, PID: os.Getpid(), Python: "none", Torch: "2.11.0+cu130", CUDA: "13.0",
		QuotaKinds: []string{"allocator", "device"},
		Sim:        runner.Sim{Simulated: true, GPU: "NVIDIA H200", Driver: "580.159.04", UUID: "SIM-0", TotalBytes: 150109880320}}
	switch how {
	case "exit":
		fmt.Fprintln(os.Stderr, "Traceback: something\x00 bad\n\nImportError: libfoo.so")
		return 3
	case "silent":
		forever()
	case "garbage":
		out.WriteString("\x7fELF what\n")
		forever()
	case "fault":
		runner.WriteEvent(out, &runner.Fault{Message: "python cannot import torch: install it there"})
		return 1
	case "protocol":
		hello.Protocol = 99
	case "real":
		hello.Sim = runner.Sim{}
	}
	say("runner")
	runner.WriteEvent(out, hello)
	if how == "deaf" {
		forever()
	}
	requests := runner.NewRequests(os.Stdin)
	for {
		req, err := requests.Next()
		if err != nil || req.Op == runner.OpExit {
			return 0
		}
		if failure, ok := strings.CutPrefix(how, "check-"); ok && req.Workload.Name == runner.WorkloadCheck {
			req.Workload.Name = failure // what a check comes to on this card
		}
		if req.Op == runner.OpRun && !fakeStart(req, requests, out) {
			return 5
		}
	}
}

// fakeStart starts the run's process and sees it to its end.
func fakeStart(req runner.Request, requests *runner.Requests, out *os.File) bool {
	id := runner.RunID{ID: req.ID}
	switch req.Workload.Name {
	case "garbage":
		out.WriteString("this is not an event\n")
		forever()
	case "wrong-run":
		runner.WriteEvent(out, &runner.Started{RunID: runner.RunID{ID: "another"}, PID: 1})
		forever()
	case "die":
		fmt.Fprintln(os.Stderr, "MemoryError: out of luck")
		return false
	case "never-starts":
		forever()
	case "quota-fault":
		runner.WriteEvent(out, &runner.Fault{ID: req.ID, Message: "the device quota could not be set up: another process holds memory"})
		code := 1
		runner.WriteEvent(out, &runner.Exited{RunID: id, Code: &code})
		return true
	}
	cmd := again(roleRun, req.Workload.Name, req.ID, fmt.Sprint(req.Record))
	cmd.ExtraFiles = []*os.File{out}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		panic(err)
	}
	if req.Workload.Name == "hang" || req.Workload.Name == "deaf" {
		if kill, err := requests.Next(); err != nil || kill.Op != runner.OpKill || req.Workload.Name == "deaf" {
			forever()
		}
		syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
	}
	cmd.Wait()
	exited := &runner.Exited{RunID: id}
	if status := cmd.ProcessState.Sys().(syscall.WaitStatus); status.Signaled() {
		exited.Signal = unix.SignalName(status.Signal())
	} else {
		code := status.ExitStatus()
		exited.Code = &code
	}
	runner.WriteEvent(out, exited)
	return true
}

// fakeRun is the run's process: args are what it does, its id, whether it records.
func fakeRun(args []string) int {
	out, id := os.NewFile(eventsFD, "events"), runner.RunID{ID: args[1]}
	n, retries := int64(1<<30), int64(2)
	if args[0] == "hang" || args[0] == "deaf" {
		startGrandchild() // before the run's time begins, which a busy machine may need for it
	}
	runner.WriteEvent(out, &runner.Started{RunID: id, PID: os.Getpid()})
	runner.WriteEvent(out, &runner.Phase{RunID: id, Phase: "load", Meters: runner.Meters{Weights: &n}})
	say("run")
	switch args[0] {
	case "hang", "deaf":
		forever()
	case "leave":
		fmt.Fprintf(os.Stderr, "grandchild %d\n", startGrandchild())
	case "crash":
		syscall.Kill(os.Getpid(), syscall.SIGKILL)
		forever()
	case "raise":
		runner.WriteEvent(out, &runner.Failed{RunID: id, Phase: "forward", Exception: "ValueError", Message: "no\x00", BadCell: true,
			Settings: map[string]string{"a": "b"}, Seconds: 2})
		return 1
	case "ecc":
		runner.WriteEvent(out, &runner.Failed{RunID: id, Phase: "start", Exception: "AcceleratorError",
			Message: "CUDA error: uncorrectable ECC error encountered\nCUDA kernel errors might be" + strings.Repeat(".", 9000)})
		return 1
	case "infinite":
		finite := false
		runner.WriteEvent(out, &runner.Done{RunID: id, OutputFinite: &finite})
		return 0
	case "mute":
		return 0
	case "flood":
		line := []byte(strings.Repeat("x", 99) + "\n")
		for range 50_000 {
			os.Stderr.Write(line)
		}
		os.Stderr.WriteString("the end\x07\xff\n")
	case "wait":
		f, err := os.Open(os.Getenv(waitName)) // opens once there is a writer
		if err != nil {
			panic(err)
		}
		f.Close()
	case "env":
		fmt.Fprintln(os.Stderr, strings.Join(os.Environ(), "\n"))
	}
	if args[2] == "true" {
		for i := range uint64(3) {
			runner.WriteEvent(out, &runner.Trace{RunID: id, Actions: "sa", Addr: []uint64{i, 1 << 63}, Size: []int64{2, 1},
				Stream: []int64{0, 0}, TimeUS: []int64{5, 6}})
		}
	}
	finite := true
	runner.WriteEvent(out, &runner.Done{RunID: id, OutputFinite: &finite, Seconds: 1.5, Meters: runner.Meters{NumAllocRetries: &retries}})
	return 0
}

// startGrandchild returns once the grandchild is deaf to SIGTERM and holds its
// memory: it writes to a pipe of its own then.
func startGrandchild() int {
	r, w, err := os.Pipe()
	if err != nil {
		panic(err)
	}
	cmd := again(roleGrandchild)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	cmd.ExtraFiles = []*os.File{w}
	if err := cmd.Start(); err != nil {
		panic(err)
	}
	w.Close()
	r.Read(make([]byte, 1)) // its end of file
	return cmd.Process.Pid
}

// fakeAgent starts a run that hangs and waits to be killed.
func fakeAgent() {
	p, err := New(Config{Guard: []string{os.Args[0], roleGuard}, Command: []string{os.Args[0], roleRunner},
		Extra: []string{pidsName + "=" + os.Getenv(pidsName)}, Log: slog.New(slog.DiscardHandler)})
	if err == nil {
		_, err = p.Run(context.Background(), taskOf("hang"))
	}
	panic(err)
}

func taskOf(workload string) proto.Task {
	cell := proto.Cell{Workload: proto.Workload{Name: workload}, GPU: "NVIDIA H200", Driver: "580.159.04", SeqLen: 64, Batch: 1,
		QuotaKind: proto.QuotaAllocator, Step: proto.DefaultStep}
	return proto.Task{ID: "s-cell-1", Protocol: proto.Version, Fence: 1, Attempt: 1, Kind: proto.TaskProbe, Origin: proto.OriginSimulated,
		CellID: cell.ID(), Cell: cell, Quota: proto.GiB, TimeoutSeconds: 60}
}

// newTestProber is a prober on the fake runner; how says how that one begins.
func newTestProber(t *testing.T, how string, change func(*Config)) *Prober {
	t.Helper()
	cfg := Config{Guard: []string{os.Args[0], roleGuard, "--grace=5s"}, Command: []string{os.Args[0], roleRunner, how},
		Environ: os.Environ(), Log: slog.New(slog.DiscardHandler)}
	if change != nil {
		change(&cfg)
	}
	p, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return p
}

// pidFIFO makes a FIFO and returns its path and a function that reads the ids of
// n processes from it, by role.
func pidFIFO(t *testing.T) (string, func(n int) map[string]int) {
	t.Helper()
	path := t.TempDir() + "/pids"
	if err := unix.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0) // for writing too: no end of file between writers
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	in := bufio.NewScanner(f)
	return path, func(n int) map[string]int {
		pids := map[string]int{}
		for range n {
			if !in.Scan() {
				t.Fatalf("read process ids: %v", in.Err())
			}
			role, number, _ := strings.Cut(in.Text(), " ")
			pid, err := strconv.Atoi(number)
			if err != nil {
				t.Fatal(err)
			}
			pids[role] = pid
		}
		return pids
	}
}

// mustDie waits until the process of a pidfd is gone.
func mustDie(t *testing.T, role string, fd int) {
	t.Helper()
	for {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(2*time.Minute/time.Millisecond))
		if err == unix.EINTR {
			continue
		}
		if n != 1 || err != nil {
			t.Errorf("%s is still alive (%v)", role, err)
		}
		return
	}
}

func openPID(t *testing.T, pid int) int {
	t.Helper()
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		t.Fatalf("open process %d: %v", pid, err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	return fd
}

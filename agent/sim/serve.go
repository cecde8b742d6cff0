package sim

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"time"

	"github.com/oomfleet/oomfleet/agent/runner"
	"github.com/oomfleet/oomfleet/proto"
)

// errDied is what FaultDie makes Serve return.
var errDied = errors.New("the simulated runner was told to die in the middle of a run")

// Server is a simulated runner.
type Server struct {
	// Config says what card it plays.
	Config Config
	// Run is the command that calls Run, for example {"/usr/bin/fleetctl",
	// "internal", "simrun"}: each run is a process of its own.
	Run []string
}

// Serve says hello and runs what it is asked for until in ends, an exit is
// asked for, or ctx is cancelled; a run in progress is killed then. It returns
// nil in the first two cases. Events go to out, which every run's process
// writes to as well.
func (s Server) Serve(ctx context.Context, in io.Reader, out *os.File) error {
	if err := s.Config.Validate(); err != nil {
		return fmt.Errorf("simulated runner: %w", err)
	}
	if err := runner.WriteEvent(out, s.hello()); err != nil {
		return err
	}
	requests, stop := receive(in)
	defer stop()
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case r := <-requests:
			if r.err != nil || r.request.Op == runner.OpExit {
				return ignoreEOF(r.err)
			}
			if r.request.Op == runner.OpKill {
				continue // of a run that has ended meanwhile
			}
			if over, err := s.run(ctx, r.request, requests, out); over || err != nil {
				return err
			}
		}
	}
}

func ignoreEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

func (s Server) hello() *runner.Hello {
	kinds := make([]string, 0, 3)
	for _, k := range proto.QuotaKinds() {
		kinds = append(kinds, string(k))
	}
	return &runner.Hello{
		Protocol: runner.Protocol, PID: os.Getpid(), Torch: Torch, Transformers: Transformers, CUDA: CUDA, QuotaKinds: kinds,
		Sim: runner.Sim{Simulated: true, GPU: GPU, Driver: s.Config.driver(), UUID: s.Config.UUID(), TotalBytes: int64(Total)},
	}
}

// received is one request, or why there are no more.
type received struct {
	request runner.Request
	err     error
}

// receive reads requests in a goroutine, which ends at the end of in. Where in
// never ends (a pipe that nobody closes), stop alone does not end it: the
// process does, or whoever closes in.
func receive(in io.Reader) (<-chan received, func()) {
	requests, quit := make(chan received), make(chan struct{})
	go func() {
		for lines := runner.NewRequests(in); ; {
			request, err := lines.Next()
			select {
			case requests <- received{request, err}:
			case <-quit:
				return
			}
			if err != nil {
				return
			}
		}
	}()
	return requests, func() { close(quit) }
}

// job is what a run's process reads from its stdin.
type job struct {
	Config  Config
	Request runner.Request
	Self    []string
}

// run starts a run's process and sees it to its end; over when the runner is to
// end with it.
func (s Server) run(ctx context.Context, req runner.Request, requests <-chan received, out *os.File) (over bool, err error) {
	j := job{Config: s.Config, Request: req, Self: s.Run}
	if j.fault() == FaultDie {
		return true, errDied
	}
	text, err := json.Marshal(j)
	if err != nil {
		return true, fmt.Errorf("encode run %s: %w", req.ID, err)
	}
	cmd := exec.Command(s.Run[0], s.Run[1:]...)
	cmd.Stdin, cmd.Stderr, cmd.ExtraFiles = bytes.NewReader(text), os.Stderr, []*os.File{out}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	// A child of the run may hold stdin's other end; it is not waited for.
	cmd.WaitDelay = time.Second
	if err := cmd.Start(); err != nil {
		return true, fmt.Errorf("start run %s: %w", req.ID, err)
	}
	ended := make(chan struct{})
	go func() {
		cmd.Wait() //nolint:errcheck // its state is read below
		close(ended)
	}()
	kill := func() { syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) } //nolint:errcheck // gone already is as good
	cancelled := ctx.Done()
	for {
		select {
		case <-ended:
			if writeErr := runner.WriteEvent(out, exited(req.ID, cmd.ProcessState)); err == nil {
				err = writeErr
			}
			return over || err != nil, err
		case <-cancelled:
			over, err, cancelled = true, context.Cause(ctx), nil
			kill()
		case r := <-requests:
			switch {
			case r.err != nil, r.request.Op == runner.OpExit:
				over, err, requests = true, ignoreEOF(r.err), nil
				kill()
			case r.request.Op == runner.OpKill && r.request.ID == req.ID:
				kill()
			case r.request.Op == runner.OpRun:
				err = runner.WriteEvent(out, &runner.Fault{ID: r.request.ID, Message: "the runner was asked for a second run while one is on"})
			}
		}
	}
}

func exited(id string, state *os.ProcessState) *runner.Exited {
	e := &runner.Exited{RunID: runner.RunID{ID: id}}
	if status, ok := state.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		e.Signal = signalName(status.Signal())
		return e
	}
	code := state.ExitCode()
	e.Code = &code
	return e
}

// signalName is a signal's name as Python gives it. A run dies of few.
func signalName(s syscall.Signal) string {
	switch s {
	case syscall.SIGKILL:
		return "SIGKILL"
	case syscall.SIGSEGV:
		return "SIGSEGV"
	case syscall.SIGTERM:
		return "SIGTERM"
	case syscall.SIGABRT:
		return "SIGABRT"
	}
	return s.String()
}

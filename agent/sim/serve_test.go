package sim

import (
	"context"
	"errors"
	"io"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/oomfleet/oomfleet/agent/runner"
)

// served is a server in the test's process; its runs are real processes.
type served struct {
	t        *testing.T
	requests *io.PipeWriter
	events   *runner.Events
	result   chan error
}

func serve(t *testing.T, ctx context.Context, cfg Config) *served {
	t.Helper()
	eventsIn, eventsOut, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	requestsIn, requestsOut := io.Pipe()
	s := &served{t: t, requests: requestsOut, events: runner.NewEvents(eventsIn), result: make(chan error, 1)}
	go func() {
		err := Server{Config: cfg, Run: []string{os.Args[0], roleRun}}.Serve(ctx, requestsIn, eventsOut)
		eventsOut.Close()
		s.result <- err
	}()
	t.Cleanup(func() {
		requestsOut.Close()
		eventsIn.Close()
	})
	return s
}

func (s *served) ask(r runner.Request) {
	s.t.Helper()
	if err := runner.WriteRequest(s.requests, r); err != nil {
		s.t.Fatal(err)
	}
}

// until reads events up to the first of this type.
func until[E runner.Event](s *served) E {
	s.t.Helper()
	for {
		event, err := s.events.Next()
		if err != nil {
			s.t.Fatalf("waiting for %T: %v", *new(E), err)
		}
		if e, ok := event.(E); ok {
			return e
		}
	}
}

func TestServe(t *testing.T) {
	s := serve(t, t.Context(), Config{TestWorkloads: true})
	hello := until[*runner.Hello](s)
	if !hello.Simulated || hello.GPU != GPU || hello.Driver != Driver || hello.Torch != Torch || hello.TotalBytes != int64(Total) || len(hello.QuotaKinds) != 3 {
		t.Errorf("hello %+v", hello)
	}
	s.ask(runner.Request{Op: runner.OpKill, ID: "long-ago"}) // of a run that has ended: no harm

	s.ask(request(128, 1, 0))
	if pid := until[*runner.Started](s).PID; pid == os.Getpid() {
		t.Error("the run is no process of its own")
	}
	if done := until[*runner.Done](s); done.Seconds < 0.9 || done.Seconds > 1.2 {
		t.Errorf("seconds %v", done.Seconds)
	}
	if e := until[*runner.Exited](s); e.Code == nil || *e.Code != 0 {
		t.Errorf("exited %+v", e)
	}

	hang := request(128, 1, 0)
	hang.ID, hang.Workload.Name = "hang", "sim:hang"
	s.ask(hang)
	pid := until[*runner.Started](s).PID
	second := request(128, 1, 0)
	second.ID = "second"
	s.ask(second)
	if f := until[*runner.Fault](s); f.ID != "second" {
		t.Errorf("fault %+v", f)
	}
	s.ask(runner.Request{Op: runner.OpKill, ID: "hang"})
	if e := until[*runner.Exited](s); e.Signal != "SIGKILL" || e.ID != "hang" {
		t.Errorf("exited %+v", e)
	}
	if err := syscall.Kill(pid, 0); !errors.Is(err, syscall.ESRCH) {
		t.Errorf("the killed run is there: %v", err)
	}

	crash := request(128, 1, 0)
	crash.Workload.Name = "sim:crash"
	s.ask(crash)
	if e := until[*runner.Exited](s); e.Signal != "SIGSEGV" {
		t.Errorf("exited %+v", e)
	}
	s.ask(runner.Request{Op: runner.OpExit})
	if err := <-s.result; err != nil {
		t.Errorf("after exit: %v", err)
	}
}

func TestServeEndsWithItsRun(t *testing.T) {
	stop := errors.New("stopped by the test")
	for name, c := range map[string]struct {
		end  func(*served, context.CancelCauseFunc)
		want error
	}{
		"input ends": {func(s *served, _ context.CancelCauseFunc) { s.requests.Close() }, nil},
		"exit":       {func(s *served, _ context.CancelCauseFunc) { s.ask(runner.Request{Op: runner.OpExit}) }, nil},
		"cancelled":  {func(_ *served, cancel context.CancelCauseFunc) { cancel(stop) }, stop},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			s := serve(t, ctx, Config{Fault: FaultHang})
			s.ask(request(128, 1, 0))
			pid := until[*runner.Started](s).PID
			c.end(s, cancel)
			if e := until[*runner.Exited](s); e.Signal != "SIGKILL" {
				t.Errorf("exited %+v", e)
			}
			if err := <-s.result; !errors.Is(err, c.want) {
				t.Errorf("got %v, want %v", err, c.want)
			}
			if err := syscall.Kill(pid, 0); !errors.Is(err, syscall.ESRCH) {
				t.Errorf("the run is there: %v", err)
			}
		})
	}
}

func TestServeRefusesABadConfig(t *testing.T) {
	err := Server{Config: Config{Driver: "1"}}.Serve(t.Context(), strings.NewReader(""), os.Stderr)
	if err == nil || !strings.Contains(err.Error(), "was not recorded") {
		t.Errorf("got %v", err)
	}
}

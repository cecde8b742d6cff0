package devfleet

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

// How long a child may take to be ready, to end when asked to, and how long the
// supervisor waits before it starts one again.
const (
	readyTimeout = 3 * time.Minute // a GPU agent imports torch first
	stopTimeout  = 15 * time.Second
	firstPause   = 100 * time.Millisecond
	longestPause = 3 * time.Second
)

// spec says how to start a child. args is asked at every start, with the address
// that the first start announced (empty then), so that it can be kept.
type spec struct {
	name string
	args func(address string) []string
	env  []string
}

// process is one supervised child.
type process struct {
	spec   spec
	binary string
	logs   string
	ready  chan struct{} // closed at the first readiness

	// mu guards the fields below.
	mu      sync.Mutex
	cmd     *exec.Cmd
	address string
	starts  int
	ended   chan struct{} // closed when cmd was reaped; nil before the first start
	up      chan struct{} // nil, or closed when the child may be started again
}

// errDown is returned when a start was held back by Fleet.Down.
var errDown = errors.New("it is kept down")

func newProcess(binary, logs string, s spec) *process {
	return &process{spec: s, binary: binary, logs: logs, ready: make(chan struct{})}
}

// run starts the child, starts it again whenever it dies, and ends it when ctx
// ends. It fails when the child dies before it was ever ready: then its log
// says why, and starting it again would not help.
func (p *process) run(ctx context.Context) error {
	pause := firstPause
	for {
		p.awaitUp(ctx)
		began := time.Now()
		err := p.once(ctx)
		if errors.Is(err, errDown) {
			continue
		}
		if ctx.Err() != nil {
			return nil
		}
		select {
		case <-p.ready:
		default:
			return fmt.Errorf("%s did not start: %w%s", p.spec.name, err, p.lastWords())
		}
		if time.Since(began) > longestPause {
			pause = firstPause
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pause):
		}
		pause = min(2*pause, longestPause)
	}
}

// awaitUp waits until the child may be started again.
func (p *process) awaitUp(ctx context.Context) {
	p.mu.Lock()
	up := p.up
	p.mu.Unlock()
	if up == nil {
		return
	}
	select {
	case <-up:
	case <-ctx.Done():
	}
}

// once runs the child from start to end. Its stdin is a lifeline: it reaches
// its end when this process dies, however that happens.
func (p *process) once(ctx context.Context) error {
	log, err := os.OpenFile(p.logFile(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("open its log: %w", err)
	}
	defer log.Close()
	p.mu.Lock()
	cmd := exec.Command(p.binary, p.spec.args(p.address)...)
	p.mu.Unlock()
	cmd.Env = append(os.Environ(), p.spec.env...)
	cmd.Stderr = log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // a Ctrl-C is for the parent
	lifeline, err := cmd.StdinPipe()
	if err != nil {
		return fmt.Errorf("make its lifeline: %w", err)
	}
	defer lifeline.Close()
	out, err := cmd.StdoutPipe()
	if err != nil {
		return fmt.Errorf("make its output: %w", err)
	}
	gone, err := p.start(ctx, cmd)
	if err != nil {
		out.Close()
		return err
	}
	announced := make(chan struct{})
	go func() { // ends with the child, which holds the other end
		p.listen(out)
		close(announced)
	}()
	ended := make(chan error, 1)
	go func() {
		<-announced
		err := cmd.Wait()
		close(gone)
		ended <- err
	}()
	return p.await(ctx, cmd, ended)
}

// start starts the child unless it is kept down; gone is to be closed when it
// was reaped.
func (p *process) start(ctx context.Context, cmd *exec.Cmd) (gone chan struct{}, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case p.up != nil:
		return nil, errDown
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start it: %w", err)
	}
	p.cmd, p.ended, p.starts = cmd, make(chan struct{}), p.starts+1
	return p.ended, nil
}

// await waits for the child's end, or ends it: when ctx ends, or when it is not
// ready in time.
func (p *process) await(ctx context.Context, cmd *exec.Cmd, ended <-chan error) error {
	late := time.NewTimer(readyTimeout)
	defer late.Stop()
	ready := p.ready
	for {
		select {
		case err := <-ended:
			if err == nil {
				err = errors.New("it ended by itself")
			}
			return err
		case <-ready:
			late.Stop()
			ready = nil
		case <-late.C:
			cmd.Process.Kill()
			<-ended
			return fmt.Errorf("not ready within %s", readyTimeout)
		case <-ctx.Done():
			cmd.Process.Signal(syscall.SIGTERM)
			select {
			case <-ended:
			case <-time.After(stopTimeout):
				cmd.Process.Kill()
				<-ended
			}
			return ctx.Err()
		}
	}
}

// listen takes the child's first line as its address; whatever else it prints
// is drained.
func (p *process) listen(out io.Reader) {
	r := bufio.NewReader(out)
	if line, err := r.ReadString('\n'); err == nil {
		p.mu.Lock()
		first := p.address == ""
		p.address = strings.TrimSpace(line)
		p.mu.Unlock()
		if first {
			close(p.ready)
		}
	}
	io.Copy(io.Discard, r)
}

// awaitReady waits for the first readiness and returns the address.
func (p *process) awaitReady(ctx context.Context) (string, error) {
	select {
	case <-p.ready:
		return p.currentAddress(), nil
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
}

func (p *process) currentAddress() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.address
}

func (p *process) logFile() string { return filepath.Join(p.logs, p.spec.name+".log") }

// lastWords is the end of the child's log, for an error message.
func (p *process) lastWords() string {
	text, err := os.ReadFile(p.logFile())
	if err != nil || len(text) == 0 {
		return ""
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return "\n  " + strings.Join(lines[max(0, len(lines)-5):], "\n  ")
}

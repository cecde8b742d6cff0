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
}

func newProcess(binary, logs string, s spec) *process {
	return &process{spec: s, binary: binary, logs: logs, ready: make(chan struct{})}
}

// run starts the child, starts it again whenever it dies, and ends it when ctx
// ends. It fails when the child dies before it was ever ready: then its log
// says why, and starting it again would not help.
func (p *process) run(ctx context.Context) error {
	pause := firstPause
	for {
		began := time.Now()
		err := p.once(ctx)
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
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start it: %w", err)
	}
	p.mu.Lock()
	p.cmd = cmd
	p.starts++
	p.mu.Unlock()
	announced := make(chan struct{})
	go func() { // ends with the child, which holds the other end
		p.listen(out)
		close(announced)
	}()
	ended := make(chan error, 1)
	go func() {
		<-announced
		ended <- cmd.Wait()
	}()
	return p.await(ctx, cmd, ended)
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

// await1 waits for the first readiness and returns the address.
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

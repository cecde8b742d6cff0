package child

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/oomfleet/oomfleet/agent/runner"
)

// markName is the environment variable by which the descendants of a guard that
// was killed are found.
const markName = "OOMFLEET_GUARD"

// lastWords is how long the pipes of an ended guard are still read. It matters
// only when the guard was killed and a descendant holds them open.
const lastWords = time.Second

// tree is one guard with everything below it.
type tree struct {
	cmd      *exec.Cmd
	mark     string
	requests *os.File
	lifeline *os.File
	stdout   tail
	stderr   tail
	hello    *runner.Hello

	// incoming carries events, then perhaps one error, and is closed when no
	// more can come. quit makes the reader stop offering.
	incoming chan received
	quit     chan struct{}
	quitOnce sync.Once
	// ended is closed when the guard was reaped and all goroutines are done.
	ended chan struct{}
}

// received is one event, or why there is none.
type received struct {
	event runner.Event
	err   error
}

// startTree starts the guard and its command. The pipes of both sides:
//
//	0 requests, 1 stdout, 2 stderr, 3 events, 4 lifeline
func startTree(cfg Config) (*tree, error) {
	t := &tree{mark: markName + "=" + rand.Text(), incoming: make(chan received), quit: make(chan struct{}), ended: make(chan struct{})}
	var ours, theirs [5]*os.File
	closeAll := func(files [5]*os.File) {
		for _, f := range files {
			f.Close() //nolint:errcheck // nil, or a pipe that nothing was written to
		}
	}
	for i := range ours {
		r, w, err := os.Pipe()
		if err != nil {
			closeAll(ours)
			closeAll(theirs)
			return nil, fmt.Errorf("make pipes for the runner: %w", err)
		}
		if theirs[i], ours[i] = r, w; 1 <= i && i <= 3 {
			theirs[i], ours[i] = w, r
		}
	}
	command := append(append(append([]string{}, cfg.Guard[1:]...), "--"), cfg.Command...)
	t.cmd = exec.Command(cfg.Guard[0], command...)
	t.cmd.Stdin, t.cmd.Stdout, t.cmd.Stderr = theirs[0], theirs[1], theirs[2]
	t.cmd.ExtraFiles = theirs[3:]
	t.cmd.Env = runnerEnv(cfg.Environ, append(append([]string{}, cfg.Extra...), t.mark))
	// A group of its own: Ctrl-C in a terminal is for the agent, which decides.
	t.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	err := t.cmd.Start()
	closeAll(theirs)
	if err != nil {
		closeAll(ours)
		return nil, fmt.Errorf("start the guard %s: %w", cfg.Guard[0], err)
	}
	t.requests, t.lifeline = ours[0], ours[4]
	t.stdout.pipe, t.stderr.pipe = ours[1], ours[2]
	t.watch(ours[3])
	return t, nil
}

// watch starts the tree's four goroutines. All end when the guard has ended.
func (t *tree) watch(events *os.File) {
	var readers sync.WaitGroup
	readers.Go(t.stdout.follow)
	readers.Go(t.stderr.follow)
	readers.Go(func() { t.read(events) })
	go func() {
		t.cmd.Wait() //nolint:errcheck // its state is read where it matters
		if _, killed := exitOf(t.cmd.ProcessState); killed {
			killMarked(t.mark)
			deadline := time.Now().Add(lastWords)
			for _, f := range []*os.File{events, t.stdout.pipe, t.stderr.pipe} {
				f.SetReadDeadline(deadline) //nolint:errcheck // pipes have deadlines
			}
		}
		readers.Wait()
		for _, f := range []*os.File{events, t.stdout.pipe, t.stderr.pipe, t.requests, t.lifeline} {
			f.Close() //nolint:errcheck // closing twice is no harm
		}
		close(t.ended)
	}()
}

// read offers every event until the stream ends or breaks the protocol.
func (t *tree) read(events io.Reader) {
	defer close(t.incoming)
	for in := runner.NewEvents(events); ; {
		event, err := in.Next()
		if errors.Is(err, io.EOF) || errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, os.ErrClosed) {
			return
		}
		select {
		case t.incoming <- received{event, err}:
		case <-t.quit:
			return
		}
		if err != nil {
			return
		}
	}
}

// kill ends the guard and everything below it, and waits until they are gone.
func (t *tree) kill(within time.Duration) error {
	t.lifeline.Close() //nolint:errcheck // closing twice is no harm
	return t.wait(within)
}

// wait gives the guard some time to end. Events that nobody took are dropped.
func (t *tree) wait(within time.Duration) error {
	t.quitOnce.Do(func() { close(t.quit) })
	timer := time.NewTimer(within)
	defer timer.Stop()
	select {
	case <-t.ended:
		return nil
	case <-timer.C:
		return fmt.Errorf("process %d and what it runs were killed %v ago and are still there: one may hang in the driver; look at dmesg, then reset the card or restart the host", t.cmd.Process.Pid, within)
	}
}

// hasEnded reports whether the guard is gone.
func (t *tree) hasEnded() bool {
	select {
	case <-t.ended:
		return true
	default:
		return false
	}
}

// idle reports whether the runner is alive and has said nothing since its last
// run. What it says unasked belongs to no run, and its state is not to be trusted.
func (t *tree) idle() bool {
	select {
	case <-t.incoming:
		return false
	default:
		return !t.hasEnded()
	}
}

// next waits for an event. It returns io.EOF when the runner is gone.
func (t *tree) next(ctx context.Context, timeout <-chan time.Time) (runner.Event, error) {
	select {
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case <-timeout:
		return nil, errTimeout
	case r, ok := <-t.incoming:
		if !ok {
			return nil, io.EOF
		}
		if r.err != nil {
			return nil, &violation{r.err}
		}
		return r.event, nil
	}
}

// errTimeout is what next returns when its time is up.
var errTimeout = errors.New("no event in time")

// violation is a breach of the protocol by the runner.
type violation struct{ err error }

func (v *violation) Error() string { return "the runner broke the protocol: " + v.err.Error() }
func (v *violation) Unwrap() error { return v.err }

// obituary says how the guard ended and what was written last, for a sentence.
func (t *tree) obituary() string {
	<-t.ended
	how, _ := exitOf(t.cmd.ProcessState)
	last := lastLine(printable(t.stderr.bytes()))
	if last == "" {
		last = lastLine(printable(t.stdout.bytes()))
	}
	if last == "" {
		return how + ", without a word"
	}
	return fmt.Sprintf("%s, last words: %s", how, last)
}

// exitOf describes how a guard ended, and whether it was itself killed.
func exitOf(state *os.ProcessState) (how string, killed bool) {
	status, ok := state.Sys().(syscall.WaitStatus)
	switch {
	case ok && status.Signaled():
		return "its guard was " + status.Signal().String(), true
	case state.ExitCode() > exitSignal:
		return "it was ended by signal: " + syscall.Signal(state.ExitCode()-exitSignal).String(), false
	default:
		return strings.Replace(state.String(), "exit status", "it ended with status", 1), false
	}
}

package child

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Descriptors that a guard is started with, beside 0, 1 and 2.
const (
	eventsFD   = 3 // passed through to the command
	lifelineFD = 4 // the guard's own: its end of file means that the agent is gone
)

// Exit codes of a guard that are not its command's.
const (
	exitUsage    = 125
	exitNotFound = 127
	exitSignal   = 128 // plus the signal's number
)

// parentDied is the guard's parent-death signal. The kernel sends it when the
// thread that started the guard ends, even if its process lives on; so it is a
// signal of its own, and the guard looks whether its parent has changed.
const parentDied = unix.SIGUSR1

// defaultGrace is how long a command may take to end after SIGTERM.
const defaultGrace = 2 * time.Second

// Guard is the whole of the hidden subcommand `fleetctl internal guard`. It runs
// the command in args ("--" command...), with descriptor 3 passed through, and
// returns its exit status (128 + number after a signal) once the command and
// every descendant of it have ended. It kills them all when descriptor 4 reaches
// its end of file, or some time after SIGTERM.
//
// It makes the calling process a sub-reaper and waits for all its children: call
// it from a process that does nothing else.
func Guard(args []string) int {
	flags := flag.NewFlagSet("guard", flag.ContinueOnError)
	grace := flags.Duration("grace", defaultGrace, "how long the command may take to end after SIGTERM")
	if err := flags.Parse(args); err != nil {
		return exitUsage
	}
	if flags.NArg() == 0 {
		fmt.Fprintln(os.Stderr, "guard: no command: usage: guard [--grace D] -- command [argument]...")
		return exitUsage
	}
	// The parent-death signal of the command is tied to the thread that starts
	// it, so this goroutine keeps its thread for good.
	runtime.LockOSThread()
	g := guard{grace: *grace, parent: os.Getppid(), ended: make(chan ended), signals: make(chan os.Signal, 4)}
	signal.Notify(g.signals, unix.SIGTERM, unix.SIGINT, unix.SIGHUP, parentDied)
	if err := g.start(flags.Args()); err != nil {
		fmt.Fprintf(os.Stderr, "guard: %v\n", err)
		return exitNotFound
	}
	return g.watch()
}

// ended is one child that was reaped; a zero pid says that none is left.
type ended struct {
	pid    int
	status unix.WaitStatus
}

type guard struct {
	grace   time.Duration
	parent  int
	command int
	ended   chan ended
	signals chan os.Signal
}

func (g *guard) start(command []string) error {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("become sub-reaper: %w", err)
	}
	// Not SIGKILL: a killed guard could not end its descendants.
	if err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(parentDied), 0, 0, 0); err != nil {
		return fmt.Errorf("set parent-death signal: %w", err)
	}
	// Started by hand, descriptors 3 and 4 may be the Go runtime's own.
	var stat unix.Stat_t
	if err := unix.Fstat(lifelineFD, &stat); err != nil || stat.Mode&unix.S_IFMT != unix.S_IFIFO {
		return errors.New("descriptor 4 is no pipe: a guard is started by an agent only")
	}
	unix.CloseOnExec(lifelineFD)
	path, err := exec.LookPath(command[0])
	if err != nil {
		return fmt.Errorf("find %s: %w", command[0], errors.Unwrap(err))
	}
	g.command, err = syscall.ForkExec(path, command, &syscall.ProcAttr{
		Env:   os.Environ(),
		Files: []uintptr{0, 1, 2, eventsFD},
		Sys:   &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL},
	})
	if err != nil {
		return fmt.Errorf("start %s: %w", path, err)
	}
	// The command's events end with the command, not with its guard.
	return unix.Close(eventsFD)
}

// watch waits for the command, the lifeline and signals, and returns when no
// descendant is left. A descendant that hangs in a driver keeps it waiting: the
// agent sees that and says so, and nothing is ever left behind unwatched.
func (g *guard) watch() int {
	lost := make(chan struct{})
	go func() { // ends with the process
		io.Copy(io.Discard, os.NewFile(lifelineFD, "lifeline")) //nolint:errcheck // any end means the same
		close(lost)
	}()
	go g.reap()

	var status unix.WaitStatus
	var graceOver <-chan time.Time
	killing := false
	for {
		select {
		case <-lost:
			lost, killing = nil, true
		case s := <-g.signals:
			if s == parentDied {
				killing = killing || os.Getppid() != g.parent
				break
			}
			if graceOver == nil {
				graceOver = time.After(g.grace)
			}
			unix.Kill(-g.command, unix.SIGTERM) //nolint:errcheck // gone already is as good
		case <-graceOver:
			killing = true
		case e := <-g.ended:
			if e.pid == 0 {
				return code(status)
			}
			if e.pid == g.command {
				status, killing = e.status, true
			}
		}
		if killing {
			killAll()
		}
	}
}

// reap waits for children, those of others too, until there are none.
func (g *guard) reap() {
	for {
		var e ended
		pid, err := unix.Wait4(-1, &e.status, 0, nil)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil: // ECHILD: nobody is left
			g.ended <- ended{}
			return
		}
		e.pid = pid
		g.ended <- e
	}
}

// killAll ends every descendant that exists now. One that is forked meanwhile
// is found after its parent was reaped, when watch calls killAll again.
func killAll() {
	below, err := descendants(os.Getpid())
	if err != nil {
		fmt.Fprintf(os.Stderr, "guard: %v\n", err)
		return
	}
	for _, p := range below {
		unix.Kill(p.pid, unix.SIGKILL) //nolint:errcheck // gone already is as good
	}
}

func code(status unix.WaitStatus) int {
	if status.Signaled() {
		return exitSignal + int(status.Signal())
	}
	return status.ExitStatus()
}

// signalName names a signal as evidence does: "killed", "segmentation fault".
func signalName(name string) string {
	if n := unix.SignalNum(strings.ToUpper(name)); n != 0 {
		return n.String()
	}
	return name
}

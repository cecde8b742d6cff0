package child

import (
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// An agent is killed while a run of it has a child that leads its own session,
// holds memory and ignores SIGTERM. Nobody may be alive afterwards.
func TestNobodySurvivesAKilledAgent(t *testing.T) {
	path, read := pidFIFO(t)
	agent := exec.Command(os.Args[0], roleAgent)
	agent.Env = append(os.Environ(), pidsName+"="+path)
	agent.Stderr = os.Stderr
	if err := agent.Start(); err != nil {
		t.Fatal(err)
	}
	fds := map[string]int{}
	pids := read(3)
	for role, pid := range pids {
		fds[role] = openPID(t, pid)
	}
	guard, err := readProcess(pids["runner"])
	if err != nil {
		t.Fatal(err)
	}
	fds["guard"] = openPID(t, guard.parent)
	if p, err := readProcess(guard.parent); err != nil || p.parent != agent.Process.Pid {
		t.Fatalf("the runner's parent is %+v (%v), not a child of the agent %d", p, err, agent.Process.Pid)
	}

	if err := agent.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	agent.Wait() //nolint:errcheck // it was killed
	for role, fd := range fds {
		mustDie(t, role, fd)
	}
}

// guarded starts a command under a guard, as an agent does, and returns the
// lifeline and the guard.
func guarded(t *testing.T, env []string, command ...string) (*os.File, *exec.Cmd) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0], append([]string{roleGuard, "--grace=5s", "--"}, command...)...)
	cmd.Env = append(os.Environ(), env...)
	cmd.ExtraFiles = []*os.File{null, r}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	r.Close()
	null.Close()
	t.Cleanup(func() { w.Close() })
	return w, cmd
}

func TestGuardPassesTheStatusOn(t *testing.T) {
	for name, c := range map[string]struct {
		command []string
		want    int
	}{
		"success":   {[]string{"true"}, 0},
		"status":    {[]string{"sh", "-c", "exit 7"}, 7},
		"signal":    {[]string{"sh", "-c", "kill -KILL $$"}, exitSignal + int(syscall.SIGKILL)},
		"not found": {[]string{"no-such-command-here"}, exitNotFound},
		"usage":     {nil, exitUsage},
	} {
		t.Run(name, func(t *testing.T) {
			_, cmd := guarded(t, nil, c.command...)
			cmd.Wait() //nolint:errcheck // the status is what is looked at
			if got := cmd.ProcessState.ExitCode(); got != c.want {
				t.Errorf("exit status %d, want %d", got, c.want)
			}
		})
	}
}

func TestGuardEndsWhatItsCommandLeft(t *testing.T) {
	path, read := pidFIFO(t)
	// The shell ends at once; its child is re-parented to the guard.
	_, cmd := guarded(t, []string{pidsName + "=" + path}, "sh", "-c", `setsid "$0" `+roleGrandchild+` & read go < "$1"`, os.Args[0], path+".go")
	if err := unix.Mkfifo(path+".go", 0o600); err != nil {
		t.Fatal(err)
	}
	fd := openPID(t, read(1)["grandchild"])
	release(t, path+".go")
	cmd.Wait() //nolint:errcheck // not what is looked at
	mustDie(t, "grandchild", fd)
}

func release(t *testing.T, fifo string) {
	t.Helper()
	f, err := os.OpenFile(fifo, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	f.WriteString("go\n") //nolint:errcheck // a reader waits
	f.Close()
}

func TestGuardOnSIGTERM(t *testing.T) {
	path, read := pidFIFO(t)
	for name, trap := range map[string]string{"obedient": "true", "deaf": "trap '' TERM"} {
		t.Run(name, func(t *testing.T) {
			lifeline, cmd := guarded(t, []string{"OUT=" + path}, "sh", "-c", trap+`; echo command $$ > "$OUT"; while :; do sleep 1000; done`)
			fd := openPID(t, read(1)["command"])
			if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
			if name == "deaf" {
				lifeline.Close() // the agent is gone too: no grace any more
			}
			cmd.Wait() //nolint:errcheck // the status is what is looked at
			mustDie(t, "command", fd)
			want := exitSignal + int(map[string]syscall.Signal{"obedient": syscall.SIGTERM, "deaf": syscall.SIGKILL}[name])
			if got := cmd.ProcessState.ExitCode(); got != want {
				t.Errorf("exit status %d, want %d", got, want)
			}
		})
	}
}

func TestGuardRefusesToRunByHand(t *testing.T) {
	out, err := exec.Command(os.Args[0], roleGuard, "--", "true").CombinedOutput()
	if err == nil || !strings.Contains(string(out), "started by an agent only") {
		t.Errorf("got %v, %s", err, out)
	}
}

package sim

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
)

// Fault is a way in which a run misbehaves, for tests of the machinery around
// it. FaultSlow carries a path, "slow=/path/of/a/fifo"; FaultHang, FaultFork and
// FaultBroken may carry one, and a run is well then unless a file is there. A
// check of the card (runner.WorkloadCheck) is a run.
type Fault string

const (
	// FaultHang: the run never ends.
	FaultHang Fault = "hang"
	// FaultCrash: the run's process dies of a segmentation fault.
	FaultCrash Fault = "crash"
	// FaultGarbage: bytes that are no event appear on the events pipe.
	FaultGarbage Fault = "garbage"
	// FaultFork: as FaultHang, after starting a child that leads a session of
	// its own, ignores SIGTERM and holds memory. "grandchild <pid>" is written
	// to stderr first.
	FaultFork Fault = "fork"
	// FaultLeave: as FaultFork, but the run itself ends well and leaves the
	// child behind.
	FaultLeave Fault = "leave"
	// FaultFlood: 16 MiB of text on stderr, then a run as ever.
	FaultFlood Fault = "flood"
	// FaultDie: the runner itself ends when it is asked for a run.
	FaultDie Fault = "die"
	// FaultBroken: the run ends at its first CUDA call, as on a card whose
	// memory is damaged.
	FaultBroken Fault = "broken"
	// FaultSlow: the run begins once the FIFO at the path is opened for writing.
	FaultSlow Fault = "slow"
)

// workloadPrefix begins the names of test workloads.
const workloadPrefix = "sim:"

func (f Fault) validate() error {
	kind, path, _ := strings.Cut(string(f), "=")
	switch Fault(kind) {
	case FaultHang, FaultFork, FaultBroken:
		return nil
	case "", FaultCrash, FaultGarbage, FaultLeave, FaultFlood, FaultDie:
		if path != "" {
			return fmt.Errorf("fault %q takes no value", kind)
		}
		return nil
	case FaultSlow:
		if path == "" {
			return fmt.Errorf("fault slow needs the path of a FIFO: slow=PATH")
		}
		return nil
	}
	return fmt.Errorf("fault %q is not one of hang[=PATH], crash, garbage, fork[=PATH], leave, flood, die, broken[=PATH], slow=PATH", string(f))
}

// now is the fault without its path, and whether a run is to suffer from it.
func (f Fault) now() (kind Fault, path string, on bool) {
	name, path, _ := strings.Cut(string(f), "=")
	if kind = Fault(name); kind != FaultSlow && path != "" {
		_, err := os.Stat(path)
		return kind, path, err == nil
	}
	return kind, path, kind != ""
}

// broken is how a run ends on a card whose memory is damaged, nil for a card
// that is well.
func (f Fault) broken() *rejection {
	if kind, _, on := f.now(); kind != FaultBroken || !on {
		return nil
	}
	return &rejection{exception: "AcceleratorError", message: "CUDA error: uncorrectable ECC error encountered\n" +
		"CUDA kernel errors might be asynchronously reported at some other API call, so the stacktrace below might be incorrect."}
}

// misbehave does what the fault wants before the run goes on, if it does.
func (f Fault) misbehave(events *os.File, self []string) error {
	kind, path, on := f.now()
	if !on {
		return nil
	}
	switch kind {
	case FaultHang:
		forever()
	case FaultCrash:
		// The Go runtime catches its own segmentation faults; a shell does not.
		return syscall.Exec("/bin/sh", []string{"sh", "-c", "kill -SEGV $$"}, nil)
	case FaultGarbage:
		if _, err := events.WriteString("\x7fELF is no event\n"); err != nil {
			return err
		}
		forever()
	case FaultFork, FaultLeave:
		pid, err := startGrandchild(self)
		if err != nil {
			return err
		}
		fmt.Fprintf(os.Stderr, "grandchild %d\n", pid)
		if kind == FaultFork {
			forever()
		}
	case FaultFlood:
		text := bytes.Repeat([]byte("all work and no play makes a dull log line\n"), 1<<14)
		for range 24 {
			os.Stderr.Write(text) //nolint:errcheck // nobody listens: as good
		}
		os.Stderr.WriteString("the end of the flood\x07\n") //nolint:errcheck // as above
	case FaultSlow:
		fifo, err := os.Open(path)
		if err != nil {
			return err
		}
		return fifo.Close()
	}
	return nil
}

// grandchildArg makes the run's program play the child that FaultFork starts.
const grandchildArg = "grandchild"

// startGrandchild returns once the child holds its memory and ignores SIGTERM.
func startGrandchild(self []string) (int, error) {
	ready, theirs, err := os.Pipe()
	if err != nil {
		return 0, err
	}
	cmd := exec.Command(self[0], append(append([]string{}, self[1:]...), grandchildArg)...)
	cmd.ExtraFiles = []*os.File{theirs}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	err = cmd.Start()
	theirs.Close() //nolint:errcheck // the child has its own
	if err != nil {
		return 0, err
	}
	ready.Read(make([]byte, 1)) //nolint:errcheck // its end is the signal
	return cmd.Process.Pid, nil
}

// grandchild never returns.
func grandchild() {
	signal.Ignore(syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	if _, err := hold(); err != nil {
		panic(err)
	}
	os.NewFile(eventsFD, "ready").Close() //nolint:errcheck // only closing counts
	forever()
}

// hold maps a little memory and touches it: a process that holds something.
func hold() ([]byte, error) {
	memory, err := syscall.Mmap(-1, 0, 8<<20, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_PRIVATE|syscall.MAP_ANON)
	if err != nil {
		return nil, fmt.Errorf("map memory: %w", err)
	}
	for i := 0; i < len(memory); i += os.Getpagesize() {
		memory[i] = 1
	}
	return memory, nil
}

func forever() {
	for {
		syscall.Select(0, nil, nil, nil, nil) //nolint:errcheck // a signal may end it early
	}
}

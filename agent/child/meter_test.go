package child

import (
	"errors"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/oomfleet/oomfleet/agent/probe"
	"github.com/oomfleet/oomfleet/proto"
)

// fakeMeter shows the real processes below a guard with invented sizes, and one
// neighbour (process 1) whose size grows with every look.
type fakeMeter struct {
	mu       sync.Mutex // guards all below
	identity probe.Identity
	fails    error
	tree     func() *tree
	foreign  bool // ids are of another pid namespace
	looks    int
	fifo     string
}

func (m *fakeMeter) Identify() (probe.Identity, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.identity, m.fails
}

func (m *fakeMeter) Sample() (probe.Sample, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.looks++
	if m.looks == 6 {
		f, err := os.OpenFile(m.fifo, os.O_WRONLY, 0)
		if err != nil {
			return probe.Sample{}, err
		}
		f.Close() //nolint:errcheck // nothing was written
	}
	size := func(n proto.Bytes) *proto.Bytes { return &n }
	s := probe.Sample{Used: 2 * proto.GiB, Free: 100 * proto.GiB, Total: 102 * proto.GiB,
		Processes: []probe.Process{{PID: 1, Used: size(proto.GiB + proto.Bytes(m.looks)*proto.MiB)}, {PID: 1 << 30, Used: nil}}}
	below, err := descendants(m.tree().cmd.Process.Pid)
	if err != nil {
		return s, err
	}
	for _, p := range below {
		pid := p.pid
		if m.foreign {
			pid += 1 << 24
		}
		s.Processes = append(s.Processes, probe.Process{PID: pid, Used: size(3 * proto.GiB)})
	}
	return s, nil
}

func runMetered(t *testing.T, change func(*fakeMeter)) probe.Observation {
	t.Helper()
	m := &fakeMeter{identity: probe.Identity{GPU: "NVIDIA H200", Driver: "1", UUID: "GPU-1", Total: 102 * proto.GiB}, fifo: t.TempDir() + "/wait"}
	if err := unix.Mkfifo(m.fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	p := newTestProber(t, "real", func(cfg *Config) {
		cfg.Meter, cfg.Extra = m, []string{waitName + "=" + m.fifo}
		cfg.Timing.Sample = time.Millisecond
	})
	m.tree = func() *tree { return p.tree }
	change(m)
	if _, err := p.Describe(t.Context()); err != nil {
		t.Fatal(err)
	}
	o, err := p.Run(t.Context(), taskOf("wait"))
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func TestMeterTellsOursFromNeighbours(t *testing.T) {
	e := runMetered(t, func(*fakeMeter) {}).Evidence
	if e.Meters.ProcessPeak == nil || *e.Meters.ProcessPeak != 3*proto.GiB {
		t.Errorf("process peak %v, want 3 GiB", e.Meters.ProcessPeak)
	}
	// The runner too holds memory, below our guard: it is no neighbour.
	if e.Neighbours != 2 || e.NeighbourMoved < 4*proto.MiB || e.NeighbourMoved > proto.GiB {
		t.Errorf("%d neighbours moved by %v", e.Neighbours, e.NeighbourMoved)
	}
	if *e.Meters.DeviceFreeBefore != 100*proto.GiB || *e.Meters.DeviceTotal != 102*proto.GiB {
		t.Errorf("device %v of %v", *e.Meters.DeviceFreeBefore, *e.Meters.DeviceTotal)
	}
}

func TestMeterInAnotherPIDNamespace(t *testing.T) {
	e := runMetered(t, func(m *fakeMeter) { m.foreign = true }).Evidence
	if e.Meters.ProcessPeak != nil {
		t.Errorf("process peak %v, but no process is ours by its id", *e.Meters.ProcessPeak)
	}
	if e.Meters.Missing["process_peak_bytes"] == "" {
		t.Errorf("no reason for the missing process peak: %v", e.Meters.Missing)
	}
	// The guard's own runner existed before the run, so its foreign id counts
	// as a neighbour's; the run's process must not.
	if e.Neighbours != 3 || e.NeighbourMoved > proto.GiB {
		t.Errorf("%d neighbours moved by %v", e.Neighbours, e.NeighbourMoved)
	}
}

func TestCardIsReadAgainAtEachDescribe(t *testing.T) {
	m := &fakeMeter{identity: probe.Identity{GPU: "NVIDIA H200", Driver: "1", UUID: "GPU-1", Total: 1}}
	p := newTestProber(t, "real", func(cfg *Config) { cfg.Meter = m })
	first, err := p.Describe(t.Context())
	if err != nil || first.Stack.Driver != "1" || first.Simulated {
		t.Fatalf("got %+v, %v", first, err)
	}
	runner := p.tree.hello.PID
	m.identity.Driver = "2"
	second, err := p.Describe(t.Context())
	if err != nil || second.Stack.Driver != "2" || first.Equal(second) {
		t.Fatalf("got %+v, %v", second, err)
	}
	if p.tree.hello.PID == runner {
		t.Error("the runner of the old driver still serves")
	}
	m.fails = errors.New("NVML: Driver/library version mismatch: reload the driver or restart the host")
	if _, err := p.Describe(t.Context()); !errors.Is(err, m.fails) || !strings.Contains(err.Error(), "read the card") {
		t.Errorf("got %v", err)
	}
}

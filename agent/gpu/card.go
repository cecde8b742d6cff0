package gpu

import (
	"bytes"
	"fmt"
	"strings"
	"time"

	"github.com/oomfleet/oomfleet/agent/probe"
	"github.com/oomfleet/oomfleet/proto"
)

// Card is one GPU, held open. Its methods may be called from several goroutines
// (NVML is thread-safe).
type Card struct {
	lib    *nvml
	handle uintptr
}

const (
	// openWithin is how long the driver may take to start and to say what the card
	// is: one that keeps nothing between uses takes many seconds.
	openWithin = time.Minute
	// closeWithin is the same for the end, which nobody needs to wait for.
	closeWithin = 5 * time.Second
)

// Open finds a card: by UUID ("GPU-..."), by index ("0", "1"), or the first one
// when which is empty; and says what it is. It returns ErrNoDriver without a driver, and a sentence
// that says what to do when there is no such card, or when the driver hangs.
func Open(which string) (*Card, probe.Identity, error) { return open(load, which) }

// open gives up on a driver that hangs: a call into one cannot be interrupted, and
// keeps its thread.
func open(load func() (*nvml, error), which string) (*Card, probe.Identity, error) {
	type opened struct {
		card *Card
		id   probe.Identity
		err  error
	}
	done := make(chan opened, 1)
	go func() {
		card, id, err := start(load, which)
		done <- opened{card, id, err}
	}()
	late := time.NewTimer(openWithin)
	defer late.Stop()
	select {
	case o := <-done:
		return o.card, o.id, o.err
	case <-late.C:
		return nil, probe.Identity{}, probe.Silent(openWithin)
	}
}

func start(load func() (*nvml, error), which string) (*Card, probe.Identity, error) {
	lib, err := load()
	if err != nil {
		return nil, probe.Identity{}, err
	}
	if s := lib.initV2(); s != statusOK {
		return nil, probe.Identity{}, fmt.Errorf("start NVML: %s", s.explain())
	}
	c := &Card{lib: lib}
	var id probe.Identity
	if err = c.find(which); err == nil {
		id, err = c.Identify()
	}
	if err != nil {
		lib.shutdown()
		return nil, probe.Identity{}, err
	}
	return c, id, nil
}

func (c *Card) find(which string) error {
	if strings.HasPrefix(which, "GPU-") {
		if s := c.lib.byUUID(which, &c.handle); s != statusOK {
			return fmt.Errorf("card %s: %s; nvidia-smi -L lists the cards of this machine", which, s.explain())
		}
		return nil
	}
	var count, index uint32
	if s := c.lib.count(&count); s != statusOK {
		return fmt.Errorf("count the cards: %s", s.explain())
	}
	if count == 0 {
		return fmt.Errorf("the NVIDIA driver is here but shows no card: check nvidia-smi -L")
	}
	if which != "" {
		if _, err := fmt.Sscanf(which, "%d", &index); err != nil || fmt.Sprint(index) != which {
			return fmt.Errorf("card %q is neither an index nor a UUID that begins with GPU-", which)
		}
	}
	if index >= count {
		return fmt.Errorf("card %d does not exist: this machine has %d, counted from 0", index, count)
	}
	if s := c.lib.byIndex(index, &c.handle); s != statusOK {
		return fmt.Errorf("open card %d: %s", index, s.explain())
	}
	return nil
}

// Close ends the use of NVML; of one that hangs, for a few seconds.
func (c *Card) Close() {
	done := make(chan struct{})
	go func() {
		c.lib.shutdown()
		close(done)
	}()
	late := time.NewTimer(closeWithin)
	defer late.Stop()
	select {
	case <-done:
	case <-late.C:
	}
}

// Identify reads model, driver, UUID and total memory, anew at each call: a
// driver that was replaced under a running agent shows here as an error or as
// another version.
func (c *Card) Identify() (probe.Identity, error) {
	var id probe.Identity
	for _, field := range []struct {
		what string
		to   *string
		get  func(*byte, uint32) status
	}{
		{"name", &id.GPU, func(b *byte, n uint32) status { return c.lib.name(c.handle, b, n) }},
		{"UUID", &id.UUID, func(b *byte, n uint32) status { return c.lib.uuid(c.handle, b, n) }},
		{"driver version", &id.Driver, c.lib.driver},
	} {
		text := make([]byte, 96)
		if s := field.get(&text[0], uint32(len(text))); s != statusOK {
			return id, fmt.Errorf("read the card's %s: %s", field.what, s.explain())
		}
		text, _, _ = bytes.Cut(text, []byte{0})
		*field.to = strings.ToValidUTF8(string(text), "?")
		if isNoValue(*field.to) {
			return id, fmt.Errorf("the driver gives no %s for this card (%q): check nvidia-smi", field.what, *field.to)
		}
	}
	var m memoryInfo
	if s := c.lib.memory(c.handle, &m); s != statusOK {
		return id, fmt.Errorf("read the card's memory: %s", s.explain())
	}
	if err := m.check(); err != nil {
		return id, err
	}
	id.Total = proto.Bytes(m.total)
	return id, nil
}

// isNoValue tells the words that drivers write where they have no value.
func isNoValue(text string) bool {
	text = strings.ToLower(strings.Trim(text, " []"))
	switch text {
	case "", "n/a", "err!", "not supported", "unknown error", "insufficient permissions", "gpu is lost", "gpu requires reset":
		return true
	}
	return false
}

// check refuses numbers that no card has: 0, and NVML's marks for unknown.
func (m memoryInfo) check() error {
	const most = 1 << 50 // 1 PiB
	if m.total == 0 || m.total > most || m.free > m.total || m.used > m.total {
		return fmt.Errorf("the driver gives no memory for this card (%d bytes, %d free, %d used): check nvidia-smi", m.total, m.free, m.used)
	}
	return nil
}

// Sample reads the memory in use and the processes that hold it.
func (c *Card) Sample() (probe.Sample, error) {
	var m memoryInfo
	if s := c.lib.memory(c.handle, &m); s != statusOK {
		return probe.Sample{}, fmt.Errorf("read the card's memory: %s", s.explain())
	}
	if err := m.check(); err != nil {
		return probe.Sample{}, err
	}
	out := probe.Sample{Total: proto.Bytes(m.total), Free: proto.Bytes(m.free), Used: proto.Bytes(m.used)}
	infos := make([]processInfo, 64)
	for {
		n := uint32(len(infos))
		s := c.lib.computeProc(c.handle, &n, &infos[0])
		if s == statusInsufficientSize {
			infos = make([]processInfo, int(n)+16)
			continue
		}
		if s != statusOK {
			return out, fmt.Errorf("list the card's processes: %s", s.explain())
		}
		for _, p := range infos[:n] {
			seen := probe.Process{PID: int(p.pid)}
			if p.used != usedUnknown {
				used := proto.Bytes(p.used)
				seen.Used = &used
			}
			out.Processes = append(out.Processes, seen)
		}
		return out, nil
	}
}

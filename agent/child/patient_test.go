package child

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/oomfleet/oomfleet/agent/probe"
	"github.com/oomfleet/oomfleet/proto"
)

// stalledMeter is a driver that may hang: its calls then end when it is freed.
type stalledMeter struct {
	identify, sample atomic.Bool // these hang
	calls            atomic.Int32
	freed            chan struct{}
}

func (m *stalledMeter) wait(hangs *atomic.Bool) {
	if hangs.Load() {
		m.calls.Add(1)
		<-m.freed
	}
}

func (m *stalledMeter) Identify() (probe.Identity, error) {
	m.wait(&m.identify)
	return probe.Identity{GPU: "NVIDIA H200", Driver: "1", UUID: "GPU-1", Total: 102 * proto.GiB}, nil
}

func (m *stalledMeter) Sample() (probe.Sample, error) {
	m.wait(&m.sample)
	return probe.Sample{Free: 100 * proto.GiB, Total: 102 * proto.GiB}, nil
}

// TestDriverThatHangs: whoever asks it learns so within the limit, however often
// it is asked; calls do not pile up, and an answer that comes at last is the end
// of it.
func TestDriverThatHangs(t *testing.T) {
	m := &stalledMeter{freed: make(chan struct{})}
	m.identify.Store(true)
	p := newTestProber(t, "real", func(cfg *Config) { cfg.Meter, cfg.Timing.Meter = m, 100*time.Millisecond })
	for range 3 {
		if _, err := p.Describe(t.Context()); err == nil || !strings.Contains(err.Error(), "has not answered for 100ms") {
			t.Errorf("%v", err)
		}
	}
	if n := m.calls.Load(); n != 1 {
		t.Errorf("%d calls hang in the driver", n)
	}
	m.identify.Store(false)
	close(m.freed)
	for { // a busy machine may be late with an answer that is there
		d, err := p.Describe(t.Context())
		if err == nil {
			if d.Card.UUID != "GPU-1" {
				t.Errorf("described as %+v", d)
			}
			return
		}
		if !strings.Contains(err.Error(), "has not answered") {
			t.Fatal(err)
		}
	}
}

// TestDriverHangsInARun: the run comes to its end all the same, with the reason
// why nobody looked at the card, and the next one is refused.
func TestDriverHangsInARun(t *testing.T) {
	m := &stalledMeter{freed: make(chan struct{})}
	p := newTestProber(t, "real", func(cfg *Config) { cfg.Meter, cfg.Timing.Meter = m, time.Second })
	t.Cleanup(func() { close(m.freed) })
	for {
		if _, err := p.Describe(t.Context()); err == nil {
			break
		} else if !strings.Contains(err.Error(), "has not answered") {
			t.Fatal(err)
		}
	}
	m.sample.Store(true)
	o, err := p.Run(t.Context(), taskOf("ok"))
	if err != nil {
		t.Fatal(err)
	}
	if why := o.Evidence.Meters.Missing["neighbours"]; !strings.Contains(why, "has not answered") || o.Evidence.OutputFinite == nil {
		t.Errorf("neighbours are missing because %q, evidence %+v", why, o.Evidence)
	}
	if _, err := p.Run(t.Context(), taskOf("ok")); err == nil || !strings.Contains(err.Error(), "read the card: the driver has not answered") {
		t.Errorf("the next run: %v", err)
	}
}

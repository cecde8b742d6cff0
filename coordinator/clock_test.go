package coordinator

import (
	"bytes"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/oomfleet/oomfleet/proto"
)

func TestClocksOfAgents(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	agent := func(id proto.AgentID, off time.Duration) proto.AgentInfo {
		return proto.AgentInfo{ID: id, SeenUnixMS: now.Add(off).UnixMilli()}
	}
	var r roster
	for i, step := range []struct {
		agents []proto.AgentInfo
		want   string
	}{
		{[]proto.AgentInfo{agent("a", -15*time.Second), agent("b", 50*time.Second), {ID: "silent"}}, ""},
		{[]proto.AgentInfo{agent("a", 20*time.Minute), agent("b", -2*time.Minute), {ID: "silent"}}, "a b"},
		{[]proto.AgentInfo{agent("a", 20*time.Minute), agent("b", 0), agent("c", 61*time.Second)}, "c"},
		{[]proto.AgentInfo{agent("b", -2*time.Minute)}, "b"}, // again, after it had been right
		{[]proto.AgentInfo{agent("a", 20*time.Minute), agent("b", -2*time.Minute)}, "a"},
	} {
		var got []string
		for _, a := range r.set(step.agents, now) {
			got = append(got, string(a.ID))
		}
		if said := strings.Join(got, " "); said != step.want {
			t.Errorf("step %d: %q, want %q", i, said, step.want)
		}
		if len(r.seen()) != len(step.agents) {
			t.Errorf("step %d: %d agents are there", i, len(r.seen()))
		}
	}
}

// locked is a buffer for a log.
type locked struct {
	mu  sync.Mutex // guards buf
	buf bytes.Buffer
}

func (l *locked) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *locked) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

// TestWrongClockIsSaid: the leader's log names an agent whose clock is 20 minutes
// off, once; its work is as good as any other's.
func TestWrongClockIsSaid(t *testing.T) {
	f := newFleet(t)
	f.announce(proto.AgentInfo{ID: "early", Host: "host-7", State: proto.AgentIdle, SeenUnixMS: time.Now().Add(20 * time.Minute).UnixMilli()}, time.Hour)
	var log locked
	c, err := New(f.cfg, Deps{Registry: f.registry, Queue: f.queue, Traces: f.traces, Log: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	stop := f.background(c.Run)
	endAgents := f.agents(1, f.honest)
	f.check(f.settled(f.submit(c, "[100, 200]")))
	for !strings.Contains(log.String(), "clock differs") && f.ctx.Err() == nil {
		<-time.After(time.Millisecond)
	}
	endAgents()
	stop()
	if text := log.String(); strings.Count(text, "clock differs") != 1 || !strings.Contains(text, "agent=early host=host-7 its_time=") || !strings.Contains(text, " time_here=") || !strings.Contains(text, "check NTP") {
		t.Errorf("the log says:\n%s", text)
	}
}

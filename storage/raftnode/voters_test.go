package raftnode

import (
	"context"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
)

// counter counts the log's lines that hold a text.
type counter struct {
	text string
	n    atomic.Int64
}

func (c *counter) Enabled(context.Context, slog.Level) bool { return true }
func (c *counter) WithAttrs([]slog.Attr) slog.Handler       { return c }
func (c *counter) WithGroup(string) slog.Handler            { return c }
func (c *counter) Handle(_ context.Context, r slog.Record) error {
	if r.Level == slog.LevelWarn && strings.Contains(r.Message, c.text) {
		c.n.Add(1)
	}
	return nil
}

// TestTwoVotersAreWarnedOf: a leader says that two voters are worse than one, once
// and not at every look; of three nothing is said.
func TestTwoVotersAreWarnedOf(t *testing.T) {
	t.Parallel()
	said := &counter{text: "two voters"}
	cfgs := configs(t, t.TempDir(), t.TempDir(), t.TempDir())
	for i := range cfgs {
		cfgs[i].Keep, cfgs[i].Logger = hasty, slog.New(said)
	}
	nodes := cluster(t, cfgs, nil)
	l := leader(t, nodes...)
	until(t, "the leader has looked at three", func() bool { return leader(t, nodes...).Stats().Group.Compared > 0 })
	if n := said.n.Load(); n != 0 {
		t.Errorf("said %d times of three voters", n)
	}
	gone := others(nodes, l)[0]
	rest := others(nodes, gone)
	if err := leader(t, rest...).Remove(patient(t), gone.cfg.ID); err != nil {
		t.Fatal(err)
	}
	until(t, "two voters are warned of", func() bool { return said.n.Load() > 0 })
	l = leader(t, rest...)
	term, compared := l.Term(), l.Stats().Group.Compared
	until(t, "the leader has looked again and again", func() bool { return l.Term() != term || l.Stats().Group.Compared >= compared+3 })
	if n := said.n.Load(); l.Term() == term && n > int64(term) {
		t.Errorf("said %d times in %d terms", n, term)
	}
}

package raftnode

import (
	"errors"
	"strings"
	"testing"

	"github.com/oomfleet/oomfleet/storage/registry"
)

// TestEntryThatNobodyCouldReadIsRefused: a command that packs to little and
// unpacks to more than a node reads never gets into the log, where it would stop
// every member, and again at every start.
func TestEntryThatNobodyCouldReadIsRefused(t *testing.T) {
	t.Parallel()
	n := lone(t, t.TempDir())
	cmd := sweep("bomb", 1)
	cmd.AddSweep.Source = strings.Repeat("x", maxCommand)
	if _, err := n.Propose(patient(t), cmd); !errors.Is(err, registry.ErrTooLarge) {
		t.Fatalf("got %v", err)
	}
	propose(t, n, sweep("after", 1))
}

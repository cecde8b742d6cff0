package devfleet

import (
	"slices"
	"testing"
)

// TestGPUAgentsTakeOneCardEach: agents of one machine are told apart by their
// cards; the only one is left to take the first, or what its arguments name.
func TestGPUAgentsTakeOneCardEach(t *testing.T) {
	for _, tt := range []struct {
		agents int
		want   []string
	}{
		{1, nil},
		{2, []string{"0", "1"}},
	} {
		f, err := New(Config{Agent: AgentGPU, Agents: tt.agents, DataDir: t.TempDir()})
		if err != nil {
			t.Fatal(err)
		}
		var cards []string
		for i := range f.cfg.Agents {
			args := f.agentSpec(i).args("")
			if at := slices.Index(args, "--card"); at >= 0 {
				cards = append(cards, args[at+1])
			}
		}
		if !slices.Equal(cards, tt.want) {
			t.Errorf("%d agents take the cards %q, want %q", tt.agents, cards, tt.want)
		}
	}
}

package devfleet

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/oomfleet/oomfleet/agent"
	"github.com/oomfleet/oomfleet/agent/child"
	"github.com/oomfleet/oomfleet/agent/sim"
	"github.com/oomfleet/oomfleet/coordinator"
	"github.com/oomfleet/oomfleet/internal/config"
	"github.com/oomfleet/oomfleet/proto"
)

// TestBrokenCard: a card answers the driver's questions and breaks every run. It
// costs the sweep one attempt, whether another agent is there, which settles every
// cell, or none, and the sweep waits; then the operator sees why, and when the
// card is well again the agent goes on by itself.
func TestBrokenCard(t *testing.T) {
	t.Parallel()
	w := start(t, Config{Agents: 2, Drivers: []config.SimulatedDriver{{Driver: RecordedDriver}}})
	broken := filepath.Join(t.TempDir(), "the-card-is-broken-while-this-is-here")
	if err := os.WriteFile(broken, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	results, log := w.ownAgent(sim.FaultBroken+sim.Fault("="+broken), nil, func(p *child.Prober) agent.Prober { return p })
	submit := func(name, lengths string) proto.MatrixID {
		t.Helper()
		file := filepath.Join(t.TempDir(), name+".yaml")
		text := "apiVersion: oomfleet/v1\nname: " + name + "\nworkload: {name: esmfold}\ntarget: {gpu: NVIDIA H200}\n" +
			"axes: {seq_len: [" + lengths + "], batch: [1], driver: [" + RecordedDriver + "]}\n"
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return ask[coordinator.SubmitReply](w, "matrix", "submit", file, "--origin", "simulated").Matrix.ID
	}
	faults := func() {
		t.Helper()
		select {
		case r := <-results:
			if r.Outcome != proto.OutcomeAgentFault || !strings.Contains(r.Why, "uncorrectable ECC error") {
				t.Errorf("the run on the broken card is %s: %s", r.Outcome, r.Why)
			}
		case <-time.After(patience):
			t.Fatal("the agent takes no task")
		}
	}
	// looks waits until the agent has seen n times more that its card is broken.
	const failed = "the card fails its check: AcceleratorError: CUDA error: uncorrectable ECC error encountered"
	looks := func(n int) {
		t.Helper()
		n += strings.Count(log.String(), failed)
		await(t, "the agent looks at its card again", func() bool { return strings.Count(log.String(), failed) >= n })
	}
	says := func(when string, command ...string) {
		t.Helper()
		bad := string(agent.IDOf(sim.Config{Driver: RecordedDriver}.UUID()))
		await(t, when, func() bool {
			s := w.cli(command...)
			all := strings.Join(strings.Fields(s.out+s.errors), " ")
			return strings.Contains(all, bad) && strings.Contains(all, "is quarantined") && strings.Contains(all, failed)
		})
	}
	finishes := func(id proto.MatrixID, cells int) {
		t.Helper()
		r := ask[proto.Report](w, "matrix", "status", string(id), "--wait")
		if len(r.Cells) != cells || r.Counts.Settled() != cells || r.Counts.Failed != 0 {
			t.Errorf("sweep %s came to %+v", id, r.Counts)
		}
	}

	// The other agent is held in its first run until this one has taken a task.
	together := submit("together", "128, 192, 200, 208, 216, 224")
	faults()
	looks(1)
	w.gate.open()
	finishes(together, 6)
	if n := len(results); n != 0 {
		t.Errorf("the agent took %d tasks more", n)
	}
	says("the list of agents says why", "agents", "list")

	w.down(agentName(1))
	alone := submit("alone", "232, 240, 248")
	looks(3)
	says("the sweep's status says what it waits for, and why", "matrix", "status", string(alone))
	if r, err := w.client().Sweep(t.Context(), alone); err != nil || r.Counts.Settled() != 0 || len(results) != 0 {
		t.Errorf("with a broken card alone: %+v, %d runs, %v", r.Counts, len(results), err)
	}
	if err := os.Remove(broken); err != nil {
		t.Fatal(err)
	}
	finishes(alone, 3)
}

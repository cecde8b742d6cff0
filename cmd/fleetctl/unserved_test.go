package main

import (
	"strings"
	"testing"
	"time"

	"github.com/oomfleet/oomfleet/proto"
)

func TestUnservedNamesTheMissingStack(t *testing.T) {
	cell := func(driver string, state proto.CellState) proto.CellReport {
		return proto.CellReport{GPU: "NVIDIA H200", Driver: driver, Origin: proto.OriginMeasured, State: state}
	}
	r := proto.Report{State: "running", Cells: []proto.CellReport{
		cell("580.1", proto.CellPending), cell("580.2", proto.CellRunning), cell("580.2", proto.CellPending), cell("580.3", proto.CellCertified)}}
	agent := proto.AgentInfo{Origin: proto.OriginMeasured, Stack: proto.Stack{GPU: "NVIDIA H200", Driver: "580.1"}}
	got := sentences(unserved(r, []proto.AgentInfo{agent}))
	if len(got) != 1 || !strings.HasPrefix(got[0], "2 cells wait") || !strings.Contains(got[0], "580.2") {
		t.Errorf("got %q", got)
	}
	agent.Origin = proto.OriginSimulated // a simulated agent serves no measured cell
	if got := unserved(r, []proto.AgentInfo{agent}); len(got) != 2 || !strings.Contains(got[0].remedy(), "--origin simulated") || strings.Contains(got[1].remedy(), "--origin") {
		t.Errorf("got %q", got)
	}
	for i := range r.Cells {
		r.Cells[i].Origin = proto.OriginSimulated
	}
	if got := unserved(r, nil); got[0].remedy() != "; start one: fleetctl agent --sim --sim-driver 580.1 --config FILE" {
		t.Errorf("got %q", got[0].remedy())
	}
}

// TestUnservedSaysForHowLong: status names the wait and what ends it, also where
// settled cells wait to be recorded again.
func TestUnservedSaysForHowLong(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	cell := func(state proto.CellState) proto.CellReport {
		return proto.CellReport{GPU: "NVIDIA H200", Driver: "580.2", Origin: proto.OriginMeasured, State: state}
	}
	r := proto.Report{State: "running", Origin: proto.OriginMeasured, Cells: []proto.CellReport{cell(proto.CellRunning), cell(proto.CellPending)},
		Open: []proto.OpenCells{{GPU: "NVIDIA H200", Driver: "580.2", Cells: 1, Since: now.Add(-3 * time.Minute)}}}
	const start = "; start one on such a card: fleetctl agent --config FILE"
	if got := atLength(unserved(r, nil), now); len(got) != 1 ||
		got[0] != "2 cells wait for an agent of NVIDIA H200, driver 580.2, measured: none is announced, for 3 min now"+start {
		t.Errorf("%q", got)
	}
	r.Cells = []proto.CellReport{cell(proto.CellCertified), cell(proto.CellCertified)}
	if got := atLength(unserved(r, nil), now.Add(-time.Hour)); len(got) != 1 || !strings.HasPrefix(got[0], "1 cell waits for an agent") || !strings.HasSuffix(got[0], "for 1 s now"+start) {
		t.Errorf("a repeat, and a clock that is behind: %q", got)
	}
	there := proto.AgentInfo{ID: "gpu-1", Origin: proto.OriginMeasured, State: proto.AgentIdle, Stack: proto.Stack{GPU: "NVIDIA H200", Driver: "580.2"}}
	if got := unserved(r, []proto.AgentInfo{there}); len(got) != 0 {
		t.Errorf("served: %q", got)
	}
	there.State = proto.AgentQuarantined
	if got := atLength(resting(r, []proto.AgentInfo{there}), now); len(got) != 1 || !strings.HasSuffix(got[0], "gpu-1 is quarantined, for 3 min now") {
		t.Errorf("resting: %q", got)
	}
}

func atLength(waits []wait, now time.Time) (out []string) {
	for _, w := range waits {
		out = append(out, w.atLength(now))
	}
	return out
}

package main

import (
	"strings"
	"testing"

	"github.com/oomfleet/oomfleet/proto"
)

func TestUnservedNamesTheMissingStack(t *testing.T) {
	cell := func(driver string, state proto.CellState) proto.CellReport {
		return proto.CellReport{GPU: "NVIDIA H200", Driver: driver, Origin: proto.OriginMeasured, State: state}
	}
	r := proto.Report{State: "running", Cells: []proto.CellReport{
		cell("580.1", proto.CellPending), cell("580.2", proto.CellRunning), cell("580.2", proto.CellPending), cell("580.3", proto.CellCertified)}}
	agent := proto.AgentInfo{Origin: proto.OriginMeasured, Stack: proto.Stack{GPU: "NVIDIA H200", Driver: "580.1"}}
	got := unserved(r, []proto.AgentInfo{agent})
	if len(got) != 1 || !strings.HasPrefix(got[0], "2 cells wait") || !strings.Contains(got[0], "580.2") {
		t.Errorf("got %q", got)
	}
	agent.Origin = proto.OriginSimulated // a simulated agent serves no measured cell
	if got := unserved(r, []proto.AgentInfo{agent}); len(got) != 2 {
		t.Errorf("got %q", got)
	}
}

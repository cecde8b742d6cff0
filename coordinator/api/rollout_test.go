package api_test

import (
	"errors"
	"net/url"
	"strings"
	"testing"

	"github.com/oomfleet/oomfleet/coordinator/api"
	"github.com/oomfleet/oomfleet/proto"
	"github.com/oomfleet/oomfleet/storage/registry"
)

// settledUnder adds a settled sweep of a few lengths under a driver.
func (c *cluster) settledUnder(id proto.MatrixID, origin proto.Origin, driver string, edit ...func(*proto.Cell)) {
	c.Helper()
	var cells []proto.Cell
	for _, n := range []int{64, 96, 128, 160} {
		cells = append(cells, cell(n, append(edit, func(c *proto.Cell) { c.Driver = driver })...))
	}
	c.addSweep(id, origin, cells...)
	for _, each := range cells {
		c.record(origin, each, proto.Digest(strings.Repeat("a", 64)))
		c.settle(origin, each, registry.Settlement{State: proto.CellCertified,
			Boundary: proto.Boundary{Boundary: 7 * proto.GiB, LowestPass: 7 * proto.GiB, BandsKnown: true}})
	}
}

func TestCompareSweeps(t *testing.T) {
	c := newCluster(t)
	leader, follower := c.serve("n1", nil), c.serve("n2", nil)
	c.believe("n1", "n1")
	c.believe("n2", "n1")
	c.settledUnder("old", proto.OriginMeasured, "580.1")
	c.settledUnder("new", proto.OriginMeasured, "590.1")
	c.settledUnder("sim", proto.OriginSimulated, "590.1")
	c.addSweep("open", proto.OriginMeasured, cell(64, func(c *proto.Cell) { c.Driver = "595.1" }))
	c.settledUnder("late", proto.OriginMeasured, "570.1")
	client := c.client(follower)
	for _, q := range []url.Values{{"after": {"new"}}, {"after": {"new"}, "before": {"old"}}} {
		d, err := client.CompareSweeps(t.Context(), q)
		if err != nil || d.Before.Sweep.ID != "old" || d.After.Sweep.ID != "new" || d.Verdict != proto.VerdictSame || d.Counts.Same != 4 {
			t.Errorf("%v: %v, %s against %s: %s %+v", q, err, d.After.Sweep.ID, d.Before.Sweep.ID, d.Summary, d.Counts)
		}
	}
	for query, want := range map[string]struct {
		status int
		code   string
		says   string
	}{
		"after=nothing":                             {404, api.CodeNotFound, "no such sweep"},
		"after=new&before=nothing":                  {404, api.CodeNotFound, "no such sweep"},
		"after=old":                                 {422, api.CodeBadRequest, "name the sweep to compare it with"},
		"after=late":                                {422, api.CodeBadRequest, "newer drivers"},
		"after=sim&before=old":                      {422, api.CodeBadRequest, "two origins are never compared"},
		"after=open&before=old":                     {422, api.CodeBadRequest, "not settled yet"},
		"after=new&before=old&before_driver=1":      {422, api.CodeBadRequest, "has no driver 1"},
		"after=new&before=old&confidence=95":        {422, api.CodeBadRequest, "confidence"},
		"after=new&before=old&confidence=0":         {422, api.CodeBadRequest, "confidence"},
		"after=new&before=old&confidence=NaN":       {422, api.CodeBadRequest, "not between"},
		"after=new&before=old&margin_bytes=0":       {422, api.CodeBadRequest, "margin_bytes"},
		"after=new&before=old&margin_bytes=-1":      {422, api.CodeBadRequest, "margin_bytes"},
		"":                                          {422, api.CodeBadRequest, "after"},
		"after=new&before=old&margin_bytes=sixteen": {422, api.CodeBadRequest, "margin_bytes"},
	} {
		c.request("GET", leader.URL+"/v1/compare?"+query, "").wantProblem(t, want.status, want.code, want.says)
	}
}

// TestRepeatSweep: a repeat reaches the leader through a follower, and what
// cannot be repeated is refused in a sentence.
func TestRepeatSweep(t *testing.T) {
	c := newCluster(t)
	leader, follower := c.serve("n1", nil), c.serve("n2", nil)
	c.believe("n1", "n1")
	c.believe("n2", "n1")
	c.settledUnder("old", proto.OriginMeasured, "580.1")
	client := c.client(follower)
	reply, err := client.Repeat(t.Context(), "old", api.Repetition{Cells: []proto.CellID{cell(64).ID(), cell(96).ID()}, Repeats: 2})
	if err != nil || reply.Settled != 2 {
		t.Fatalf("%+v, %v", reply, err)
	}
	report, err := client.Sweep(t.Context(), reply.Matrix.ID)
	if err != nil || report.State != registry.SweepRunning || report.Rollout.Trigger.Of != "old" || report.Cells[0].State != proto.CellCertified {
		t.Errorf("%v, %s %+v", err, report.State, report.Rollout)
	}
	var p *api.Problem
	if _, err := client.Repeat(t.Context(), "nothing", api.Repetition{Cells: []proto.CellID{cell(64).ID()}, Repeats: 1}); !errors.As(err, &p) || p.Code != api.CodeNotFound {
		t.Errorf("unknown sweep: %v", err)
	}
	url := leader.URL + "/v1/sweeps/old/repeat"
	c.request("POST", url, `{"cells": ["00"], "repeats": 1}`).wantProblem(t, 409, api.CodeRefused, "there is no measured cell")
	c.request("POST", url, `{"cells": [], "repeats": 1}`).wantProblem(t, 422, api.CodeBadRequest, "cells")
	c.request("POST", url, `{"cells": ["00"], "repeats": 21}`).wantProblem(t, 422, api.CodeBadRequest, "repeats")
}

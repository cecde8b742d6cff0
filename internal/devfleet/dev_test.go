package devfleet

import (
	"bytes"
	"encoding/json"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/oomfleet/oomfleet/proto"
)

// devRun is one run of `fleetctl dev --submit`, as a person would start it.
type devRun struct {
	said
	took time.Duration
	// processes and files that were there when it had ended
	processes []proc
	files     []string
}

// undisturbed runs the small matrix once for all tests. Nothing is killed in it,
// so it also is what every disturbed sweep must come to.
var undisturbed = struct {
	once sync.Once
	run  devRun
}{}

func undisturbedRun(t *testing.T) devRun {
	t.Helper()
	undisturbed.once.Do(func() {
		program, temp := binary(t), t.TempDir()
		began := time.Now()
		run := devRun{said: command(t, program, []string{"TMPDIR=" + temp}, "dev", "--submit", smallMatrix, "--json")}
		run.took, run.processes = time.Since(began), living(t, program)
		left, err := os.ReadDir(temp)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range left {
			run.files = append(run.files, e.Name())
		}
		undisturbed.run = run
	})
	if undisturbed.run.code != 0 || undisturbed.run.out == "" {
		t.Fatalf("fleetctl dev ended with %d:\n%s", undisturbed.run.code, undisturbed.run.errors)
	}
	return undisturbed.run
}

func undisturbedReport(t *testing.T) proto.Report {
	t.Helper()
	return decode[proto.Report](t, undisturbedRun(t).out)
}

func TestDevSettlesTheSmallMatrix(t *testing.T) {
	run := undisturbedRun(t)
	// A minute is the promise where nobody else works. Others may leave it one
	// of ten turns, not more.
	if run.took > time.Minute+10*run.busy {
		t.Errorf("it took %s, %s of them at work; a minute is the promise", run.took, run.busy)
	}
	for _, p := range run.processes {
		t.Errorf("left a process behind: %d %s", p.pid, p.args)
	}
	if len(run.files) > 0 {
		t.Errorf("left files behind in the temporary folder: %v", run.files)
	}
	for _, bad := range []string{"error", "ERROR", "level=WARN", "panic", "fleetctl:"} {
		if strings.Contains(run.errors, bad) {
			t.Errorf("stderr contains %q:\n%s", bad, run.errors)
		}
	}
	report := decode[proto.Report](t, run.out)
	if report.Counts.Total != smallCells || report.Counts.Certified != smallCells {
		t.Errorf("counts are %+v", report.Counts)
	}
	var drivers []string
	for _, c := range report.Cells {
		if c.Origin != proto.OriginSimulated || report.Origin != proto.OriginSimulated {
			t.Errorf("cell %s is %s in a sweep that is %s", c.ID, c.Origin, report.Origin)
		}
		if c.SeqLen == 384 && c.Batch == 1 && c.ChunkSize == 0 && len(c.Env) == 0 {
			drivers = append(drivers, c.Driver)
			if c.Boundary.Boundary != 11_549_016_064 {
				t.Errorf("L384 B1 on %s has the boundary %d", c.Driver, int64(c.Boundary.Boundary))
			}
		}
	}
	if len(drivers) != 2 || drivers[0] == drivers[1] {
		t.Errorf("L384 B1 is there for the drivers %v, want both", drivers)
	}
	for _, c := range report.Coefficients {
		if c.Origin != proto.OriginSimulated {
			t.Errorf("coefficients of %s are %s", c.Group.Driver, c.Origin)
		}
	}
	if len(report.Coefficients) == 0 {
		t.Error("there are no coefficients")
	}
}

// contractDocument is the document as docs and users know it, written down from
// the contract and not from the code. Every field of it must be there.
const contractDocument = `{
 "matrix": {"name": "", "id": ""},
 "cells": [{"id": "", "gpu": "", "driver": "", "workload": {}, "seq_len": 0, "batch": 0, "chunk_size": 0, "env": {}, "quota_kind": "", "origin": "",
   "state": "", "boundary_bytes": 0, "lowest_pass_bytes": 0, "no_retry_bytes": 0, "fail_bands": [], "bands_known": true,
   "peak_allocated_bytes": 0, "peak_reserved_bytes": 0, "process_peak_bytes": 0, "probes": 0, "gpu_seconds": 0}],
 "coefficients": [{"group": {}, "quota_kind": "", "origin": "", "target": "",
   "terms": [{"name": "", "value": 0, "unit": "", "lo": 0, "hi": 0}], "residual_max_rel": 0, "domain": {"seq_len": [0], "batch": [0]}}]
}`

func TestDevDocumentIsTheContracts(t *testing.T) {
	var want, got any
	text := undisturbedRun(t).out
	decoder := json.NewDecoder(strings.NewReader(text))
	if err := decoder.Decode(&got); err != nil {
		t.Fatal(err)
	}
	if rest, _ := new(bytes.Buffer), 0; decoder.More() {
		rest.ReadFrom(decoder.Buffered())
		t.Errorf("after the document comes more: %q", rest)
	}
	if err := json.Unmarshal([]byte(contractDocument), &want); err != nil {
		t.Fatal(err)
	}
	var problems []string
	conforms("document", want, got, &problems)
	for _, p := range problems {
		t.Error(p)
	}
	if strings.Contains(text, "null") {
		t.Error("the document has a null")
	}
	report := undisturbedReport(t)
	states := []proto.CellState{"certified", "predicted", "bisected", "adaptive", "failed"}
	targets, terms := map[string]bool{}, map[string]bool{}
	for _, c := range report.Cells {
		if !contains(states, c.State) {
			t.Errorf("cell %s is %q", c.ID, c.State)
		}
	}
	for _, c := range report.Coefficients {
		targets[c.Target] = true
		for _, term := range c.Terms {
			terms[term.Name] = true
			if term.Lo > term.Value || term.Value > term.Hi {
				t.Errorf("term %s of %s: %g is not in %g to %g", term.Name, c.Target, term.Value, term.Lo, term.Hi)
			}
		}
	}
	for target := range targets {
		if !contains([]string{"allocated", "reserved", "process"}, target) {
			t.Errorf("there is a target %q", target)
		}
	}
	for name := range terms {
		if !contains([]string{"weights", "context", "modules", "workspaces", "slack", "BL", "BL2", "BL3"}, name) {
			t.Errorf("there is a term %q", name)
		}
	}
	if len(targets) != 3 {
		t.Errorf("targets are %v, want all three", targets)
	}
}

func contains[T comparable](list []T, v T) bool {
	for _, x := range list {
		if x == v {
			return true
		}
	}
	return false
}

// conforms looks that all that want has is in got, with the same kinds; a list
// holds at least one element, and each is as want's first.
func conforms(path string, want, got any, problems *[]string) {
	switch want := want.(type) {
	case map[string]any:
		object, ok := got.(map[string]any)
		if !ok {
			*problems = append(*problems, path+" is no object")
			return
		}
		for key, value := range want {
			if _, there := object[key]; !there {
				*problems = append(*problems, path+"."+key+" is missing")
				continue
			}
			conforms(path+"."+key, value, object[key], problems)
		}
	case []any:
		list, ok := got.([]any)
		switch {
		case !ok:
			*problems = append(*problems, path+" is no list")
		case len(want) > 0 && len(list) == 0:
			*problems = append(*problems, path+" is empty")
		case len(want) > 0:
			for _, element := range list {
				conforms(path+"[]", want[0], element, problems)
			}
		}
	case string:
		if text, ok := got.(string); !ok || text == "" {
			*problems = append(*problems, path+" is no text, or an empty one")
		}
	case float64:
		if _, ok := got.(float64); !ok {
			*problems = append(*problems, path+" is no number")
		}
	case bool:
		if _, ok := got.(bool); !ok {
			*problems = append(*problems, path+" is no boolean")
		}
	}
}

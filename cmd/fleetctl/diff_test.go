package main

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/oomfleet/oomfleet/coordinator/diff"
)

var rewriteDiff = flag.Bool("rewrite-diff", false, "write the golden files of matrix diff instead of comparing with them")

// rolloutFile is one of the documents of a rollout that simulated agents went
// through: before and after a driver with 48 MiB more context.
func rolloutFile(name string) string { return filepath.Join("testdata", "rollout", name) }

// diffed runs matrix diff without a fleet.
func diffed(t *testing.T, stdin string, args ...string) (code int, out, errs string) {
	t.Helper()
	t.Setenv("OOMFLEET_SERVER", "http://127.0.0.1:1")
	var o, e bytes.Buffer
	code = run(t.Context(), append([]string{"matrix", "diff"}, args...), streams{in: strings.NewReader(stdin), out: &o, err: &e})
	return code, o.String(), e.String()
}

// TestDiffFormats holds every format to its golden file.
func TestDiffFormats(t *testing.T) {
	before, after := rolloutFile("before.json"), rolloutFile("after.json")
	for name, c := range map[string]struct {
		args []string
		code int
	}{
		"changed.txt":  {[]string{before, after}, exitPartial},
		"changed.json": {[]string{before, after, "--format", "json"}, exitPartial},
		"changed.md":   {[]string{before, after, "--format", "markdown"}, exitPartial},
		"changed.csv":  {[]string{before, after, "--format", "csv"}, exitPartial},
		"card.txt":     {[]string{before, after, "--card", "10633MiB"}, exitPartial},
		"margin.txt":   {[]string{before, after, "--margin", "64MiB", "--confidence", "0.99"}, exitOK},
		"needmore.txt": {[]string{rolloutFile("contract.json"), before}, exitOK},
	} {
		t.Run(name, func(t *testing.T) {
			code, out, errs := diffed(t, "", c.args...)
			if code != c.code || errs != "" {
				t.Errorf("exit code %d, want %d: %s", code, c.code, errs)
			}
			path := filepath.Join("testdata", "rollout", "golden", name)
			if *rewriteDiff {
				if err := os.WriteFile(path, []byte(out), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatalf("%v (make it with go test ./cmd/fleetctl -run TestDiffFormats -rewrite-diff)", err)
			}
			if out != string(want) {
				t.Errorf("it prints\n%s\nand not\n%s", out, want)
			}
		})
	}
}

// TestDiffFormatsAgree: the document and the table of values say the same.
func TestDiffFormatsAgree(t *testing.T) {
	before, after := rolloutFile("before.json"), rolloutFile("after.json")
	_, text, _ := diffed(t, "", before, after, "--json")
	var d diff.Document
	decoder := json.NewDecoder(strings.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&d); err != nil || decoder.More() {
		t.Fatalf("not one document: %v", err)
	}
	_, lines, _ := diffed(t, "", before, after, "--format", "csv")
	rows, err := csv.NewReader(strings.NewReader(lines)).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	want := 1
	for _, g := range d.Groups {
		want += len(g.Terms)
	}
	for _, c := range d.Cells {
		want += len(c.Measures)
	}
	if len(rows) != want || len(d.Cells) != 5 {
		t.Errorf("%d rows for %d cells, want %d", len(rows), len(d.Cells), want)
	}
}

func TestDiffExitCodes(t *testing.T) {
	before, after := rolloutFile("before.json"), rolloutFile("after.json")
	text, err := os.ReadFile(before)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		stdin string
		args  []string
		code  int
		says  string // on stderr for 2, on stdout else
	}{
		"changed":               {"", []string{before, after}, 3, "changed: context +48 MiB\n"},
		"the other way":         {"", []string{after, before}, 3, "changed: context -48 MiB\n"},
		"from stdin":            {string(text), []string{"-", after}, 3, "changed: context +48 MiB\n"},
		"wide margin":           {"", []string{before, after, "--margin", "64MiB"}, 0, "same\n"},
		"need more":             {"", []string{rolloutFile("contract.json"), before}, 0, "need more"},
		"need more, strict":     {"", []string{rolloutFile("contract.json"), before, "--strict"}, 3, "need more"},
		"one driver of a file":  {"", []string{before, after, "--driver", "580.159.04", "--driver", "580.159.04-synthetic"}, 3, "changed"},
		"mixed origins":         {"", []string{before, rolloutFile("measured.json")}, 2, "is simulated and"},
		"two kinds of quota":    {"", []string{before, rolloutFile("device.json")}, 2, "of device quotas: they limit different things"},
		"two steps":             {"", []string{before, rolloutFile("step.json")}, 2, "in steps of 4 MiB"},
		"not settled":           {"", []string{before, rolloutFile("running.json")}, 2, "is not settled yet (4 of 5 cells)"},
		"no common cell":        {"", []string{before, rolloutFile("other-lengths.json")}, 2, "have no cell in common"},
		"twice the same":        {"", []string{before, before}, 2, "both sides are the same"},
		"negative margin":       {"", []string{before, after, "--margin", "-1MiB"}, 2, "--margin: "},
		"no margin":             {"", []string{before, after, "--margin", "0"}, 2, "--margin 0 would make every difference matter"},
		"margin of no size":     {"", []string{before, after, "--margin", "16MB"}, 2, "is not an amount of memory"},
		"confidence":            {"", []string{before, after, "--confidence", "95"}, 2, "--confidence is between"},
		"confidence not known":  {"", []string{before, after, "--confidence", "NaN"}, 2, "--confidence is between"},
		"format":                {"", []string{before, after, "--format", "xml"}, 2, "--format is table, json, markdown or csv"},
		"unknown driver":        {"", []string{before, after, "--driver", "1.2"}, 2, "has no driver 1.2; it has 580.159.04"},
		"three drivers":         {"", []string{before, "--driver", "a", "--driver", "b", "--driver", "c"}, 2, "at most twice"},
		"one side":              {"", []string{before}, 2, "--driver X --driver Y"},
		"no side":               {"", nil, 2, "usage:"},
		"both stdin":            {"", []string{"-", "-"}, 2, "only one side can be stdin"},
		"no such file":          {"", []string{"./nowhere.json", after}, 2, "open the sweep's document"},
		"no JSON":               {"hello", []string{"-", after}, 2, "stdin is no document of a sweep"},
		"another document":      {`{"coefficients": []}`, []string{"-", after}, 2, "holds no cells"},
		"a cell without length": {`{"cells": [{"id": "x", "driver": "1", "batch": 1}]}`, []string{"-", after}, 2, `cell "x" is no cell of a sweep`},
		"a cell of no origin":   {`{"cells": [{"id": "x", "driver": "1", "batch": 1, "seq_len": 1}]}`, []string{"-", after}, 2, "is not one of measured, simulated, imported"},
		"repeat of files":       {"", []string{rolloutFile("contract.json"), before, "--repeat"}, 2, "not files"},
		"too many repeats":      {"", []string{before, after, "--repeat=21"}, 2, "1 to 20 recordings"},
		"no fleet":              {"", []string{"nightly", after}, 1, ""},
	} {
		t.Run(name, func(t *testing.T) {
			code, out, errs := diffed(t, c.stdin, c.args...)
			if code != c.code {
				t.Errorf("exit code %d, want %d\n%s%s", code, c.code, out, errs)
			}
			where := out
			if c.code == exitUsage {
				if where = errs; out != "" && !strings.Contains(name, "repeat of") {
					t.Errorf("it prints %s", out)
				}
			}
			if !strings.Contains(where, c.says) {
				t.Errorf("no %q in\n%s", c.says, where)
			}
		})
	}
}

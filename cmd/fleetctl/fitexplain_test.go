package main

import (
	"encoding/json"
	"strings"
	"testing"
)

// TestExplainAddsUp: every fitted run of the real file is taken apart, and what
// the terms and the remainder come to is what was measured.
func TestExplainAddsUp(t *testing.T) {
	const file = "../../agent/sim/testdata/esmfold_h200_runs.jsonl"
	stdout, stderr, code := fleetctl(t, "fit", "runs", file, "--explain", "--json")
	if code != 0 {
		t.Fatalf("exit %d: %s", code, stderr)
	}
	var d coefficientsDocument
	if err := json.Unmarshal([]byte(stdout), &d); err != nil {
		t.Fatal(err)
	}
	points := 0
	for _, c := range d.Coefficients {
		points += c.Points
	}
	if len(d.Accounts) < points || points == 0 {
		t.Errorf("%d accounts of %d points", len(d.Accounts), points)
	}
	for _, a := range d.Accounts {
		sum := a.Remainder
		for _, p := range a.Parts {
			sum += p.Bytes
		}
		if sum != a.Measured || a.Measured == 0 || len(a.Parts) == 0 {
			t.Errorf("%s of L%d B%d: %d bytes, and the parts make %d", a.Target, a.SeqLen, a.Batch, a.Measured, sum)
		}
	}
	if plain, _, _ := fleetctl(t, "fit", "runs", file, "--json"); strings.Contains(plain, "accounts") {
		t.Error("they come without --explain")
	}
	table, _, _ := fleetctl(t, "fit", "runs", file, "--explain")
	if n := strings.Count(table, "+ REMAINDER"); n != len(d.Coefficients) {
		t.Errorf("%d tables for %d fits", n, len(d.Coefficients))
	}
}

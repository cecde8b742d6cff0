package main

import (
	"fmt"
	"io"
	"math"
	"strings"

	"github.com/oomfleet/oomfleet/coordinator/api"
	"github.com/oomfleet/oomfleet/coordinator/quota"
	"github.com/oomfleet/oomfleet/proto"
)

// writeRecommendation shows an answer with all that it rests on.
func writeRecommendation(w io.Writer, r api.Recommendation) error {
	if err := writeNote(w, "", titleOf(r)); err != nil {
		return fmt.Errorf("write the answer: %w", err)
	}
	fmt.Fprintln(w)
	t := newTable(w, "ask for", mib(r.Quota))
	t.row("survive", mib(r.Survive))
	if r.Predicted > 0 {
		t.row("expected", mib(r.Predicted))
	}
	t.field("margin", r.MarginWhy)
	noRetry := "unknown"
	if r.NoRetry != nil {
		noRetry = mib(*r.NoRetry) + " (from here on the allocator never flushes and tries again)"
	}
	t.field("no-retry", noRetry)
	t.field("fail bands", bands(proto.Boundary{FailBands: r.FailBands, BandsKnown: r.BandsKnown}))
	t.field("evidence", basisText(r))
	for _, e := range r.Evidence {
		t.field(" ", evidenceText(e))
		if text := referenceText(e); text != "" {
			t.row(" ", text)
		}
	}
	if d := r.Domain; d != nil {
		t.row("domain", fmt.Sprintf("lengths %d to %d, batches %d to %d", d.SeqLen[0], d.SeqLen[1], d.Batch[0], d.Batch[1]))
	}
	if r.Risk != nil {
		t.row("risk", fmt.Sprintf("%g: the probability that one run needs more", *r.Risk))
	}
	if x := r.Translation; x != nil {
		t.field("translation", translationText(*x))
	}
	if err := t.flush(); err != nil {
		return fmt.Errorf("write the answer: %w", err)
	}
	if len(r.Article) > 0 {
		fmt.Fprintln(w)
		t = newTable(w, "RULE OF THUMB", "ASKS FOR", "AGAINST THE QUOTA", "FROM")
		for _, rule := range r.Article {
			t.row(rule.Rule, gib(rule.Asks), againstText(rule), rule.Basis)
		}
		if err := t.flush(); err != nil {
			return fmt.Errorf("write the answer: %w", err)
		}
	}
	for i, note := range r.Notes {
		if i == 0 {
			fmt.Fprintln(w)
		}
		if err := writeNote(w, "", "note: "+note); err != nil {
			return fmt.Errorf("write the answer: %w", err)
		}
	}
	return nil
}

// titleOf is the question as it was understood.
func titleOf(r api.Recommendation) string {
	return fmt.Sprintf("%s quota for %s on %s, driver %s (%s)", r.QuotaKind, runOf(r), nameOr(r.GPU), nameOr(r.Driver), r.Origin)
}

func runOf(r api.Recommendation) string {
	text := fmt.Sprintf("%s, length %d, batch %d", r.Workload, r.SeqLen, r.Batch)
	if r.ChunkSize > 0 {
		text += fmt.Sprintf(", chunk %d", r.ChunkSize)
	}
	if env := proto.EnvString(r.Env); env != "" {
		text += " with " + env
	}
	return text
}

func nameOr(name string) string {
	if name == "" {
		return "unknown"
	}
	return name
}

func basisText(r api.Recommendation) string {
	switch r.Basis {
	case quota.BasisBoundary:
		return "boundary: this very cell is " + string(r.CellState)
	case quota.BasisPrediction:
		return "prediction: replay named this very cell's boundary"
	case quota.BasisRecording:
		return "recording: this length and batch, replayed under these settings"
	case quota.BasisProgram:
		return "program: what a run of this length would allocate, replayed under these settings"
	case quota.BasisTranslated:
		return "translated: this very cell under another kind of quota"
	case quota.BasisNeighbour:
		return "neighbour: the quota of a larger run, an upper bound"
	case quota.BasisCoefficients:
		if r.Extrapolated {
			return "coefficients, EXTRAPOLATED"
		}
		return "coefficients: the upper bound of the fit at the risk"
	}
	return string(r.Basis) // of a newer coordinator
}

func evidenceText(e quota.Evidence) string {
	text := e.What
	if e.Cell != "" {
		text += " " + e.Cell
	}
	if e.State != "" {
		text += ", " + string(e.State)
	}
	if e.Bytes > 0 {
		text += ", " + mib(e.Bytes)
	}
	if e.Passes+e.Fails > 0 {
		text += fmt.Sprintf(", probes: %d passed at it, %d failed one step below", e.Passes, e.Fails)
	}
	if e.Detail != "" {
		text += ", " + e.Detail
	}
	return text
}

// referenceText is where a piece of evidence is found, and how old it is.
func referenceText(e quota.Evidence) string {
	var parts []string
	if len(e.Trace) >= 12 {
		parts = append(parts, "trace "+string(e.Trace[:12]))
	}
	if len(e.Program) >= 12 {
		parts = append(parts, "program "+string(e.Program[:12]))
	}
	if e.Index > 0 {
		parts = append(parts, fmt.Sprintf("index %d", e.Index))
	}
	if e.AgeSeconds > 0 {
		parts = append(parts, ago(e.AgeSeconds))
	}
	return strings.Join(parts, ", ")
}

func translationText(x quota.Translation) string {
	if x.Outside == 0 {
		return fmt.Sprintf("%s and %s quotas both count the whole process", x.From, x.To)
	}
	text := fmt.Sprintf("%s to %s: %s outside the allocator", x.From, x.To, mib(x.Outside))
	if x.Context > 0 {
		text += fmt.Sprintf(" (context %s, modules and libraries %s)", mib(x.Context), mib(x.Modules))
	}
	return text + fmt.Sprintf(", measured in %d recordings", x.Recordings)
}

func againstText(rule quota.Rule) string {
	switch {
	case rule.Verdict == quota.Fails:
		return gib(-rule.Waste) + " short: the run fails"
	case rule.Waste < 0:
		return gib(-rule.Waste) + " short: passing is not assured"
	}
	return gib(rule.Waste) + " wasted"
}

// ago is an age in the unit that suits it.
func ago(seconds float64) string {
	for _, u := range []struct {
		from, unit float64
		name       string
	}{{2 * 86400, 86400, "days"}, {2 * 3600, 3600, "hours"}, {120, 60, "minutes"}} {
		if seconds >= u.from {
			return fmt.Sprintf("%.0f %s ago", math.Floor(seconds/u.unit), u.name)
		}
	}
	return fmt.Sprintf("%.0f seconds ago", seconds)
}

// gib shows an amount in GiB, as such rules do.
func gib(b proto.Bytes) string { return fmt.Sprintf("%.2f GiB", float64(b)/float64(proto.GiB)) }

package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/oomfleet/oomfleet/proto"
)

// printReport writes a sweep's status: its document, or a table and
// the coefficients. Failed cells make the exit code 3 once the sweep is done.
func (a *app) printReport(r proto.Report, submitted time.Time) error {
	if err := a.writeReport(r, submitted); err != nil {
		return err
	}
	if r.State != "running" && r.Counts.Failed > 0 {
		return &codedError{exitPartial, fmt.Errorf("%d of %d cells failed; the reasons are in the status", r.Counts.Failed, r.Counts.Total)}
	}
	return nil
}

// writeReport shows first how far the sweep is and what keeps it from its end,
// as the cells of a large one take more than a screen. submitted is zero where
// it is not known.
func (a *app) writeReport(r proto.Report, submitted time.Time) error {
	if a.json {
		return writeJSON(a.out, r)
	}
	fmt.Fprintln(a.out, strings.Join(reportHead(r, sinceSubmission(r, submitted)), "\n"))
	if text := rolloutText(r); text != "" {
		fmt.Fprintf(a.out, "%s\n", text)
	}
	fmt.Fprintln(a.out)
	if err := cellTable(a.out, r); err != nil {
		return err
	}
	if len(r.Coefficients) > 0 {
		fmt.Fprintln(a.out)
		return formulaTable(a.out, r.Coefficients)
	}
	return nil
}

// reportHead is where a sweep stands, a line each: the counts, the pace, whose
// numbers these are, and why cells failed.
func reportHead(r proto.Report, pace string) []string {
	c := r.Counts
	head := fmt.Sprintf("%s (%s): %s, %d of %d cells settled", r.Matrix.ID, r.Origin, r.State, c.Settled(), c.Total)
	if r.State == "running" && c.Total > 0 {
		head += fmt.Sprintf(" (%d %%), %d queued or running, %d pending", 100*c.Settled()/c.Total, c.Running, c.Pending)
	}
	lines := []string{head + fmt.Sprintf(", %d failed", c.Failed)}
	if pace != "" {
		lines = append(lines, pace)
	}
	if len(r.Cells) > 0 {
		cell := r.Cells[0]
		lines = append(lines, wrapped(fmt.Sprintf("%s on %s, %s, %s quotas", cell.Workload, cell.GPU, driversText(r.Cells), cell.QuotaKind)))
	}
	for i, env := range environments(r.Cells) {
		lines = append(lines, fmt.Sprintf("env %d: %s", i+1, env))
	}
	return append(lines, reasons(r.Cells)...)
}

// reasons groups the cells that say something of themselves by what it is.
func reasons(cells []proto.CellReport) (lines []string) {
	const named = 3
	var order []string
	places := map[string][]string{}
	for _, c := range cells {
		if c.Reason == "" {
			continue
		}
		key := string(c.State) + ": " + c.Reason
		if places[key] == nil {
			order = append(order, key)
		}
		places[key] = append(places[key], fmt.Sprintf("%s %s", cellPlace(c), c.Driver))
	}
	for _, key := range order {
		where := places[key]
		text := strings.Join(where[:min(len(where), named)], ", ")
		if more := len(where) - named; more > 0 {
			text += fmt.Sprintf(" and %d more", more)
		}
		lines = append(lines, wrapped(text+": "+key))
	}
	return lines
}

func driversText(cells []proto.CellReport) string {
	all := drivers(cells)
	if len(all) == 1 {
		return "driver " + all[0]
	}
	return "drivers " + strings.Join(all, ", ")
}

func drivers(cells []proto.CellReport) (all []string) {
	for _, c := range cells {
		if !slices.Contains(all, c.Driver) {
			all = append(all, c.Driver)
		}
	}
	return all
}

// environments are those of a sweep that set something, in the cells' order. A
// table names them by their number, as one alone can fill half a line.
func environments(cells []proto.CellReport) (all []string) {
	for _, c := range cells {
		if env := proto.EnvString(c.Env); env != "" && !slices.Contains(all, env) {
			all = append(all, env)
		}
	}
	return all
}

// cellPlace is a cell's length, batch and chunk size as everywhere: L384 B1 c64.
func cellPlace(c proto.CellReport) string {
	text := fmt.Sprintf("L%d B%d", c.SeqLen, c.Batch)
	if c.ChunkSize > 0 {
		text += fmt.Sprintf(" c%d", c.ChunkSize)
	}
	return text
}

// cellTable shows each cell on a line; a column that says the same everywhere is
// in the head instead.
func cellTable(w io.Writer, r proto.Report) error {
	several, envs := len(drivers(r.Cells)) > 1, environments(r.Cells)
	row := func(cell, env, driver string, rest ...string) []string {
		out := []string{cell}
		if len(envs) > 0 {
			out = append(out, env)
		}
		if several {
			out = append(out, driver)
		}
		return append(out, rest...)
	}
	t := newTable(w, row("CELL", "ENV", "DRIVER", "STATE", "BOUNDARY", "NO-RETRY", "FAIL BANDS", "RESERVED", "PROBES", "GPU S")...)
	for _, c := range r.Cells {
		env, failBands := "", ""
		if i := slices.Index(envs, proto.EnvString(c.Env)); i >= 0 {
			env = fmt.Sprint(i + 1)
		}
		if c.Boundary.Boundary > 0 {
			failBands = shortBands(c.Boundary)
		}
		t.row(row(cellPlace(c), env, c.Driver, string(c.State), mib(c.Boundary.Boundary), mib(c.NoRetry), failBands, mib(c.PeakReserved),
			fmt.Sprint(c.Probes), fmt.Sprintf("%.1f", c.GPUSeconds))...)
	}
	return t.flush()
}

// shortBands is bands where a column has room for one.
func shortBands(b proto.Boundary) string {
	if n := len(b.FailBands); b.BandsKnown && n > 1 {
		first := proto.Boundary{BandsKnown: true, FailBands: b.FailBands[:1]}
		return fmt.Sprintf("%s +%d", bands(first), n-1)
	}
	return bands(b)
}

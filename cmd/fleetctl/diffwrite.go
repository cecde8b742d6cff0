package main

import (
	"encoding/csv"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/oomfleet/oomfleet/coordinator/diff"
	"github.com/oomfleet/oomfleet/fit"
	"github.com/oomfleet/oomfleet/proto"
)

func (a *app) diffJSON(d diff.Document) error { return writeJSON(a.out, d) }

// diffTable is the comparison for a terminal: the verdict, what it means for
// jobs, then what it rests on.
func (a *app) diffTable(d diff.Document) error {
	w := a.out
	fmt.Fprintln(w, d.Summary)
	for _, text := range append(slices.Clone(d.Jobs.Sentences), headline(d)) {
		if err := writeNote(w, "", text); err != nil {
			return err
		}
	}
	envs := diffEnvironments(d)
	for i, env := range envs {
		fmt.Fprintf(w, "env %d: %s\n", i+1, env)
	}
	fmt.Fprintln(w)
	if rows := termRows(d); len(rows) > 0 {
		t := newTable(w, termHeader()...)
		for _, row := range rows {
			row[0] = withoutEnvironment(row[0], envs)
			t.row(row...)
		}
		if err := t.flush(); err != nil {
			return err
		}
		fmt.Fprintln(w)
	}
	t := newTable(w, cellHeader()...)
	for _, c := range d.Cells {
		row := cellRow(c)
		row[0] = withoutEnvironment(row[0], envs)
		t.row(row...)
	}
	if err := t.flush(); err != nil {
		return err
	}
	fmt.Fprintln(w)
	for _, text := range remarks(d) {
		if err := writeNote(w, "", text); err != nil {
			return err
		}
	}
	return nil
}

// diffEnvironments are those of the cells that set something, in their order.
func diffEnvironments(d diff.Document) []string {
	var cells []proto.CellReport
	for _, c := range d.Cells {
		cells = append(cells, proto.CellReport{Env: c.Env})
	}
	return environments(cells)
}

// withoutEnvironment is a name whose environment has a number in its place.
func withoutEnvironment(name string, envs []string) string {
	for i, env := range envs {
		if short, ok := strings.CutSuffix(name, " "+env); ok {
			return fmt.Sprintf("%s env %d", short, i+1)
		}
	}
	return name
}

// diffMarkdown is the comparison for a page or a pull request.
func (a *app) diffMarkdown(d diff.Document) error {
	w := a.out
	fmt.Fprintf(w, "## %s\n\n%s\n", markdownCell(d.Summary), markdownCell(headline(d)))
	if rows := termRows(d); len(rows) > 0 {
		fmt.Fprintln(w)
		markdownTable(w, termHeader(), rows)
	}
	var rows [][]string
	for _, c := range d.Cells {
		rows = append(rows, cellRow(c))
	}
	fmt.Fprintln(w)
	markdownTable(w, cellHeader(), rows)
	if lines := append(slices.Clone(d.Jobs.Sentences), remarks(d)...); len(lines) > 0 {
		fmt.Fprintln(w)
		for _, line := range lines {
			fmt.Fprintf(w, "- %s\n", markdownCell(line))
		}
	}
	return nil
}

func markdownTable(w io.Writer, header []string, rows [][]string) {
	line := func(cells []string) {
		for i, c := range cells {
			if cells[i] = markdownCell(c); c == "" {
				cells[i] = "-"
			}
		}
		fmt.Fprintf(w, "| %s |\n", strings.Join(cells, " | "))
	}
	line(header)
	fmt.Fprintf(w, "|%s\n", strings.Repeat("---|", len(header)))
	for _, row := range rows {
		line(row)
	}
}

// markdownCell keeps text from being read as markup.
func markdownCell(text string) string {
	return strings.NewReplacer("|", `\|`, "\n", " ", "*", `\*`, "_", `\_`, "<", "&lt;").Replace(text)
}

// diffCSV is one line for each term of each group and each measure of each cell.
func (a *app) diffCSV(d diff.Document) error {
	w := csv.NewWriter(a.out)
	w.Write([]string{"row", "workload", "chunk_size", "env", "seq_len", "batch", "name", "verdict", "before_bytes", "after_bytes", "diff_bytes", "lo_bytes", "hi_bytes", "p", "runs_before", "runs_after"})
	change := func(c fit.Change) []string {
		return []string{fmt.Sprint(c.Diff), end(c.Lo), end(c.Hi), strconv.FormatFloat(c.P, 'g', 4, 64)}
	}
	place := func(seqLen, batch int) []string {
		if seqLen == 0 {
			return []string{"", ""}
		}
		return []string{fmt.Sprint(seqLen), fmt.Sprint(batch)}
	}
	for _, g := range d.Groups {
		for _, t := range g.Terms {
			row := append([]string{"term", g.Workload.String(), fmt.Sprint(g.ChunkSize), proto.EnvString(g.Env)}, place(t.SeqLen, t.Batch)...)
			row = append(append(row, t.Term, string(t.Verdict), "", ""), change(t.Change)...)
			w.Write(append(row, "", ""))
		}
	}
	for _, c := range d.Cells {
		for _, m := range c.Measures {
			row := append([]string{"cell", c.Workload.String(), fmt.Sprint(c.ChunkSize), proto.EnvString(c.Env)}, place(c.SeqLen, c.Batch)...)
			row = append(append(row, m.Name, string(m.Verdict), fmt.Sprint(int64(m.Before)), fmt.Sprint(int64(m.After))), change(m.Change)...)
			w.Write(append(row, fmt.Sprint(m.Runs[0]), fmt.Sprint(m.Runs[1])))
		}
	}
	w.Flush()
	if err := w.Error(); err != nil {
		return fmt.Errorf("write the comparison: %w", err)
	}
	return nil
}

// end is an end of an interval, empty where it has none.
func end(v int64) string {
	if v <= -1<<60 || v >= 1<<60 {
		return ""
	}
	return fmt.Sprint(v)
}

// headline says what was compared.
func headline(d diff.Document) string {
	side := func(s diff.Stack) string {
		text := string(s.Sweep.ID)
		if s.Torch != "" {
			return fmt.Sprintf("%s (driver %s, torch %s)", text, s.Driver, s.Torch)
		}
		return fmt.Sprintf("%s (driver %s)", text, s.Driver)
	}
	gpu := d.After.GPU
	if d.Before.GPU != d.After.GPU {
		gpu = d.Before.GPU + " -> " + d.After.GPU
	}
	return fmt.Sprintf("%s -> %s, %s, %s, %s quotas: %s same, %d changed, %d need more (margin %v, confidence %v)", side(d.Before), side(d.After), gpu,
		d.Basis.Origin, d.Basis.QuotaKind, plural(d.Counts.Same, "cell"), d.Counts.Changed, d.Counts.NeedMore, d.Basis.Margin, d.Basis.Confidence)
}

func termHeader() []string { return []string{"GROUP", "TERM", "VERDICT", "CHANGE", "INTERVAL", "P"} }

// termRows are the terms of all groups.
func termRows(d diff.Document) [][]string {
	var rows [][]string
	for _, g := range d.Groups {
		name := groupName(proto.Group{Workload: g.Workload, ChunkSize: g.ChunkSize, Env: g.Env})
		for _, t := range g.Terms {
			term := t.Term
			if t.SeqLen > 0 {
				term += fmt.Sprintf(" at L%d B%d", t.SeqLen, t.Batch)
			}
			rows = append(rows, []string{strings.Join(strings.Fields(name), " "), term, string(t.Verdict), diff.Signed(proto.Bytes(t.Diff)), interval(t.Change), chance(t.P)})
		}
	}
	return rows
}

// chance is a probability for people.
func chance(p float64) string {
	if p < 0.0001 {
		return "<0.0001"
	}
	return fmt.Sprintf("%.2g", p)
}

// interval is a change's interval for people.
func interval(c fit.Change) string {
	if end(c.Lo) == "" || end(c.Hi) == "" {
		return "unknown"
	}
	return diff.Signed(proto.Bytes(c.Lo)) + " .. " + diff.Signed(proto.Bytes(c.Hi))
}

func measureNames() []string { return []string{"boundary", "allocated", "reserved", "process"} }

func cellHeader() []string {
	return []string{"CELL", "VERDICT", "BOUNDARY", "ALLOCATED", "RESERVED", "PROCESS", "FITS OLD QUOTA"}
}

// cellRow is a cell's verdict and what each measure came to.
func cellRow(c diff.Cell) []string {
	row := []string{c.Name(), string(c.Verdict)}
	for _, name := range measureNames() {
		text := ""
		for _, m := range c.Measures {
			if m.Name == name {
				text = fmt.Sprintf("%s (%s)", mib(m.After), diff.Signed(m.After-m.Before))
			}
		}
		row = append(row, text)
	}
	fits := ""
	if c.Job != nil {
		fits = map[bool]string{true: "yes", false: "no"}[c.Job.FitsOldQuota]
	}
	return append(row, fits)
}

// remarks are what else a reader should know, a sentence each.
func remarks(d diff.Document) []string {
	var out []string
	for _, c := range d.Cells {
		if c.Reason != "" {
			out = append(out, c.Name()+": "+c.Reason)
		}
	}
	for _, r := range d.Repeat {
		out = append(out, fmt.Sprintf("%s needs %s more on each side: %s", r.Cell, plural(r.More, "recording"), power(r, r.More)))
	}
	for _, u := range d.Unpaired {
		out = append(out, fmt.Sprintf("%s is there %s only, and counts for nothing", u.Cell, u.Only))
	}
	for _, g := range d.Groups {
		for _, n := range g.Notes {
			out = append(out, "note: "+n)
		}
	}
	for _, n := range d.Basis.Notes {
		out = append(out, "note: "+n)
	}
	return append(out, "corrected for many comparisons: "+d.Basis.Correction)
}

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"sync"
	"text/tabwriter"

	"github.com/oomfleet/oomfleet/proto"
)

// checkedWriter remembers that a write failed, so that no command says that it is
// done whose output is lost. Several may write.
type checkedWriter struct {
	w   io.Writer
	mu  sync.Mutex // guards err
	err error
}

// Write implements io.Writer.
func (c *checkedWriter) Write(b []byte) (int, error) {
	n, err := c.w.Write(b)
	if err != nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.err = err
	}
	return n, err
}

func (c *checkedWriter) failure() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// writeJSON writes one document.
func writeJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return fmt.Errorf("write the document: %w", err)
	}
	return nil
}

// table writes rows in aligned columns, under a header where there is one.
type table struct {
	w *tabwriter.Writer
}

func newTable(w io.Writer, header ...string) *table {
	t := &table{tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)}
	if len(header) > 0 {
		t.row(header...)
	}
	return t
}

func (t *table) row(cells ...string) {
	for i, c := range cells {
		if c == "" {
			cells[i] = "-"
		}
	}
	fmt.Fprintln(t.w, strings.Join(cells, "\t"))
}

func (t *table) flush() error { return t.w.Flush() }

// fieldWidth is how much of a line a value beside its name may take.
const fieldWidth = 104

// field writes a value beside its name, in as many lines as it takes.
func (t *table) field(name, text string) {
	for line := range strings.SplitSeq(wrap(text, fieldWidth), "\n") {
		t.row(name, line)
		name = " "
	}
}

// screenWidth is how many columns a table or a note may take.
const screenWidth = 120

// writeNote writes a sentence in as many lines as it takes, what follows the
// first one indented further.
func writeNote(w io.Writer, indent, text string) error {
	_, err := fmt.Fprintln(w, indent+strings.ReplaceAll(wrap(text, screenWidth-len(indent)-2), "\n", "\n"+indent+"  "))
	return err
}

// wrapped is a sentence as writeNote writes it, without the end of the line.
func wrapped(text string) string {
	return strings.ReplaceAll(wrap(text, screenWidth-2), "\n", "\n  ")
}

// mib shows an amount in MiB, or a dash where it is not known.
func mib(b proto.Bytes) string {
	if b == 0 {
		return "-"
	}
	text := fmt.Sprintf("%.2f", float64(b)/float64(proto.MiB))
	return strings.TrimSuffix(strings.TrimRight(text, "0"), ".") + " MiB"
}

// boundaryTable begins the table of a mapped run.
func boundaryTable(w io.Writer, b proto.Boundary) *table {
	t := newTable(w, "boundary", mib(b.Boundary))
	t.row("lowest pass", mib(b.LowestPass))
	t.row("no-retry", mib(b.NoRetry))
	t.row("fail bands", bands(b))
	return t
}

// bands shows fail bands in MiB, both ends inside.
func bands(b proto.Boundary) string {
	if !b.BandsKnown {
		return "unknown"
	}
	if len(b.FailBands) == 0 {
		return "none"
	}
	parts := make([]string, len(b.FailBands))
	for i, band := range b.FailBands {
		parts[i] = fmt.Sprintf("%d-%d MiB", band.From/proto.MiB, band.To/proto.MiB)
	}
	return strings.Join(parts, ", ")
}

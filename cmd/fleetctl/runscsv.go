package main

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math/big"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/oomfleet/oomfleet/fit"
	"github.com/oomfleet/oomfleet/proto"
)

// The columns of a table of runs; amounts end in their unit.
var (
	plainColumns  = []string{"seq_len", "batch", "chunk_size", "env", "source"}
	amountColumns = []string{"weights", "context", "peak_allocated", "peak_reserved", "process"}
	peakColumns   = amountColumns[2:]
	plainNumber   = regexp.MustCompile(`^[0-9]{1,18}(\.[0-9]{1,18})?$`)
)

// unitBytes is what a column's unit stands for, 0 for none that is known. A
// "gb" here is 1024^3 bytes: those who write such tables divide by 1024**3.
func unitBytes(unit string) int64 {
	switch unit {
	case "bytes":
		return 1
	case "mb", "mib":
		return int64(proto.MiB)
	case "gb", "gib":
		return int64(proto.GiB)
	}
	return 0
}

// runColumns says where the columns of a table are.
type runColumns struct {
	at   map[string]int // by name without unit
	unit string
	size int
	// digits is the most decimals that a column shows: "20" in a column with
	// one decimal is a 20.0 whose zero a spreadsheet took.
	digits map[string]int
}

// csvLine is one record with its line number.
type csvLine struct {
	number int
	cells  []string
}

// readRunCSV reads a table of runs.
func readRunCSV(in io.Reader, labels importLabels, bad *lineProblems) (runTable, error) {
	lines, err := csvLines(in, bad)
	if err != nil {
		return runTable{}, err
	}
	if len(lines) == 0 {
		if len(*bad) > 0 {
			return runTable{}, nil
		}
		return runTable{}, errors.New("there is no header")
	}
	columns, problem := readColumns(lines[0].cells)
	if problem != "" {
		bad.add(lines[0].number, "%s", problem)
		return runTable{}, nil
	}
	columns.countDigits(lines[1:])
	table := runTable{check: checkImport}
	if columns.unit == "gb" || columns.unit == "mb" {
		table.notes = []string{fmt.Sprintf("%s was read as %d bytes each", columns.unit, unitBytes(columns.unit))}
	}
	for _, l := range lines[1:] {
		row, problem := columns.parse(l.cells, labels)
		if problem != "" {
			bad.add(l.number, "%s", problem)
		}
		row.line = l.number
		table.rows = append(table.rows, row)
	}
	return table, nil
}

func csvLines(in io.Reader, bad *lineProblems) ([]csvLine, error) {
	r := csv.NewReader(in)
	r.FieldsPerRecord, r.Comment, r.TrimLeadingSpace = -1, '#', true
	var lines []csvLine
	for {
		cells, err := r.Read()
		var wrong *csv.ParseError
		switch {
		case errors.Is(err, io.EOF):
			return lines, nil
		case errors.As(err, &wrong):
			bad.add(wrong.StartLine, "this is no line of CSV: %v", wrong.Err)
			continue
		case err != nil:
			return nil, fmt.Errorf("read the table: %w", err)
		}
		number, _ := r.FieldPos(0)
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		lines = append(lines, csvLine{number, cells})
	}
}

// readColumns reads the header.
func readColumns(header []string) (runColumns, string) {
	c := runColumns{at: map[string]int{}, size: len(header), digits: map[string]int{}}
	var problems, units []string
	for i, name := range header {
		base := name
		if cut := strings.LastIndexByte(name, '_'); cut > 0 && unitBytes(name[cut+1:]) > 0 {
			base = name[:cut]
			if !slices.Contains(units, name[cut+1:]) && slices.Contains(amountColumns, base) {
				units = append(units, name[cut+1:])
			}
		}
		amount := slices.Contains(amountColumns, base)
		_, twice := c.at[base]
		switch {
		case amount && base == name:
			problems = append(problems, fmt.Sprintf("column %q does not name its unit: write %s_gib, _mib or _bytes", name, name))
		case !amount && !slices.Contains(plainColumns, name):
			problems = append(problems, fmt.Sprintf("unknown column %q", name))
		case twice:
			problems = append(problems, fmt.Sprintf("column %q is there twice", name))
		}
		c.at[base] = i
	}
	for _, name := range []string{"seq_len", "batch"} {
		if _, ok := c.at[name]; !ok {
			problems = append(problems, fmt.Sprintf("column %q is missing", name))
		}
	}
	if !slices.ContainsFunc(peakColumns, func(name string) bool { _, ok := c.at[name]; return ok }) {
		problems = append(problems, "a column of peaks is missing")
	}
	if len(units) > 1 {
		problems = append(problems, "mixed units ("+strings.Join(units, ", ")+"): give all amounts in one")
	}
	if len(problems) > 0 {
		return c, strings.Join(problems, "; ") + "; columns are " + strings.Join(plainColumns, ", ") + ", and " +
			strings.Join(amountColumns, ", ") + " with their unit, as in peak_reserved_gib"
	}
	c.unit = units[0]
	return c, ""
}

func (c runColumns) countDigits(lines []csvLine) {
	for _, name := range peakColumns {
		for _, l := range lines {
			if i, ok := c.at[name]; ok && i < len(l.cells) {
				_, decimals, _ := strings.Cut(l.cells[i], ".")
				c.digits[name] = max(c.digits[name], len(decimals))
			}
		}
	}
}

// parse reads one row; the problem is one sentence about all that is wrong.
func (c runColumns) parse(cells []string, labels importLabels) (row runRow, problem string) {
	if len(cells) != c.size {
		return row, fmt.Sprintf("%d cells where the header has %d", len(cells), c.size)
	}
	var problems []string
	note := func(err error) {
		if err != nil {
			problems = append(problems, err.Error())
		}
	}
	cell := func(name string) string {
		if i, ok := c.at[name]; ok {
			return cells[i]
		}
		return ""
	}
	whole := func(name string, least int) int {
		v, err := wholeCell(name, cell(name), least)
		note(err)
		return v
	}
	amount := func(name string) int64 {
		v, err := c.amount(name, cell(name))
		note(err)
		return v
	}
	env, err := parseEnv(cell("env"))
	note(err)
	row.group = proto.Group{Workload: proto.Workload{Name: labels.workload}, GPU: labels.gpu, Driver: labels.driver, Env: env}
	if cell("chunk_size") != "" {
		row.group.ChunkSize = whole("chunk_size", 0)
	}
	row.point = fit.Point{SeqLen: whole("seq_len", 1), Batch: whole("batch", 1), Chunk: row.group.ChunkSize, Weights: amount("weights"), Context: amount("context"),
		Allocated: amount("peak_allocated"), Reserved: amount("peak_reserved"), Process: amount("process")}
	for _, name := range peakColumns {
		if cell(name) != "" {
			row.point.Rounding = max(row.point.Rounding, c.rounding(name))
		}
	}
	if text := row.contradiction(); text != "" && len(problems) == 0 {
		problems = append(problems, text)
	}
	row.leftOut = row.unfit()
	return row, strings.Join(problems, "; ")
}

func wholeCell(name, text string, least int) (int, error) {
	v, err := strconv.Atoi(text)
	switch {
	case text == "":
		return 0, fmt.Errorf("%s is missing", name)
	case err != nil:
		return 0, fmt.Errorf("%s is %q, and must be a whole number", name, text)
	case v < least || v > 1<<31:
		return 0, fmt.Errorf("%s is %d, and must be at least %d", name, v, least)
	}
	return v, nil
}

// mostMemory is more than any one card has.
const mostMemory = 2048 * int64(proto.GiB)

// amount reads an amount in the table's unit, 0 for an empty cell.
func (c runColumns) amount(name, text string) (int64, error) {
	name += "_" + c.unit
	switch {
	case text == "":
		return 0, nil
	case strings.HasPrefix(text, "-"):
		return 0, fmt.Errorf("%s is %s, and must not be negative", name, text)
	case !plainNumber.MatchString(text):
		return 0, fmt.Errorf("%s is %q, and must be a plain number with a decimal point; the column names the unit", name, text)
	}
	v, _ := new(big.Rat).SetString(text) // a plain number is one
	v.Mul(v, new(big.Rat).SetInt64(unitBytes(c.unit)))
	bytes, _ := v.Float64()
	switch {
	case bytes >= float64(mostMemory):
		return 0, fmt.Errorf("%s is %s, more than any card has: is it in another unit?", name, text)
	case bytes > 0 && bytes < float64(proto.MiB):
		return 0, fmt.Errorf("%s is %s, less than any run holds: is it in another unit?", name, text)
	}
	return int64(bytes + 0.5), nil
}

// rounding is half of the last decimal that a column shows.
func (c runColumns) rounding(name string) int64 {
	half := float64(unitBytes(c.unit)) / 2
	for range c.digits[name] {
		half /= 10
	}
	return int64(half)
}

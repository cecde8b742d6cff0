package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"github.com/oomfleet/oomfleet/proto"
)

const (
	// maxRunsFile is more than any file of runs has; maxBadLines is how many
	// wrong lines are told at once.
	maxRunsFile = 64 << 20
	maxBadLines = 100
)

// readRuns reads a file of runs in either form, or stdin for "-". Every wrong
// line is told at once, with its number.
func (a *app) readRuns(path string, labels importLabels) (runTable, error) {
	in, name, err := a.input(path, "the runs")
	if err != nil {
		return runTable{}, err
	}
	defer in.Close()
	limited := &io.LimitedReader{R: in, N: maxRunsFile + 1}
	buffered := bufio.NewReader(limited)
	first, err := firstByte(buffered)
	switch {
	case errors.Is(err, io.EOF):
		return runTable{}, usagef("%s is empty: give runs as JSON lines or as CSV", name)
	case err != nil:
		return runTable{}, wrongInput(fmt.Errorf("read the runs: %w", err))
	case first == '[':
		return runTable{}, usagef("%s is a JSON array: give one JSON object a line", name)
	}
	var table runTable
	var bad lineProblems
	if first == '{' {
		table, err = readRunLines(buffered, labels, &bad)
	} else {
		if labels.workload == "" {
			labels.workload = strings.TrimSuffix(filepath.Base(name), filepath.Ext(name))
		}
		table, err = readRunCSV(buffered, labels, &bad)
	}
	switch {
	case limited.N <= 0:
		return runTable{}, usagef("%s has more than 64 MiB: give fewer runs", name)
	case err != nil:
		return runTable{}, wrongInput(fmt.Errorf("%s: %w", name, err))
	case len(bad) > 0:
		return runTable{}, usagef("%s has errors%s", name, bad)
	case len(table.rows) == 0:
		return runTable{}, usagef("%s has no runs", name)
	}
	return table, nil
}

// firstByte skips a byte order mark and peeks at the first byte that is no
// white space.
func firstByte(in *bufio.Reader) (byte, error) {
	if mark, err := in.Peek(3); err == nil && string(mark) == "\ufeff" {
		in.Discard(3)
	}
	for n := 1; ; n++ {
		head, err := in.Peek(n)
		if len(head) < n {
			if errors.Is(err, bufio.ErrBufferFull) { // white space only, so far
				return ' ', nil
			}
			return 0, err
		}
		if c := head[n-1]; !strings.ContainsRune(" \t\r\n", rune(c)) {
			return c, nil
		}
	}
}

// lineProblems are sentences about wrong lines.
type lineProblems []lineProblem

type lineProblem struct {
	line int
	text string
}

// maxProblem is how much is told of one line, which may be of any length.
const maxProblem = 1000

func (p *lineProblems) add(line int, format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if len(text) > maxProblem {
		text = strings.ToValidUTF8(text[:maxProblem], "") + "..."
	}
	*p = append(*p, lineProblem{line, text})
}

func (p lineProblems) String() string {
	slices.SortStableFunc(p, func(a, b lineProblem) int { return a.line - b.line })
	var out strings.Builder
	for _, one := range p[:min(len(p), maxBadLines)] {
		fmt.Fprintf(&out, "\nline %d: %s", one.line, one.text)
	}
	if len(p) > maxBadLines {
		fmt.Fprintf(&out, "\nand %d lines more", len(p)-maxBadLines)
	}
	return out.String()
}

// contradiction says what of a run's amounts cannot be, or nothing.
func (r runRow) contradiction() string {
	p := r.point
	if p.Reserved > 0 && p.Allocated > p.Reserved+2*p.Rounding {
		return fmt.Sprintf("%s allocated is more than %s reserved, of which it is a part", proto.Bytes(p.Allocated), proto.Bytes(p.Reserved))
	}
	return ""
}

// unfit says why a run without a quota that passed is still not one to fit.
func (r runRow) unfit() string {
	p := r.point
	if p.Allocated == 0 && p.Reserved == 0 && p.Process == 0 {
		return "with no peak"
	}
	for _, name := range []string{"PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"} {
		if strings.Contains(r.group.Env[name], "per_process_memory_fraction") {
			return "with a cap in the environment"
		}
	}
	return ""
}

// parseEnv reads KEY=VALUE pairs separated by single spaces.
func parseEnv(text string) (map[string]string, error) {
	env := map[string]string{}
	if text == "" {
		return env, nil
	}
	for pair := range strings.SplitSeq(text, " ") {
		name, value, ok := strings.Cut(pair, "=")
		switch {
		case pair == "":
			return nil, errors.New("env separates its pairs by single spaces, with none at the ends")
		case !ok || name == "":
			return nil, fmt.Errorf("env holds %q, which is not KEY=VALUE", pair)
		}
		if _, twice := env[name]; twice {
			return nil, fmt.Errorf("env sets %s twice", name)
		}
		env[name] = value
	}
	return env, nil
}

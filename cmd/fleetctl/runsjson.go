package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/oomfleet/oomfleet/fit"
	"github.com/oomfleet/oomfleet/proto"
)

// readRunLines reads JSON lines, one run each.
func readRunLines(in *bufio.Reader, labels importLabels, bad *lineProblems) (runTable, error) {
	var table runTable
	for line := 1; ; line++ {
		text, err := in.ReadBytes('\n')
		if trimmed := bytes.TrimSpace(text); len(trimmed) > 0 {
			row, problem := parseRun(trimmed, labels)
			if row.line = line; problem != "" {
				bad.add(line, "%s", problem)
			}
			table.rows = append(table.rows, row)
		}
		if errors.Is(err, io.EOF) {
			return table, nil
		}
		if err != nil {
			return table, fmt.Errorf("read line %d: %w", line, err)
		}
	}
}

// parseRun reads one run; the problem is one sentence about all that is wrong.
func parseRun(text []byte, labels importLabels) (row runRow, problem string) {
	fields, err := objectFields(text)
	if err != nil {
		return row, err.Error()
	}
	r := &fieldReader{fields: fields, known: map[string]bool{}}
	params := map[string]string{}
	for _, name := range []string{"model", "stem", "trunk"} {
		if v := r.text(name); v != "" {
			params[name] = v
		}
	}
	if n := r.whole("recycles", 0); n > 0 {
		params["recycles"] = strconv.FormatInt(n, 10)
	}
	g := proto.Group{Workload: proto.Workload{Name: firstOf(r.text("workload"), labels.workload, "esmfold"), Params: params},
		GPU: firstOf(r.text("gpu"), labels.gpu), Driver: firstOf(r.text("driver"), labels.driver), CUDA: r.text("cuda"), Torch: r.text("torch"),
		ChunkSize: int(r.whole("chunk_size", 0)), Env: r.env("env")}
	row = runRow{group: g, point: fit.Point{SeqLen: int(r.required("seq_len")), Batch: int(r.required("batch")), Chunk: g.ChunkSize,
		Allocated: r.peak("peak_allocated_bytes"), Reserved: r.peak("peak_reserved_bytes"), Process: r.peak("process_peak_bytes"),
		Weights: r.whole("weights_bytes", 0), Context: r.whole("context_bytes", 0), LoadedReserved: r.whole("loaded_reserved_bytes", 0)}}
	capKind, outcome := firstOf(r.text("cap_kind"), "none"), firstOf(r.text("outcome"), "ok")
	retries, _ := r.whole("num_alloc_retries", 0), r.whole("loaded_allocated_bytes", 0)
	capBytes := r.whole("cap_bytes", 0)
	r.text("phase")
	r.text("message")
	r.number("seconds")
	switch _, err := proto.ParseQuotaKind(capKind); {
	case capKind != "none" && err != nil:
		r.problem("cap_kind is %q, and must be none, allocator, process or device", capKind)
	case capKind == "none" && capBytes > 0:
		r.problem("cap_bytes is %d where cap_kind is none", capBytes)
	case capKind != "none":
		row.leftOut = "under a quota"
	case outcome != "ok":
		row.leftOut = "that did not pass"
	case retries > 0:
		row.leftOut = "whose allocator met the end of the card"
	default:
		row.leftOut = row.unfit()
	}
	if text := row.contradiction(); text != "" {
		r.problem("%s", text)
	}
	r.unknown()
	return row, strings.Join(r.problems, "; ")
}

func firstOf(texts ...string) string {
	for _, t := range texts {
		if t != "" {
			return t
		}
	}
	return ""
}

// objectFields are the fields of one JSON object; a field given twice is an error.
func objectFields(text []byte) (map[string]json.RawMessage, error) {
	d := json.NewDecoder(bytes.NewReader(text))
	if start, err := d.Token(); err != nil || start != json.Delim('{') {
		return nil, errors.New("this is no JSON object; one run is one object on one line")
	}
	fields := map[string]json.RawMessage{}
	for d.More() {
		name, err := d.Token()
		var value json.RawMessage
		if err == nil {
			err = d.Decode(&value)
		}
		if err != nil {
			return nil, fmt.Errorf("this is no valid JSON after %d characters (%v)", d.InputOffset(), err)
		}
		key, _ := name.(string) // the decoder allows no other name
		if _, twice := fields[key]; twice {
			return nil, fmt.Errorf("%s is given twice", key)
		}
		fields[key] = value
	}
	if _, err := d.Token(); err != nil {
		return nil, errors.New("the JSON object does not end on this line; one run is one object on one line")
	}
	if d.More() || len(bytes.TrimSpace(text[d.InputOffset():])) > 0 {
		return nil, errors.New("there is more on this line than one JSON object")
	}
	return fields, nil
}

// fieldReader reads fields by name and keeps what is wrong with them. A field
// that is absent or null is not known.
type fieldReader struct {
	fields   map[string]json.RawMessage
	known    map[string]bool
	problems []string
}

func (r *fieldReader) problem(format string, args ...any) {
	r.problems = append(r.problems, fmt.Sprintf(format, args...))
}

func (r *fieldReader) field(name string) (json.RawMessage, bool) {
	r.known[name] = true
	raw, ok := r.fields[name]
	return raw, ok && string(raw) != "null"
}

func (r *fieldReader) text(name string) (v string) {
	if raw, ok := r.field(name); ok && json.Unmarshal(raw, &v) != nil {
		r.problem("%s is %s, and must be text", name, short(raw))
	}
	return v
}

func (r *fieldReader) number(name string) (v float64) {
	if raw, ok := r.field(name); ok && json.Unmarshal(raw, &v) != nil {
		r.problem("%s is %s, and must be a number", name, short(raw))
	}
	return v
}

// whole is a whole number, 0 where it is not known.
func (r *fieldReader) whole(name string, least int64) (v int64) {
	raw, ok := r.field(name)
	if !ok {
		return 0
	}
	if err := json.Unmarshal(raw, &v); err != nil {
		r.problem("%s is %s, and must be a whole number in plain digits", name, short(raw))
		return 0
	}
	if v < least || v > 1<<60 {
		r.problem("%s is %d, and must be at least %d", name, v, least)
		return 0
	}
	return v
}

func (r *fieldReader) required(name string) int64 {
	if _, ok := r.field(name); !ok {
		r.problem("%s is missing", name)
		return 0
	}
	return r.whole(name, 1)
}

// peak is an amount that no run is below: a smaller one is in another unit.
func (r *fieldReader) peak(name string) int64 {
	v := r.whole(name, 0)
	if v > 0 && v < int64(proto.MiB) {
		r.problem("%s is %d, less than any run holds: is it bytes?", name, v)
	}
	return v
}

func (r *fieldReader) env(name string) map[string]string {
	env := map[string]string{}
	if raw, ok := r.field(name); ok && (json.Unmarshal(raw, &env) != nil || env == nil) {
		r.problem("%s is %s, and must be an object of texts", name, short(raw))
		return map[string]string{}
	}
	return env
}

// unknown tells the fields that nobody asked for.
func (r *fieldReader) unknown() {
	var names []string
	for _, name := range slices.Sorted(maps.Keys(r.fields)) {
		if !r.known[name] {
			names = append(names, strconv.Quote(name))
		}
	}
	if len(names) > 0 {
		r.problem("unknown field %s; docs/cli.md lists the known ones", strings.Join(names, ", "))
	}
}

// short is the beginning of a value.
func short(raw []byte) string {
	if len(raw) > 40 {
		return string(raw[:40]) + "..."
	}
	return string(raw)
}

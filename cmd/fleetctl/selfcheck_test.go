package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/oomfleet/oomfleet/allocator"
	"github.com/oomfleet/oomfleet/storage/trace"
)

// TestSelfCheckIsInput: a recording that the model does not understand is input
// that cannot be used, whichever command meets it: exit 2, and no document.
func TestSelfCheckIsInput(t *testing.T) {
	events, meta, err := trace.ReadFile(traceFile(128, 0))
	if err != nil {
		t.Fatal(err)
	}
	moved := false
	for i, e := range events { // one block lies elsewhere in its segment than any rule puts it
		if e.Action == allocator.Alloc && e.Size > 1<<20 && i > len(events)/2 {
			for j := i; j < len(events); j++ {
				if events[j].Addr == e.Addr && (events[j].Action == allocator.Alloc || strings.HasPrefix(events[j].Action.String(), "free")) {
					events[j].Addr += 512
					moved = true
				}
			}
			break
		}
	}
	if !moved {
		t.Fatal("no block was moved")
	}
	var file bytes.Buffer
	if err := trace.Encode(&file, events, meta); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "odd.parquet")
	if err := os.WriteFile(path, file.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"trace", "replay", path}, {"trace", "boundary", path, "--json"}, {"trace", "what-if", path},
		{"program", "build", path, traceFile(192, 0), traceFile(256, 0), traceFile(320, 0), "-o", path + "x"},
	} {
		stdout, stderr, code := fleetctl(t, args...)
		if code != exitUsage || stdout != "" || !strings.Contains(stderr, "self-check") {
			t.Errorf("%v: exit %d, %q, %q", args, code, stdout, stderr)
		}
	}
}

// TestProgramFromStdin: a program is read from a pipe too, and a file of another
// version or kind is named as what it is.
func TestProgramFromStdin(t *testing.T) {
	file := filepath.Join(t.TempDir(), "p.program")
	build := []string{"program", "build", "-o", file}
	for _, l := range []int{128, 192, 256, 320} {
		build = append(build, traceFile(l, 0))
	}
	if _, stderr, code := fleetctl(t, build...); code != exitOK {
		t.Fatal(stderr)
	}
	whole, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	named, _, _ := fleetctl(t, "program", "predict", file, "--seq-len", "320", "--json")
	for name, c := range map[string]struct {
		text string
		code int
		says string
	}{
		"a program":         {string(whole), exitOK, ""},
		"without programs":  {`{"version": 1}`, exitUsage, "it holds no programs"},
		"a newer version":   {`{"version": 2}`, exitUsage, "of program version 2, and this build reads version 1"},
		"another document":  {`{"cells": []}`, exitUsage, "is not a program file"},
		"nothing":           {"", exitUsage, "is not a program file"},
		"a matrix, in YAML": {"apiVersion: oomfleet/v1\n", exitUsage, "is not a program file"},
	} {
		t.Run(name, func(t *testing.T) {
			var out, errs bytes.Buffer
			code := run(t.Context(), []string{"program", "predict", "-", "--seq-len", "320", "--json"}, streams{in: strings.NewReader(c.text), out: &out, err: &errs})
			if code != c.code || !strings.Contains(errs.String(), c.says) {
				t.Errorf("exit %d, %s", code, errs.String())
			}
			if c.code == exitOK && out.String() != named {
				t.Errorf("from a pipe\n%s\nfrom the file\n%s", out.String(), named)
			}
		})
	}
}

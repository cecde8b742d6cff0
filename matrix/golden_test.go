package matrix

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/oomfleet/oomfleet/proto"
)

var rewrite = flag.Bool("rewrite", false, "write golden files and schema.json instead of comparing with them")

// fleet is what the golden tests say is registered.
func fleet() []proto.Stack {
	return []proto.Stack{
		{GPU: "NVIDIA H200", Driver: "580.159.04", Torch: "2.11.0+cu130"},
		{GPU: "NVIDIA H200", Driver: "580.159.04", Torch: "2.11.0+cu130"},
		{GPU: "NVIDIA H200", Driver: "580.159.04-synthetic"},
	}
}

// overrides reads the lines "# --set X" at the head of a test file.
func overrides(source string) []string {
	var sets []string
	for line := range strings.Lines(source) {
		if set, ok := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "# --set "); ok {
			sets = append(sets, set)
		}
	}
	return sets
}

// golden compares text with a file, or writes the file under -rewrite.
func golden(t *testing.T, path, text string) {
	t.Helper()
	if *rewrite {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v (make it with go test ./matrix -rewrite)", err)
	}
	if text != string(want) {
		t.Errorf("%s differs (go test ./matrix -rewrite shows it in git diff)\n--- got\n%s--- want\n%s", path, text, want)
	}
}

// sources lists test files, and fails where fewer are found than there must be.
func sources(t testing.TB, pattern string, least int) []string {
	t.Helper()
	paths, err := filepath.Glob(pattern)
	if err != nil {
		t.Fatal(err)
	}
	if len(paths) < least {
		t.Fatalf("%s: %d files, want at least %d", pattern, len(paths), least)
	}
	return paths
}

// TestBroken holds every kind of error to its text. A file that is meant to have
// one mistake says so by its golden file having one problem.
func TestBroken(t *testing.T) {
	for _, path := range sources(t, "testdata/broken/*.yaml", 24) {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".yaml"), func(t *testing.T) {
			source, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			expansion, err := Expand(source, Options{Installed: fleet(), Set: overrides(string(source))})
			if err == nil {
				t.Fatalf("expands to %d cells, want an error", len(expansion.Cells))
			}
			problems, ok := err.(Problems)
			if !ok {
				t.Fatalf("error is a %T, want Problems", err)
			}
			for _, p := range problems {
				if p.Line == 0 && p.Excerpt == "" {
					t.Errorf("%q names no place", p.Message)
				}
			}
			golden(t, strings.TrimSuffix(path, ".yaml")+".golden", problems.String()+"\n")
		})
	}
}

// TestGood holds files to their cells, ids, notices and estimates. The ids are
// what registries hold: a change here orphans every result that was measured.
func TestGood(t *testing.T) {
	for _, path := range sources(t, "testdata/good/*.yaml", 6) {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".yaml"), func(t *testing.T) {
			source, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			expansion, err := Expand(source, Options{Installed: fleet(), Set: overrides(string(source))})
			if err != nil {
				t.Fatal(err)
			}
			golden(t, strings.TrimSuffix(path, ".yaml")+".golden", describe(expansion))
		})
	}
}

func describe(e *Expansion) string {
	var b strings.Builder
	first := e.Cells[0]
	b.WriteString(e.Name + ": " + e.Estimate().String() + "\n")
	b.WriteString("workload " + first.Workload.Name + " " + proto.EnvString(first.Workload.Params) + "\n")
	b.WriteString("gpu " + first.GPU + ", quota " + string(first.QuotaKind) + ", step " + first.Step.String() + "\n")
	b.WriteString("search " + string(e.Search.Strategy) + " " + string(e.Search.Certify) +
		", quotas " + e.Search.Min.String() + " to " + e.Search.Max.String() + "\n")
	if p := e.Rollout; p != nil {
		fmt.Fprintf(&b, "rollout at most %d a day, margin %v, confidence %v, %d repeats\n", p.MaxPerDay, p.Margin, p.Confidence, p.Repeats)
	}
	b.WriteString("\n")
	for _, cell := range e.Cells {
		b.WriteString(string(cell.ID()) + " " + cell.String() + "\n")
	}
	if len(e.Notices) > 0 {
		b.WriteString("\n" + e.Notices.String() + "\n")
	}
	return b.String()
}

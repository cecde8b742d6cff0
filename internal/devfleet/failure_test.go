package devfleet

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestFailureTable holds docs/failure.md to the tests that it names: each row
// has one, and each is there.
func TestFailureTable(t *testing.T) {
	text, err := os.ReadFile("../../docs/failure.md")
	if err != nil {
		t.Fatal(err)
	}
	named := regexp.MustCompile("`([a-z0-9/]+) (Test[A-Za-z0-9]+)`")
	rows, seen := 0, map[string]bool{}
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(strings.TrimSpace(line), "|")
		if !strings.HasPrefix(line, "| ") || strings.TrimSpace(cells[len(cells)-2]) == "Test" {
			continue
		}
		rows++
		tests := named.FindAllStringSubmatch(cells[len(cells)-2], -1)
		if len(cells) != 5 || len(tests) == 0 {
			t.Errorf("this row has not three columns, or names no test: %s", line)
		}
		for _, m := range tests {
			seen[m[1]] = true
			if !declares(t, m[1], m[2]) {
				t.Errorf("package %s has no %s", m[1], m[2])
			}
		}
	}
	if rows < 50 {
		t.Errorf("there are only %d rows; has the table another form?", rows)
	}
	// Those are where most ways to die are; a package that is not named at all
	// was forgotten.
	for _, p := range []string{"internal/devfleet", "agent", "agent/child", "coordinator", "queue/natsq", "storage/raftnode", "storage/trace/s3x", "storage/trace/dir"} {
		if !seen[p] {
			t.Errorf("no row names a test of %s", p)
		}
	}
}

func declares(t *testing.T, dir, test string) bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("../..", dir, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(text), "\nfunc "+test+"(t *testing.T)") {
			return true
		}
	}
	return false
}

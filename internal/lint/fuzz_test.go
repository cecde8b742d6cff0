package lint

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestFuzzTargets: docs/lifecycle.md says which target covers which bytes from
// outside, and says it of every target that there is.
func TestFuzzTargets(t *testing.T) {
	text, err := os.ReadFile("../../docs/lifecycle.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(text), "## Fuzzing")
	told := map[string]bool{}
	for row := range strings.Lines(table) {
		folder := ""
		for _, name := range regexp.MustCompile("`(?:([a-z/]+) )?(Fuzz[A-Za-z]+)`").FindAllStringSubmatch(row, -1) {
			if name[1] != "" {
				folder = name[1]
			}
			told[folder+" "+name[2]] = true
		}
	}
	target := regexp.MustCompile(`(?m)^func (Fuzz[A-Za-z]+)\(`)
	there := map[string]bool{}
	err = filepath.WalkDir("../..", func(path string, _ os.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		code, err := os.ReadFile(path)
		for _, name := range target.FindAllStringSubmatch(string(code), -1) {
			there[strings.TrimPrefix(filepath.ToSlash(filepath.Dir(path)), "../../")+" "+name[1]] = true
		}
		return err
	})
	if err != nil || len(there) < 20 {
		t.Fatalf("%d targets found, %v", len(there), err)
	}
	if !maps.Equal(told, there) {
		t.Errorf("docs/lifecycle.md has\n%s\nthere are\n%s", strings.Join(slices.Sorted(maps.Keys(told)), "\n"), strings.Join(slices.Sorted(maps.Keys(there)), "\n"))
	}
}

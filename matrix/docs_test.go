package matrix

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// page is docs/matrix.md, cut into its fenced blocks.
func page(t *testing.T) (text string, blocks [][2]string) {
	t.Helper()
	source, err := os.ReadFile("../docs/matrix.md")
	if err != nil {
		t.Fatal(err)
	}
	for i, part := range strings.Split(string(source), "```") {
		if language, body, ok := strings.Cut(part, "\n"); i%2 == 1 && ok {
			blocks = append(blocks, [2]string{language, body})
		}
	}
	return string(source), blocks
}

// TestPageRuns expands every file on the page. A text block after a file is its
// report: the problems, or the estimate and the cells.
func TestPageRuns(t *testing.T) {
	_, blocks := page(t)
	files, reports := 0, 0
	for i, block := range blocks {
		if block[0] != "yaml" {
			continue
		}
		files++
		expansion, err := Expand([]byte(block[1]), Options{Installed: fleet()})
		if i+1 == len(blocks) || blocks[i+1][0] != "text" {
			if err != nil {
				t.Errorf("%s\n%v", block[1], err)
			}
			continue
		}
		reports++
		var got strings.Builder
		if problems, ok := err.(Problems); ok {
			got.WriteString(problems.String() + "\n")
		} else {
			got.WriteString(expansion.Estimate().String() + "\n")
			for _, cell := range expansion.Cells {
				got.WriteString(cell.String() + "\n")
			}
		}
		if got.String() != blocks[i+1][1] {
			t.Errorf("the page says\n%s\nbut it is\n%s", blocks[i+1][1], got.String())
		}
	}
	if files < 4 || reports < 2 {
		t.Errorf("%d files and %d reports on the page", files, reports)
	}
}

// TestPageIsWhole: every key, every parameter and every example of an error is
// on the page.
func TestPageIsWhole(t *testing.T) {
	text, _ := page(t)
	want := append(settable(), "workload.params", "exclude", "include")
	want = append(want, keysOf(reflect.TypeFor[FileESMFold]())...)
	for _, path := range sources(t, "testdata/broken/*.yaml", 24) {
		want = append(want, strings.TrimSuffix(filepath.Base(path), ".yaml"))
	}
	for _, word := range want {
		if !strings.Contains(text, "`"+word+"`") {
			t.Errorf("docs/matrix.md does not name `%s`", word)
		}
	}
}

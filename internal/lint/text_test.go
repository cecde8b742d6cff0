package lint

import (
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// unwanted are texts that no file of the project holds, this package apart.
var unwanted = []struct {
	pattern *regexp.Regexp
	what    string
}{
	{regexp.MustCompile(`(^|[^\w./~-])/(work|home|Users|root|mnt)/\w`), "a path of somebody's machine"},
	{regexp.MustCompile(`(?i)\bGOPROXY *[:?]?= *['"]?https?://|\bGONOSUMDB\b|--?index-url|\b(artifactory|nexus)[.-]\w+\.\w`), "a package registry's address; the defaults are public"},
	{regexp.MustCompile(`\b(TODO|FIXME|XXX|HACK)\b`), "a note to do something; do it, or open an issue"},
	{regexp.MustCompile(`(?m)^(<<<<<<<|>>>>>>>) `), "a merge conflict"},
}

func TestTexts(t *testing.T) {
	var found []finding
	look := func(file, text string) {
		for _, u := range unwanted {
			if at := u.pattern.FindStringIndex(text); at != nil {
				line := 1 + strings.Count(text[:at[0]], "\n")
				found = append(found, finding{file, file + ":" + itoa(line), u.what + ": " + strings.TrimSpace(text[at[0]:at[1]])})
			}
		}
	}
	tree := load(t)
	tree.each(func(p *pkg, s *source) {
		if p.dir != "internal/lint" {
			look(s.path, string(s.text))
		}
	})
	for file, text := range tree.texts {
		look(file, text)
	}
	judge(t, ruleText, found)
}

var (
	mdLink     = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	lineNumber = regexp.MustCompile(`\w\.(go|py):\d+`)
	makeCall   = regexp.MustCompile("`make ([a-z]+)")
	makeTarget = regexp.MustCompile(`(?m)^([a-z]+):[^=]`)
	// closedSet finds the declarations of outcomes, states, origins and kinds.
	closedSet  = regexp.MustCompile(`(?m)^\t(?:Outcome|Cell|Origin|Quota)\w+ +(Outcome|CellState|Origin|QuotaKind) += "(\w+)"`)
	quotedPath = regexp.MustCompile("`([\\w.-]+(?:/[\\w.<>*-]*)+)`")
)

func (t *tree) documents() map[string]string {
	docs := make(map[string]string)
	for file, text := range t.texts {
		if path.Ext(file) == ".md" {
			docs[file] = text
		}
	}
	return docs
}

// TestDocumentLinks: a link to a file of ours leads to a file, and nothing
// points to a line, which moves.
func TestDocumentLinks(t *testing.T) {
	docs := load(t).documents()
	for file, text := range docs {
		for _, m := range mdLink.FindAllStringSubmatch(text, -1) {
			target, _, _ := strings.Cut(m[1], "#")
			if target == "" || strings.Contains(target, "://") || strings.HasPrefix(target, "mailto:") {
				continue
			}
			if _, err := os.Stat(filepath.Join(root, path.Dir(file), target)); err != nil {
				t.Errorf("%s links to %s, which is not there", file, m[1])
			}
		}
		if at := lineNumber.FindString(text); at != "" {
			t.Errorf("%s points to line %s; name the symbol", file, at)
		}
	}
}

// TestDocumentsNameWhatExists: the make targets in any document, and the paths
// in CONTRIBUTING.
func TestDocumentsNameWhatExists(t *testing.T) {
	tree := load(t)
	var targets []string
	for _, m := range makeTarget.FindAllStringSubmatch(tree.texts["Makefile"], -1) {
		targets = append(targets, m[1])
	}
	for file, text := range tree.documents() {
		for _, m := range makeCall.FindAllStringSubmatch(text, -1) {
			if !slices.Contains(targets, m[1]) {
				t.Errorf("%s names `make %s`, which is no target of the Makefile", file, m[1])
			}
		}
	}
	contributing := tree.texts["CONTRIBUTING.md"]
	paths := quotedPath.FindAllStringSubmatch(contributing, -1)
	if len(paths) < 10 {
		t.Fatalf("CONTRIBUTING.md names only %d paths; its table is what this test is for", len(paths))
	}
	for _, m := range paths {
		if strings.ContainsAny(m[1], "<>*") {
			continue
		}
		if _, err := os.Stat(filepath.Join(root, m[1])); err != nil {
			t.Errorf("CONTRIBUTING.md names %s, which is not there", m[1])
		}
	}
}

// TestMakeHelp: every target is in the help that make prints.
func TestMakeHelp(t *testing.T) {
	for line := range strings.SplitSeq(load(t).texts["Makefile"], "\n") {
		if m := makeTarget.FindStringSubmatch(line + " "); m != nil && !strings.Contains(line, "## ") {
			t.Errorf("target %s of the Makefile has no ## help", m[1])
		}
	}
}

// TestDecisions: records are numbered without a gap and have four parts.
func TestDecisions(t *testing.T) {
	var numbers []int
	for file, text := range load(t).documents() {
		if path.Dir(file) != "docs/adr" || path.Base(file) == "README.md" {
			continue
		}
		n, err := strconv.Atoi(path.Base(file)[:4])
		if err != nil {
			t.Errorf("%s: a record is NNNN-title.md", file)
			continue
		}
		numbers = append(numbers, n)
		for _, part := range []string{"# ", "## Context", "## Choice", "## What we gave up", "## When to look again"} {
			if !strings.Contains("\n"+text, "\n"+part) {
				t.Errorf("%s has no part %q", file, part)
			}
		}
		if lines := strings.Count(text, "\n"); lines > 80 {
			t.Errorf("%s has %d lines; a record is one page", file, lines)
		}
	}
	slices.Sort(numbers)
	for i, n := range numbers {
		if n != i+1 {
			t.Errorf("record %d is where %d should be", n, i+1)
		}
	}
}

// TestChangelog: one file per change, each with a kind and one paragraph.
func TestChangelog(t *testing.T) {
	kinds := []string{"Added: ", "Changed: ", "Fixed: ", "Removed: "}
	files := 0
	for file, text := range load(t).documents() {
		if path.Dir(file) != "changelog/unreleased" {
			continue
		}
		files++
		if !slices.ContainsFunc(kinds, func(k string) bool { return strings.HasPrefix(text, k) }) {
			t.Errorf("%s does not start with one of %q", file, kinds)
		}
	}
	if files == 0 && !strings.Contains(load(t).texts["CHANGELOG.md"], "\n## ") {
		t.Error("no change is described, neither unreleased nor released")
	}
}

// TestGlossary: each member of the closed sets that users see is explained.
func TestGlossary(t *testing.T) {
	tree := load(t)
	glossary := tree.texts["docs/glossary.md"]
	members := 0
	tree.each(func(p *pkg, s *source) {
		if p.dir != "proto" || s.test {
			return
		}
		for _, m := range closedSet.FindAllStringSubmatch(string(s.text), -1) {
			members++
			if !strings.Contains(glossary, "`"+m[2]+"`") {
				t.Errorf("docs/glossary.md does not explain %s %q", strings.ToLower(m[1]), m[2])
			}
		}
	})
	if members < 25 {
		t.Errorf("found only %d members of closed sets in proto", members)
	}
}

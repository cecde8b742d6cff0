package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/oomfleet/oomfleet/matrix"
)

// TestDocumentedCommands: a command line in a block that no transcript runs can
// be given as it stands, and a test is named that runs such a command.
func TestDocumentedCommands(t *testing.T) {
	table, used, found := namedTests(), map[string]bool{}, 0
	for _, pattern := range []string{"../../README.md", "../../docs/*.md", "../../docs/*/*.md"} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			name := strings.TrimPrefix(file, "../../")
			if strings.Contains(string(text), "```console fleet\n") && !slices.Contains([]string{"docs/api.md", "docs/quota.md", "docs/registry.md"}, name) {
				t.Errorf("%s: no test runs its blocks of kind `console fleet`", name)
			}
			for _, s := range commandLines(name, string(text)) {
				found++
				if err := givable(s.command); err != nil {
					t.Errorf("%s: %s: %v", s.at, s.command, err)
				}
				best := ""
				for start := range table {
					if strings.HasPrefix(s.command, start) && len(start) > len(best) {
						best = start
					}
				}
				if used[best] = true; best == "" {
					t.Errorf("%s: no test is named for %q: show it as a transcript, or name the test that runs it", s.at, s.command)
				}
			}
		}
	}
	if found < 30 {
		t.Errorf("only %d command lines", found)
	}
	for start, by := range table {
		if !used[start] {
			t.Errorf("no document has a line %q", start)
		}
		files, err := filepath.Glob(filepath.Join(by[0], "*_test.go"))
		if err != nil {
			t.Fatal(err)
		}
		if !slices.ContainsFunc(files, func(file string) bool {
			text, err := os.ReadFile(file)
			return err == nil && bytes.Contains(text, []byte("\nfunc "+by[1]+"(t *testing.T)")) && bytes.Contains(text, []byte(by[2]))
		}) {
			t.Errorf("%q: no %s in %s whose file has %s", start, by[1], by[0], by[2])
		}
	}
}

// commandLines finds the command lines in fenced and indented blocks that are no
// transcripts, without a prompt, the folder of the program and a comment.
func commandLines(name, text string) (lines []step) {
	fence := ""
	for i, line := range strings.Split(text, "\n") {
		if mark, ok := strings.CutPrefix(strings.TrimSpace(line), "```"); ok {
			if fence == "" {
				fence = "```" + mark
			} else {
				fence = ""
			}
			continue
		}
		if strings.HasPrefix(fence, "```console") || fence == "" && !strings.HasPrefix(line, "    ") {
			continue
		}
		line, _, _ = strings.Cut(strings.TrimPrefix(strings.TrimPrefix(strings.TrimSpace(line), "$ "), "bin/"), " #")
		if word, _, _ := strings.Cut(line, " "); slices.Contains([]string{"fleetctl", "make", "go", "curl"}, word) {
			lines = append(lines, step{at: fmt.Sprintf("%s, line %d", name, i+1), command: strings.TrimSpace(line)})
		}
	}
	return lines
}

// givable checks a command line without running it.
func givable(command string) error {
	words := shellWords(command)
	for _, w := range words {
		if path := strings.TrimPrefix(w, "./"); path != w || strings.HasPrefix(w, "deploy/") || strings.HasPrefix(w, "docs/") {
			if _, err := os.Stat(filepath.Join("../..", path)); err != nil {
				return err
			}
			if strings.HasSuffix(path, ".yaml") { // given to a command, it is a matrix
				source, err := os.ReadFile(filepath.Join("../..", path))
				if _, bad := matrix.Parse(source, matrix.Options{}); err != nil || bad != nil {
					return errors.Join(err, bad)
				}
			}
		}
	}
	if words[0] == "make" {
		text, err := os.ReadFile("../../Makefile")
		for _, w := range words[1:] {
			variable, _, isVariable := strings.Cut(w, "=")
			if !isVariable && !regexp.MustCompile(`(?m)^`+w+`:`).Match(text) || isVariable && !bytes.Contains(text, []byte("$("+variable)) {
				return fmt.Errorf("the Makefile has no %s", w)
			}
		}
		return err
	}
	if words[0] != "fleetctl" {
		return nil
	}
	c, rest, err := newRoot(streams{in: &bytes.Buffer{}, out: &bytes.Buffer{}, err: &bytes.Buffer{}}).Find(words[1:])
	if err != nil {
		return err
	}
	if c.HasSubCommands() {
		return fmt.Errorf("%s is no command", strings.Join(words, " "))
	}
	if err := c.ParseFlags(rest); err != nil {
		return err
	}
	return errors.Join(c.ValidateArgs(c.Flags().Args()), c.ValidateRequiredFlags())
}

// TestGivable holds that the check can fail.
func TestGivable(t *testing.T) {
	for command, good := range map[string]bool{
		"fleetctl matrix list": true, "fleetctl matrix lists": false, "fleetctl matrix": false, "fleetctl matrix list --no-such": false,
		"fleetctl matrix list x": false, "fleetctl matrix submit deploy/examples/none.yaml": false, "fleetctl registry backup": false,
		"make sim N=1": true, "fleetctl matrix submit deploy/fleet.yaml": false, "make simulate": false, "make sim NO_SUCH=1": false, "go test ./none": false,
	} {
		if err := givable(command); (err == nil) != good {
			t.Errorf("%s: %v", command, err)
		}
	}
}

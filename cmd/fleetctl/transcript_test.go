package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestTranscripts runs every `console` block of the documents. What cannot run
// in one process (a fleet, a shell's own words) stands in a block of another
// kind.
func TestTranscripts(t *testing.T) {
	files := []string{"../../README.md"}
	for _, pattern := range []string{"../../docs/*.md", "../../docs/*/*.md"} {
		more, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, more...)
	}
	ran := 0
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		name := strings.TrimPrefix(file, "../../")
		blocks := consoleBlocks(name, string(text))
		t.Run(name, func(t *testing.T) { transcript(t, blocks) })
		ran += len(blocks)
	}
	if ran < 4 {
		t.Errorf("only %d blocks in %v", ran, files)
	}
}

// step is one command of a transcript and what should follow it.
type step struct {
	at      string // file and line
	command string
	output  []string
}

// consoleBlocks finds the steps of each fenced block of kind console.
func consoleBlocks(name, text string) (blocks [][]step) {
	inside, continued := false, false
	for i, line := range strings.Split(text, "\n") {
		switch fence := strings.TrimSpace(line); {
		case !inside && fence == "```console":
			inside = true
			blocks = append(blocks, nil)
			continue
		case inside && fence == "```":
			inside = false
			continue
		case !inside:
			continue
		}
		steps := &blocks[len(blocks)-1]
		command, isCommand := strings.CutPrefix(line, "$ ")
		switch {
		case continued:
			last := &(*steps)[len(*steps)-1]
			last.command += " " + strings.TrimSpace(strings.TrimSuffix(line, `\`))
		case isCommand:
			*steps = append(*steps, step{at: fmt.Sprintf("%s, line %d", name, i+1), command: strings.TrimSuffix(command, `\`)})
		case len(*steps) == 0:
			*steps = append(*steps, step{at: fmt.Sprintf("%s, line %d", name, i+1)})
		default:
			last := &(*steps)[len(*steps)-1]
			last.output = append(last.output, line)
		}
		continued = (continued || isCommand) && strings.HasSuffix(line, `\`)
	}
	return blocks
}

// transcript runs the blocks of one document, with the repository's root as
// working directory. Known are `fleetctl ...`, with quotes, `>file`, `<file` and
// `cat file |` before it, and `echo $?`, which must follow a command that does
// not end with 0. Files that are written live for the length of the document and
// are not seen by anybody else.
func transcript(t *testing.T, blocks [][]step) {
	t.Chdir("../..")
	t.Setenv("OOMFLEET_SERVER", "")
	sh := &shell{files: map[string]string{}, dir: t.TempDir()}
	sh.play(t, blocks)
}

// play runs blocks, and holds each step to what it shows.
func (sh *shell) play(t *testing.T, blocks [][]step) {
	t.Helper()
	for _, steps := range blocks {
		for i, s := range steps {
			s.check(t, sh.run(t, s))
			if next := i + 1; sh.code != 0 && (next == len(steps) || steps[next].command != "echo $?") && s.command != "echo $?" {
				t.Errorf("%s: $ %s ends with %d; show that with `$ echo $?`", s.at, s.command, sh.code)
			}
		}
	}
}

// check holds a step to what it shows.
func (s step) check(t *testing.T, got string) {
	t.Helper()
	if !matches(s.output, got) {
		t.Errorf("%s: $ %s\nprints\n%s\nand not\n%s", s.at, s.command, got, strings.Join(s.output, "\n"))
	}
}

// shell is as much of one as documents need.
type shell struct {
	files map[string]string // by the name that the document uses
	dir   string
	code  int
}

func (sh *shell) run(t *testing.T, s step) string {
	t.Helper()
	if s.command == "echo $?" {
		return fmt.Sprint(sh.code)
	}
	var in []byte
	command := s.command
	if left, right, piped := strings.Cut(command, " | "); piped {
		name, ok := strings.CutPrefix(left, "cat ")
		if !ok {
			t.Fatalf("%s: %q before a pipe is not known here", s.at, left)
		}
		in, command = sh.read(t, s, name), right
	}
	words := shellWords(command)
	if len(words) == 0 || words[0] != "fleetctl" {
		t.Fatalf("%s: %q cannot be run here; put it into a block of another kind", s.at, command)
	}
	var args []string
	var out, all bytes.Buffer
	streams := streams{out: &all, err: &all}
	into := ""
	for _, word := range words[1:] {
		if name, ok := strings.CutPrefix(word, ">"); ok {
			into, streams.out = name, &out
		} else if name, ok := strings.CutPrefix(word, "<"); ok {
			in = sh.read(t, s, name)
		} else if path, ok := sh.files[word]; ok {
			args = append(args, path)
		} else {
			args = append(args, word)
		}
	}
	streams.in = bytes.NewReader(in)
	sh.code = run(t.Context(), args, streams)
	if into != "" {
		path := filepath.Join(sh.dir, fmt.Sprint(len(sh.files)))
		if err := os.WriteFile(path, out.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
		sh.files[into] = path
	}
	text := all.String()
	for name, path := range sh.files {
		text = strings.ReplaceAll(text, path, name)
	}
	return text
}

func (sh *shell) read(t *testing.T, s step, name string) []byte {
	t.Helper()
	path, ok := sh.files[name]
	if !ok {
		path = name
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%s: %v", s.at, err)
	}
	return text
}

var shellWord = regexp.MustCompile(`(?:'[^']*'|"[^"]*"|[^\s'"])+`)

// shellWords splits a command line at spaces outside quotes.
func shellWords(line string) []string {
	words := shellWord.FindAllString(line, -1)
	for i, w := range words {
		words[i] = strings.NewReplacer(`'`, "", `"`, "").Replace(w)
	}
	return words
}

// matches compares output with what a document shows: `...` on a line of its own
// stands for any lines, inside a line for any text. Space at the ends of lines
// and of the whole means nothing.
func matches(want []string, got string) bool {
	var pattern strings.Builder
	for _, line := range strings.Split(strings.TrimRight(strings.Join(want, "\n"), " \n"), "\n") {
		line = strings.TrimRight(line, " ")
		if strings.TrimSpace(line) == "..." {
			pattern.WriteString(`(?:.*\n)*?`)
			continue
		}
		parts := strings.Split(line, "...")
		for i := range parts {
			parts[i] = regexp.QuoteMeta(parts[i])
		}
		pattern.WriteString(strings.Join(parts, `.*`) + `\n`)
	}
	lines := strings.Split(strings.TrimRight(got, " \n"), "\n")
	for i := range lines {
		lines[i] = strings.TrimRight(lines[i], " ")
	}
	return regexp.MustCompile(`^` + pattern.String() + `$`).MatchString(strings.Join(lines, "\n") + "\n")
}

// TestMatches holds that the comparison can fail.
func TestMatches(t *testing.T) {
	for _, c := range []struct {
		want, got string
		same      bool
	}{
		{"a\nb", "a\nb\n", true},
		{"a  \nb\n", "a\nb", true},
		{"a", "a\nb", false},
		{"a\n...", "a\nb\nc", true},
		{"a\n...", "a", true},
		{"...\nc", "a\nb\nc", true},
		{"...\nc", "a\nb\ncd", false},
		{"a\n...\nd", "a\nb\nc\nd", true},
		{"a ... c", "a b c", true},
		{"a ... c", "a\nc", false},
		{"a.c", "abc", false},
		{"", "", true},
		{"", "a", false},
	} {
		if matches(strings.Split(c.want, "\n"), c.got) != c.same {
			t.Errorf("%q and %q: want %v", c.want, c.got, c.same)
		}
	}
}

// TestConsoleBlocks: blocks of other kinds are left alone, commands go on after
// a backslash, and words keep what is quoted.
func TestConsoleBlocks(t *testing.T) {
	blocks := consoleBlocks("x.md", "text\n```sh\n$ no\n```\n```console\n$ fleetctl a \\\n    --b 'c d'\nout\n\nmore\n$ fleetctl e\n```\n$ no\n")
	if len(blocks) != 1 || len(blocks[0]) != 2 || blocks[0][0].at != "x.md, line 6" || len(blocks[0][0].output) != 3 {
		t.Fatalf("%+v", blocks)
	}
	if words := shellWords(blocks[0][0].command); fmt.Sprintf("%q", words) != `["fleetctl" "a" "--b" "c d"]` {
		t.Errorf("%q", words)
	}
}

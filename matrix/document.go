package matrix

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v4"
)

// MaxSource is the largest matrix file in bytes. Sources travel in one log entry,
// and reading one takes a fraction of a second at most.
const MaxSource = 256 << 10

// load reads the one document of a source and returns its top node, or nil when
// the text is no YAML document; then the reason is among the problems.
func (r *reader) load(source []byte) *yaml.Node {
	if len(source) > MaxSource {
		r.report(0, 0, fmt.Sprintf("the file has more than %d bytes; at most %[1]d are read", MaxSource))
		return nil
	}
	r.lines = strings.Split(string(source), "\n")
	if !r.readable() {
		return nil
	}
	loader, err := yaml.NewLoader(bytes.NewReader(source))
	if err != nil {
		r.report(0, 0, fmt.Sprintf("open yaml: %v", err))
		return nil
	}
	var first, second yaml.Node
	switch err := loader.Load(&first); {
	case errors.Is(err, io.EOF) || (err == nil && len(first.Content) == 0):
		r.report(1, 1, "the file is empty; a matrix begins with apiVersion: "+APIVersion)
		return nil
	case err != nil:
		r.syntax(err)
		return nil
	}
	switch err := loader.Load(&second); {
	case err == nil:
		r.report(second.Line, second.Column, "a second document begins here; one file is one matrix")
	case !errors.Is(err, io.EOF):
		r.syntax(err)
	}
	return first.Content[0]
}

// readable finds the bytes that YAML cannot carry. The YAML reader refuses them
// as well, but cannot say where they are.
func (r *reader) readable() bool {
	before := len(r.problems)
	for i, line := range r.lines {
		if i == 0 {
			line = strings.TrimPrefix(line, "\uFEFF")
		}
		column := 0
		for at, c := range line {
			column++
			if c == utf8.RuneError && strings.HasPrefix(line[at:], "\uFFFD") {
				continue // a real replacement character, not a broken byte
			}
			switch {
			case c == utf8.RuneError:
				r.report(i+1, column, "this byte is not UTF-8 text")
			case c < ' ' && c != '\t' && c != '\r', c == 0x7f:
				r.report(i+1, column, fmt.Sprintf("control character %U is not text", c))
			default:
				continue
			}
			break
		}
	}
	return len(r.problems) == before
}

// twoColons finds a value that itself holds a colon and a space, as in
// `KEY: expandable_segments: True`.
var twoColons = regexp.MustCompile(`^[\s-]*[\w.]+:\s+[\w.]+:\s`)

// syntax reports an error of the YAML reader in the place that it names, with
// the cure where the mistake is a known one.
func (r *reader) syntax(err error) {
	var at *yaml.LoadError
	if !errors.As(err, &at) {
		r.report(1, 1, fmt.Sprintf("not YAML: %v", err))
		return
	}
	line, column := at.Mark.Line, at.Mark.Column
	if line == 0 {
		line, column = 1, 1
	}
	message := "not YAML: " + at.Message
	if at.ContextMsg != "" {
		message += " " + at.ContextMsg
		if at.ContextMark.Line > 0 && at.ContextMark.Line != line {
			message += fmt.Sprintf(" (from line %d)", at.ContextMark.Line)
		}
	}
	text := ""
	if line <= len(r.lines) {
		text = r.lines[line-1]
	}
	switch {
	case twoColons.MatchString(text):
		message += "; a value with a colon and a space in it is read as a key: write it without the space, or in quotes"
	case strings.HasPrefix(strings.TrimLeft(text, " "), "\t"):
		message += "; YAML indents with spaces, not tabs"
	}
	r.report(line, column, message)
}

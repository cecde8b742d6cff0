package matrix

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v4"
)

// reader walks the nodes of one document and collects what is wrong with them.
// It goes on after a problem, so that one look at a file finds all of them.
type reader struct {
	lines    []string
	origin   map[*yaml.Node]string // overrides: the node and the text it came from
	problems Problems
	notices  Problems
}

// fail records a problem in the place of n.
func (r *reader) fail(n *yaml.Node, format string, args ...any) {
	r.problems = append(r.problems, r.at(n, fmt.Sprintf(format, args...)))
}

// notice records something that the user should know and that stops nothing.
func (r *reader) notice(n *yaml.Node, format string, args ...any) {
	r.notices = append(r.notices, r.at(n, fmt.Sprintf(format, args...)))
}

// report records a problem at a line and a column; line 0 is the whole file.
func (r *reader) report(line, column int, message string) {
	r.problems = append(r.problems, Problem{Line: line, Column: column, Message: message})
}

func (r *reader) at(n *yaml.Node, message string) Problem {
	if override, ok := r.origin[n]; ok {
		return Problem{Message: message, Excerpt: excerptOf(override)}
	}
	return Problem{Line: n.Line, Column: n.Column, Message: message}
}

// follow returns the node that an alias stands for, and any other node itself.
func follow(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode && n.Alias != nil {
		return n.Alias
	}
	return n
}

func isNull(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.Tag == "!!null" }

// section is one mapping of the document with its keys checked.
type section struct {
	path   string
	node   *yaml.Node
	values map[string]*yaml.Node
}

// value returns the value of a key, nil when it is unset.
func (s section) value(key string) *yaml.Node { return s.values[key] }

// name is the key's full name in messages.
func (s section) name(key string) string {
	if s.path == "" {
		return key
	}
	return s.path + "." + key
}

// section reads a mapping whose keys are those of shape. Unknown and repeated
// keys are problems; the others are still there to be read. It returns false
// when n is no mapping at all.
func (r *reader) section(n *yaml.Node, path string, shape reflect.Type) (section, bool) {
	n = follow(n)
	s := section{path: path, node: n, values: map[string]*yaml.Node{}}
	if !r.mapping(n, path) {
		return s, false
	}
	known := keysOf(shape)
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, ok := r.key(n.Content[i])
		switch {
		case !ok:
		case s.values[key] != nil:
			r.fail(n.Content[i], "%s is set twice%s", s.name(key), onLine(s.values[key]))
		case !slices.Contains(known, key):
			r.unknown(n.Content[i], s.name(key), key, known)
		default:
			s.values[key] = n.Content[i+1]
		}
	}
	return s, true
}

// mapping reports anything that is not a mapping, null apart from the rest.
func (r *reader) mapping(n *yaml.Node, path string) bool {
	if n.Kind == yaml.MappingNode {
		return true
	}
	what := path
	if what == "" {
		what = "the document"
	}
	if isNull(n) {
		r.fail(n, "%s is null; remove the key to leave it unset, or give it keys and values", what)
	} else {
		r.fail(n, "%s is %s; it needs keys with values", what, kindOf(n))
	}
	return false
}

func (r *reader) unknown(n *yaml.Node, name, key string, known []string) {
	if key == "<<" {
		r.fail(n, "%s: merge keys are not read here; write the keys out", name)
		return
	}
	if word, ok := Nearest(key, known); ok {
		r.fail(n, `unknown key %q; did you mean %q?`, name, word)
		return
	}
	r.fail(n, "unknown key %q; known here: %s", name, strings.Join(known, ", "))
}

func (r *reader) key(n *yaml.Node) (string, bool) {
	n = follow(n)
	if n.Kind != yaml.ScalarNode {
		r.fail(n, "a key is a plain word, this one is %s", kindOf(n))
		return "", false
	}
	return n.Value, true
}

// text returns a scalar as it stands in the source: 580.10 is "580.10", True is
// "True", "" is the empty string. Null and everything with parts is a problem.
func (r *reader) text(n *yaml.Node, name string) (string, bool) {
	n = follow(n)
	switch {
	case n.Kind != yaml.ScalarNode:
		r.fail(n, "%s is %s; it needs one plain value", name, kindOf(n))
	case n.Style&yaml.TaggedStyle != 0:
		r.fail(n, "%s has a tag (%s); values are read as they are written, without tags", name, n.Tag)
	case isNull(n):
		r.fail(n, "%s is null; remove the key to leave it unset", name)
	default:
		return n.Value, true
	}
	return "", false
}

// word is text that must not be empty.
func (r *reader) word(n *yaml.Node, name string) (string, bool) {
	text, ok := r.text(n, name)
	if ok && strings.TrimSpace(text) == "" {
		r.fail(n, "%s is empty; remove the key to leave it unset", name)
		return "", false
	}
	return text, ok
}

// choice is a word out of a closed set.
func (r *reader) choice(n *yaml.Node, name string, set []string) (string, bool) {
	text, ok := r.word(n, name)
	if ok && !slices.Contains(set, text) {
		r.fail(n, "%s: %q is not one of %s%s", name, text, strings.Join(set, ", "), suggestion(text, set))
		return "", false
	}
	return text, ok
}

// number is a whole decimal number from least to most, both included.
func (r *reader) number(n *yaml.Node, name string, least, most int) (int, bool) {
	text, ok := r.text(n, name)
	if !ok {
		return 0, false
	}
	value, err := strconv.Atoi(text)
	plain := err == nil && strconv.Itoa(value) == text
	switch {
	case !plain && strings.Trim(text, "0123456789") == "" && text != "" && text[0] != '0':
		r.fail(n, "%s: %s is more than %d", name, text, most)
	case !plain:
		r.fail(n, "%s: %q is not a whole number in plain digits", name, text)
	case value < least:
		r.fail(n, "%s: %d is less than %d", name, value, least)
	case value > most:
		r.fail(n, "%s: %d is more than %d", name, value, most)
	default:
		return value, true
	}
	return 0, false
}

// kindOf names what a node is, for the sentence "X is ...".
func kindOf(n *yaml.Node) string {
	switch {
	case n.Kind == yaml.MappingNode:
		return "a mapping"
	case n.Kind == yaml.SequenceNode:
		return "a list"
	case isNull(n):
		return "null"
	default:
		return fmt.Sprintf("%q", n.Value)
	}
}

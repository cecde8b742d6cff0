package matrix

import (
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/oomfleet/oomfleet/allocator"
)

// Bounds of one environment: far above any real use, far below what a process
// can be given.
const (
	maxVariables = 64
	maxEnvValue  = 4096
)

// pair is one variable of an environment. rest is what YAML cut off its value at
// a comma, piece by piece.
type pair struct {
	key, value *yaml.Node
	name, text string
	rest       []string
}

// environment reads one item of an env list: a mapping of variables, or the text
// of tables and overrides, KEY=VALUE pairs separated by single spaces.
func (r *reader) environment(n *yaml.Node, path string) (environment, bool) {
	before := len(r.problems)
	var pairs []pair
	switch {
	case isNull(n):
		r.fail(n, "%s has an empty item; write {} for the default settings", path)
	case n.Kind == yaml.MappingNode:
		pairs = r.variables(n, path)
	case n.Kind == yaml.ScalarNode:
		pairs = r.pairs(n, path)
	default:
		r.fail(n, "%s has a list as an item; an item is a mapping of variables, {} for the default settings", path)
	}
	if len(pairs) > maxVariables {
		r.fail(n, "%s: %d variables in one item; at most %d are set", path, len(pairs), maxVariables)
		return environment{}, false
	}
	vars := map[string]string{}
	for _, p := range pairs {
		if _, twice := vars[p.name]; twice {
			r.fail(p.key, "%s: %s is set twice in one item", path, p.name)
		}
		vars[p.name] = p.text
		if len(p.rest) == 0 {
			r.variable(p, path)
		}
	}
	r.bothNames(n, vars, path)
	return newEnvironment(vars), len(r.problems) == before
}

// variables reads a mapping. A value that YAML cut at a comma shows as keys
// without values; they are reported once, with the whole value in quotes.
func (r *reader) variables(n *yaml.Node, path string) []pair {
	var pairs []pair
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], follow(n.Content[i+1])
		name, ok := r.key(key)
		if !ok {
			continue
		}
		piece := name
		if !isNull(value) {
			piece += ":" + value.Value
		}
		cut := value.Kind == yaml.ScalarNode && isTail(piece) || isNull(value) && n.Style&yaml.FlowStyle != 0
		switch {
		case cut && len(pairs) > 0:
			last := &pairs[len(pairs)-1]
			last.rest = append(last.rest, piece)
		case isNull(value):
			r.fail(value, `%s: %s is null; leave it out for unset, write "" for set to the empty text`, path, name)
		case value.Kind == yaml.SequenceNode:
			r.listValue(value, path, name)
		case value.Kind == yaml.MappingNode:
			r.mappingValue(value, path, name)
		default:
			if text, ok := r.text(value, path+"."+name); ok {
				pairs = append(pairs, pair{key: key, value: value, name: name, text: text})
			}
		}
	}
	for _, p := range pairs {
		if len(p.rest) > 0 {
			r.fail(p.value, `%s: %s looks like the rest of %s, cut off at the comma; quote the whole: %s: "%s"`,
				path, strings.Join(p.rest, ","), p.name, p.name, whole(p.text, p.rest))
		}
	}
	return pairs
}

// withoutTails returns a list of environments without the items that are only
// the rest of the item before, cut off at a comma, as in [A=b:1,c:2]. Each run of
// them is one problem that shows the whole in quotes. It returns nil when nothing
// else was in the list.
func (r *reader) withoutTails(n *yaml.Node, path string) *yaml.Node {
	if n = follow(n); n.Kind != yaml.SequenceNode {
		return n
	}
	kept := *n
	kept.Content = nil
	for i := 0; i < len(n.Content); i++ {
		head := follow(n.Content[i])
		pieces, first := []string{head.Value}, i+1
		for head.Kind == yaml.ScalarNode && i+1 < len(n.Content) && isTail(n.Content[i+1].Value) {
			i++
			pieces = append(pieces, n.Content[i].Value)
		}
		if first <= i {
			r.fail(n.Content[first], `%s: %s looks like the rest of the item before, cut off at the comma; quote the whole: "%s"`,
				path, n.Content[first].Value, strings.Join(pieces, ","))
			continue
		}
		kept.Content = append(kept.Content, n.Content[i])
	}
	if len(kept.Content) == 0 && len(n.Content) > 0 {
		return nil
	}
	return &kept
}

// pairs reads KEY=VALUE pairs out of one text.
func (r *reader) pairs(n *yaml.Node, path string) []pair {
	text, ok := r.text(n, path)
	if !ok {
		return nil
	}
	if strings.TrimSpace(text) == "" {
		r.fail(n, "%s has an empty item; write {} for the default settings", path)
		return nil
	}
	if workspaceForm.MatchString(text) {
		r.fail(n, `%s: %q names no variable; write "%s=%s"`, path, text, workspaceConf, text)
		return nil
	}
	if isTail(text) {
		r.fail(n, `%s: %q names no variable; write "%s=%s"`, path, text, allocator.EnvConf, text)
		return nil
	}
	var pairs []pair
	for _, part := range strings.Split(text, " ") {
		name, value, ok := strings.Cut(part, "=")
		if !ok {
			r.fail(n, "%s: %q is not KEY=VALUE; an item is a mapping, or KEY=VALUE pairs with single spaces between them", path, part)
			return nil
		}
		pairs = append(pairs, pair{key: n, value: n, name: name, text: value})
	}
	return pairs
}

// listValue reports a list in the place of a value: one value cut at its commas,
// or several settings that need an item each.
func (r *reader) listValue(n *yaml.Node, path, name string) {
	parts := make([]string, 0, len(n.Content))
	for _, item := range n.Content {
		if item = follow(item); item.Kind == yaml.ScalarNode {
			parts = append(parts, item.Value)
		}
	}
	if slices.ContainsFunc(parts[min(1, len(parts)):], isTail) {
		r.fail(n, `%s.%s: the commas cut this value into a list; quote the whole: %s: "%s"`, path, name, name, strings.Join(parts, ","))
		return
	}
	r.fail(n, `%s.%s is a list; write one item of %s for each value, %s: "%s" and so on, or quote the whole if it is one value`,
		path, name, path, name, strings.Join(parts[:min(1, len(parts))], ""))
}

func (r *reader) mappingValue(n *yaml.Node, path, name string) {
	var parts []string
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := follow(n.Content[i]), follow(n.Content[i+1])
		part := key.Value
		if !isNull(value) {
			part += ":" + value.Value
		}
		parts = append(parts, part)
	}
	r.fail(n, `%s.%s is a mapping; a value is text, written without a space after the colon: %s: "%s"`, path, name, name, strings.Join(parts, ","))
}

// workspaceForm is what cuBLAS reads: :SIZE:COUNT, once or more.
var workspaceForm = regexp.MustCompile(`^(:[0-9]+:[0-9]+)+$`)

// isTail reports whether a text can only be the rest of an allocator setting:
// one of its options with a value.
func isTail(text string) bool {
	at := strings.IndexAny(text, ":=")
	return at > 0 && slices.Contains(allocator.Keys(), strings.TrimSpace(text[:at]))
}

// whole puts the pieces of a value together again. Workspaces follow one
// another without a comma.
func whole(head string, rest []string) string {
	pieces := append([]string{head}, rest...)
	if slices.ContainsFunc(pieces, func(piece string) bool { return !workspaceForm.MatchString(piece) }) {
		return strings.Join(pieces, ",")
	}
	return strings.Join(pieces, "")
}

var variableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// variable checks one variable: its name, who owns it, and its value.
func (r *reader) variable(p pair, path string) {
	name := path + "." + p.name
	if !variableName.MatchString(p.name) {
		r.fail(p.key, "%s: %q is no name for a variable; names have letters, digits and _ and do not begin with a digit", path, p.name)
		return
	}
	if reason := owner(p.name); reason != "" {
		r.fail(p.key, "%s: %s cannot be an axis: %s", path, p.name, reason)
		return
	}
	switch {
	case strings.ContainsAny(p.text, "\n\r"):
		r.fail(p.value, "%s has a line break in its value; write it on one line", name)
	case strings.ContainsFunc(p.text, func(c rune) bool { return isControl(c) && c != '\t' }):
		r.fail(p.value, "%s has a NUL or another control character in its value", name)
	case len(p.text) > maxEnvValue:
		r.fail(p.value, "%s has %d bytes in its value; at most %d are set", name, len(p.text), maxEnvValue)
	case p.name == allocator.EnvConf || p.name == allocator.EnvConfNew:
		r.allocatorSettings(p, name)
	case p.name == workspaceConf && !workspaceForm.MatchString(p.text):
		r.fail(p.value, "%s: %q is not of the form :SIZE:COUNT, repeated as needed; torch would warn and use its default%s",
			name, p.text, workspaceCure(p.text))
	}
}

// workspaceConf is the variable that sizes cuBLAS's own memory.
const workspaceConf = "CUBLAS_WORKSPACE_CONFIG"

func workspaceCure(text string) string {
	if workspaceForm.MatchString(":" + text) {
		return `; write ":` + text + `"`
	}
	return ""
}

// bothNames checks the two names of the allocator's variable: some versions of
// torch read one, some the other, so two values would mean two settings.
func (r *reader) bothNames(n *yaml.Node, vars map[string]string, path string) {
	old, oldSet := vars[allocator.EnvConf]
	fresh, freshSet := vars[allocator.EnvConfNew]
	switch {
	case oldSet && freshSet && old != fresh:
		r.fail(n, "%s: %s and %s are set to different values; set both to the same one, or one of them", path, allocator.EnvConf, allocator.EnvConfNew)
	case freshSet && !oldSet:
		r.notice(n, "%s: some versions of torch ignore %s on CUDA; set %s to the same value beside it", path, allocator.EnvConfNew, allocator.EnvConf)
	}
}

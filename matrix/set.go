package matrix

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"
)

// override puts the values of --set into the tree, before anything is checked:
// what comes out is read like any file. Problems with a value carry the
// override's text in the place of a line.
func (r *reader) override(root *yaml.Node, sets []string) {
	if len(sets) == 0 || root.Kind != yaml.MappingNode {
		return
	}
	r.origin = map[*yaml.Node]string{}
	replaced := false // the axis env: the first override replaces, later ones append
	for _, set := range sets {
		path, text, ok := strings.Cut(set, "=")
		reason := "an override is path=value, for example axes.seq_len=128,256"
		if ok {
			reason = r.overrideOne(root, path, text, replaced)
		}
		replaced = replaced || path == "axes.env"
		if reason != "" {
			r.problems = append(r.problems, Problem{Message: reason, Excerpt: excerptOf(set)})
		}
	}
}

// overrideOne sets one path and returns why it cannot, "" when it is done.
func (r *reader) overrideOne(root *yaml.Node, path, text string, appendEnv bool) string {
	set := path + "=" + text
	value, reason := r.overrideValue(path, text, set)
	if reason != "" {
		return reason
	}
	keys := strings.Split(path, ".")
	last := len(keys) - 1
	parent := r.descend(root, keys[:last], set)
	if parent == nil {
		return fmt.Sprintf("the file has no mapping under %s to set a key in", strings.Join(keys[:last], "."))
	}
	if path == "axes.env" && appendEnv {
		list := lookup(parent, "env")
		list.Content = append(list.Content, value.Content...)
		return ""
	}
	r.put(parent, keys[last], value, set)
	return ""
}

// excerptOf shows an override below a problem with it.
func excerptOf(set string) string { return "      | --set " + set }

// overrideValue makes the node that a path is set to: a list for an axis, no
// rules for exclude and include, and plain text for everything else.
func (r *reader) overrideValue(path, text, set string) (*yaml.Node, string) {
	axis, isAxis := strings.CutPrefix(path, "axes.")
	switch {
	case path == "axes.env":
		return r.overrideEnv(text, set), ""
	case strings.HasPrefix(path, "env.") || strings.HasPrefix(path, "axes.env."):
		name := path[strings.LastIndexByte(path, '.')+1:]
		return nil, fmt.Sprintf("%s cannot be set by itself; an environment is set whole: axes.env=%s=%s", path, name, text)
	case isAxis && slices.Contains(keysOf(reflect.TypeFor[FileAxes]()), axis):
		list := r.made(yaml.SequenceNode, "", set)
		if text != "" {
			for part := range strings.SplitSeq(text, ",") {
				list.Content = append(list.Content, r.made(yaml.ScalarNode, strings.TrimSpace(part), set))
			}
		}
		return list, ""
	case path == "exclude" || path == "include":
		if text != "[]" {
			return nil, path + " can only be emptied here: " + path + "=[]; rules are written in the file"
		}
		return r.made(yaml.SequenceNode, "", set), ""
	case strings.HasPrefix(path, "workload.params.") && strings.Count(path, ".") == 2 || slices.Contains(settable(), path):
		return r.made(yaml.ScalarNode, text, set), ""
	}
	known := append(settable(), "workload.params.NAME", "exclude", "include")
	if word, ok := Nearest(path, known); ok {
		return nil, fmt.Sprintf("there is nothing called %q to set; did you mean %q?", path, word)
	}
	return nil, fmt.Sprintf("there is nothing called %q to set; known here: %s", path, strings.Join(known, ", "))
}

// overrideEnv makes a list of one environment. Commas belong to the value, the
// empty text is the default settings.
func (r *reader) overrideEnv(text, set string) *yaml.Node {
	list := r.made(yaml.SequenceNode, "", set)
	item := r.made(yaml.ScalarNode, text, set)
	if text == "" || text == "{}" {
		item = r.made(yaml.MappingNode, "", set)
	}
	list.Content = []*yaml.Node{item}
	return list
}

// settable lists the paths of single values and axes, in the order of File.
func settable() []string {
	var paths []string
	shape := reflect.TypeFor[File]()
	for i, key := range keysOf(shape) {
		switch field := shape.Field(i).Type; {
		case field.Kind() == reflect.String:
			paths = append(paths, key)
		case field.Kind() == reflect.Struct:
			for _, inner := range keysOf(field) {
				if key+"."+inner != "workload.params" {
					paths = append(paths, key+"."+inner)
				}
			}
		}
	}
	return paths
}

func (r *reader) made(kind yaml.Kind, value, set string) *yaml.Node {
	n := &yaml.Node{Kind: kind, Value: value}
	if kind == yaml.ScalarNode {
		n.Tag = "!!str"
	}
	r.origin[n] = set
	return n
}

// descend follows keys through mappings and makes those that are not there. It
// returns nil where something else than a mapping is in the way.
func (r *reader) descend(n *yaml.Node, keys []string, set string) *yaml.Node {
	for _, key := range keys {
		next := lookup(n, key)
		if next == nil || isNull(next) {
			next = r.made(yaml.MappingNode, "", set)
			r.put(n, key, next, set)
		}
		if n = follow(next); n.Kind != yaml.MappingNode {
			return nil
		}
	}
	return n
}

// put sets a key of a mapping: in the place where it is, or as a new one.
func (r *reader) put(n *yaml.Node, key string, value *yaml.Node, set string) {
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == key {
			n.Content[i+1] = value
			return
		}
	}
	n.Content = append(n.Content, r.made(yaml.ScalarNode, key, set), value)
}

func lookup(n *yaml.Node, key string) *yaml.Node {
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == key {
			return n.Content[i+1]
		}
	}
	return nil
}

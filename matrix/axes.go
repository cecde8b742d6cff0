package matrix

import (
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"
)

// Installed stands for what the registered agents have: the GPU model in
// target.gpu, the driver versions in the axis driver.
const Installed = "installed"

// entry is one value and the place where it is written.
type entry[T any] struct {
	at    *yaml.Node
	value T
}

// environment is a set of variables with a text that is equal exactly for equal
// sets; the text orders environments as proto.Cell does.
type environment struct {
	vars map[string]string
	key  string
}

func newEnvironment(vars map[string]string) environment {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(vars)) {
		b.WriteString(name + "=" + vars[name] + "\x00") // values hold no NUL
	}
	return environment{vars: vars, key: b.String()}
}

// keyOf is what makes two values of an axis the same.
func keyOf[T any](value T) any {
	if env, ok := any(value).(environment); ok {
		return env.key
	}
	return value
}

// selection is the values that the axes section or a rule gives for each axis.
// A nil list is an axis that was left out.
type selection struct {
	at     *yaml.Node
	seqLen []entry[int]
	batch  []entry[int]
	chunk  []entry[int]
	driver []entry[string]
	env    []entry[environment]
	// broken names the axes that could not be read whole: what is judged by
	// them would be a false alarm.
	broken map[string]bool
}

// axisNames are the keys that the axes section and rules share.
func axisNames() []string { return keysOf(reflect.TypeFor[FileAxes]()) }

// axes reads the axes section and fills in what it leaves out.
func (r *reader) axes(n *yaml.Node) selection {
	before := len(r.problems)
	s, ok := r.section(n, "axes", reflect.TypeFor[FileAxes]())
	if !ok {
		return selection{}
	}
	axes := r.selection(s, before)
	if s.value("seq_len") == nil {
		r.fail(s.node, "axes.seq_len is missing: the sequence lengths to try, for example [128, 256]")
		axes.broken["seq_len"] = true
	}
	if s.value("batch") == nil {
		axes.batch = []entry[int]{{s.node, 1}}
	}
	if s.value("chunk_size") == nil {
		axes.chunk = []entry[int]{{s.node, 0}}
	}
	if s.value("driver") == nil {
		axes.driver = []entry[string]{{s.node, Installed}}
	}
	if s.value("env") == nil {
		axes.env = []entry[environment]{{s.node, newEnvironment(map[string]string{})}}
	}
	return axes
}

// selection reads the axes of a section. before is the number of problems before
// the section's keys were read: a misspelt key may be any axis.
func (r *reader) selection(s section, before int) selection {
	sel := selection{at: s.node, broken: map[string]bool{}}
	for _, axis := range axisNames() {
		sel.broken[axis] = len(r.problems) > before
	}
	read := func(axis string, into func(name string)) {
		before := len(r.problems)
		into(s.name(axis))
		sel.broken[axis] = sel.broken[axis] || len(r.problems) > before
	}
	read("seq_len", func(name string) {
		sel.seqLen = distinct(r, name, list(r, s, "seq_len", func(n *yaml.Node, name string) (int, bool) {
			return r.number(n, name, 1, MaxSeqLen)
		}))
	})
	read("batch", func(name string) {
		sel.batch = distinct(r, name, list(r, s, "batch", func(n *yaml.Node, name string) (int, bool) {
			return r.number(n, name, 1, MaxBatch)
		}))
	})
	read("chunk_size", func(name string) {
		sel.chunk = distinct(r, name, list(r, s, "chunk_size", r.chunkSize))
	})
	read("driver", func(name string) {
		sel.driver = distinct(r, name, list(r, s, "driver", r.driver))
	})
	read("env", func(name string) {
		if n := s.value("env"); n != nil {
			s.values["env"] = r.withoutTails(n, name)
		}
		sel.env = distinct(r, name, list(r, s, "env", r.environment))
	})
	return sel
}

// list reads one value or a list of values. It returns nil for an unset key and
// for one whose values are all bad; an empty list is a problem.
func list[T any](r *reader, s section, key string, read func(*yaml.Node, string) (T, bool)) []entry[T] {
	n := s.value(key)
	if n == nil {
		return nil
	}
	n = follow(n)
	name := s.name(key)
	items := []*yaml.Node{n}
	switch {
	case isNull(n):
		r.fail(n, "%s is null; remove the key to leave it unset, or give it values", name)
		return nil
	case n.Kind == yaml.SequenceNode && len(n.Content) == 0:
		r.fail(n, "%s is an empty list, so there would be no cell; remove the key to leave it unset", name)
		return nil
	case n.Kind == yaml.SequenceNode:
		items = n.Content
	}
	var entries []entry[T]
	for _, item := range items {
		item = follow(item)
		if isNull(item) && key != "chunk_size" && key != "env" {
			r.fail(item, "%s has an empty item; give it a value or remove it", name)
			continue
		}
		if value, ok := read(item, name); ok {
			entries = append(entries, entry[T]{item, value})
		}
	}
	return entries
}

// distinct drops repeated values, with a notice for each.
func distinct[T any](r *reader, name string, entries []entry[T]) []entry[T] {
	seen := map[any]*yaml.Node{}
	kept := entries[:0:0]
	for _, e := range entries {
		if first, ok := seen[keyOf(e.value)]; ok {
			r.notice(e.at, "%s: this value is there already%s and counts once", name, onLine(first))
			continue
		}
		seen[keyOf(e.value)] = e.at
		kept = append(kept, e)
	}
	return kept
}

// onLine names a node's line, where it has one: overrides have none.
func onLine(n *yaml.Node) string {
	if n.Line == 0 {
		return ""
	}
	return fmt.Sprintf(" (line %d)", n.Line)
}

func (r *reader) chunkSize(n *yaml.Node, name string) (int, bool) {
	if isNull(n) || n.Value == "none" || n.Value == "None" {
		r.fail(n, "%s: write 0 for no chunking", name)
		return 0, false
	}
	return r.number(n, name, 0, MaxChunkSize)
}

// driverVersion is a version as NVML prints it, or one that is derived from it.
var driverVersion = regexp.MustCompile(`^[0-9][A-Za-z0-9._+-]{0,63}$`)

// driver reads a version as text: 580.10 and 580.1 are two versions.
func (r *reader) driver(n *yaml.Node, name string) (string, bool) {
	text, ok := r.word(n, name)
	if !ok || text == Installed || driverVersion.MatchString(text) {
		return text, ok
	}
	r.fail(n, "%s: %q is no driver version, which looks like 580.159.04, nor the word installed%s",
		name, text, suggestion(text, []string{Installed}))
	return "", false
}

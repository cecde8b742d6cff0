package matrix

import (
	"fmt"
	"reflect"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/oomfleet/oomfleet/proto"
)

// maxRules bounds exclude and include, each.
const maxRules = 1000

// rules reads the list of rules under a key.
func (r *reader) rules(s section, key string) []selection {
	n := s.value(key)
	if n == nil {
		return nil
	}
	n = follow(n)
	switch {
	case isNull(n):
		r.fail(n, "%s is null; remove the key, or write [] for no rules", key)
		return nil
	case n.Kind != yaml.SequenceNode:
		r.fail(n, "%s is %s; it needs a list of rules, each a mapping of axes", key, kindOf(n))
		return nil
	case len(n.Content) > maxRules:
		r.fail(n, "%s has %d rules; at most %d are read", key, len(n.Content), maxRules)
		return nil
	}
	var rules []selection
	for i, item := range n.Content {
		path := fmt.Sprintf("%s[%d]", key, i)
		before := len(r.problems)
		rule, ok := r.section(item, path, reflect.TypeFor[FileRule]())
		if !ok {
			continue
		}
		if len(rule.node.Content) == 0 {
			r.fail(rule.node, "%s names no axis, so it would mean every cell; give it at least one", path)
			continue
		}
		rules = append(rules, r.selection(rule, before))
	}
	return rules
}

// filter is an exclusion that is quick to ask. A nil set holds every value.
type filter struct {
	seqLen, batch, chunk map[int]bool
	driver, env          map[string]bool
}

func newFilter(rule selection) filter {
	return filter{
		seqLen: setOf(rule.seqLen, func(v int) int { return v }),
		batch:  setOf(rule.batch, func(v int) int { return v }),
		chunk:  setOf(rule.chunk, func(v int) int { return v }),
		driver: setOf(rule.driver, func(v string) string { return v }),
		env:    setOf(rule.env, func(v environment) string { return v.key }),
	}
}

func setOf[T any, K comparable](entries []entry[T], key func(T) K) map[K]bool {
	if entries == nil {
		return nil
	}
	set := make(map[K]bool, len(entries))
	for _, e := range entries {
		set[key(e.value)] = true
	}
	return set
}

func (f filter) matches(c proto.Cell, envKey string) bool {
	return (f.seqLen == nil || f.seqLen[c.SeqLen]) && (f.batch == nil || f.batch[c.Batch]) &&
		(f.chunk == nil || f.chunk[c.ChunkSize]) && (f.driver == nil || f.driver[c.Driver]) && (f.env == nil || f.env[envKey])
}

// judgeExclude reports a rule that matches nothing, and gives notice of values
// in it that no cell has: both are most likely typing mistakes. A rule matches
// exactly when it has a value of every axis that it names.
func (r *reader) judgeExclude(rule, axes selection) {
	judges := map[string]func(){
		"seq_len":    func() { judge(r, "seq_len", rule.seqLen, axes.seqLen) },
		"batch":      func() { judge(r, "batch", rule.batch, axes.batch) },
		"chunk_size": func() { judge(r, "chunk_size", rule.chunk, axes.chunk) },
		"driver":     func() { judge(r, "driver", rule.driver, axes.driver) },
		"env":        func() { judge(r, "env", rule.env, axes.env) },
	}
	for _, axis := range axisNames() {
		if !rule.broken[axis] && !axes.broken[axis] {
			judges[axis]()
		}
	}
}

func judge[T any](r *reader, axis string, rule, have []entry[T]) {
	var unknown []entry[T]
	known := map[any]bool{}
	for _, e := range have {
		known[keyOf(e.value)] = true
	}
	for _, e := range rule {
		if !known[keyOf(e.value)] {
			unknown = append(unknown, e)
		}
	}
	switch {
	case len(unknown) == 0:
	case len(unknown) == len(rule):
		r.fail(unknown[0].at, "this rule matches no cell: %s has %s", axis, values(have))
	default:
		for _, e := range unknown {
			r.notice(e.at, "no cell has this %s: the axis has %s", axis, values(have))
		}
	}
}

// values lists an axis for a message, in the order of the file.
func values[T any](entries []entry[T]) string {
	const shown = 8
	var texts []string
	for _, e := range entries[:min(shown, len(entries))] {
		switch v := any(e.value).(type) {
		case environment:
			texts = append(texts, "{"+proto.EnvString(v.vars)+"}")
		default:
			texts = append(texts, fmt.Sprint(v))
		}
	}
	if extra := len(entries) - shown; extra > 0 {
		texts = append(texts, fmt.Sprintf("and %d more", extra))
	}
	return strings.Join(texts, ", ")
}

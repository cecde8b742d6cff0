package matrix

import (
	"errors"
	"slices"
	"strings"

	"github.com/oomfleet/oomfleet/allocator"
)

// allocatorSettings checks the text of an allocator variable as far as a runner
// would refuse it or read it as something else; package allocator knows the
// options. The text itself is passed on unchanged. An option that this build
// does not know is a notice: the agents' torch may know it.
func (r *reader) allocatorSettings(p pair, name string) {
	if strings.TrimSpace(p.text) == "" {
		return // set to the empty text: default settings
	}
	values := map[string]string{}
	large := "" // the other sizes' minimum depends on it
	var known []string
	for i, item := range splitOutsideBrackets(p.text) {
		if strings.TrimSpace(item) == "" {
			r.fail(p.value, "%s: item %d of %q is empty; torch refuses it or stops reading there", name, i+1, p.text)
			continue
		}
		option, value, ok := strings.Cut(withoutSpace(item), ":")
		switch {
		case !ok && strings.Contains(option, "="):
			r.fail(p.value, "%s: %q has an = where torch wants a colon: %s", name, item, strings.Replace(option, "=", ":", 1))
		case !ok:
			r.fail(p.value, "%s: %q is no option with a value; options look like expandable_segments:True", name, item)
		case option == "per_process_memory_fraction":
			r.fail(p.value, "%s: %s would set a second limit beside the quota, which is the fleet's to set", name, option)
		case !slices.Contains(allocator.Keys(), option):
			r.notice(p.value, "%s: the option %q is not known here and is passed on as it is%s", name, option, suggestion(option, allocator.Keys()))
		default:
			if _, twice := values[option]; twice {
				r.notice(p.value, "%s: %s is given twice; torch takes the last", name, option)
			}
			if option == "large_segment_size_mb" {
				large = "," + option + ":" + value
			}
			values[option] = value
			known = append(known, option+":"+value)
		}
	}
	for _, item := range known {
		r.option(p, name, item, large)
	}
	r.poorSettings(p, name, values)
}

// option checks the value of one option that is known.
func (r *reader) option(p pair, name, item, large string) {
	_, err := allocator.ParseSettings(item + large)
	if err == nil || errors.Is(err, allocator.ErrBackend) {
		return
	}
	if inner := errors.Unwrap(err); inner != nil {
		err = inner // without the text, which the excerpt shows
	}
	cure := ""
	option, value, _ := strings.Cut(item, ":")
	for _, word := range []string{"True", "False"} {
		if strings.EqualFold(value, word) {
			cure = "; write " + option + ":" + word
		}
	}
	r.fail(p.value, "%s: %v%s", name, err, cure)
}

// poorSettings gives notice of settings that torch accepts and that seldom do
// what their author means.
func (r *reader) poorSettings(p pair, name string, values map[string]string) {
	if values["expandable_segments"] == "True" && values["max_split_size_mb"] != "" {
		r.notice(p.value, "%s: expandable_segments together with max_split_size_mb can make reserved memory grow to the whole quota", name)
	}
	if values["backend"] == "cudaMallocAsync" {
		r.notice(p.value, "%s: cudaMallocAsync has no trace to predict from; its cells are bisected", name)
	}
	if values["max_split_size_mb"] == "20" {
		r.notice(p.value, "%s: older versions of torch want more than 20 for max_split_size_mb", name)
	}
}

// withoutSpace drops white space as torch does, inside words as well.
func withoutSpace(text string) string { return strings.Join(strings.Fields(text), "") }

// splitOutsideBrackets splits at the commas that are not inside [ ].
func splitOutsideBrackets(text string) []string {
	var items []string
	depth, from := 0, 0
	for i, c := range text {
		switch {
		case c == '[':
			depth++
		case c == ']':
			depth--
		case c == ',' && depth <= 0:
			items = append(items, text[from:i])
			from = i + 1
		}
	}
	return append(items, text[from:])
}

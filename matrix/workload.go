package matrix

import (
	"path"
	"reflect"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/oomfleet/oomfleet/proto"
)

// ESMFold is the name of the built-in workload.
const ESMFold = "esmfold"

// esmfoldModels, stemTypes and trunkTypes are the values of the ESMFold
// parameters; the defaults stand first.
func esmfoldModels() []string { return []string{"esmfold_v1", "esmfold_8b"} }
func stemTypes() []string     { return []string{"bfloat16", "float16", "float32"} }
func trunkTypes() []string    { return []string{"float32", "bfloat16", "float16"} }

// ownProgram is the form module:function, with dots in either.
var ownProgram = regexp.MustCompile(`^[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*(\.[A-Za-z_]\w*)*$`)

// maxParams and maxParamText bound what a user's own program is given.
const (
	maxParams    = 64
	maxParamText = 4096
)

// workload reads the program and its parameters. Parameters that are left out
// get their defaults here, so that a file which spells a default out names the
// same cells as one which does not.
func (r *reader) workload(n *yaml.Node) proto.Workload {
	s, ok := r.section(n, "workload", reflect.TypeFor[FileWorkload]())
	if !ok {
		return proto.Workload{}
	}
	at := s.value("name")
	if at == nil {
		r.fail(s.node, "workload.name is missing: write esmfold, or module:function for a program of your own")
		return proto.Workload{}
	}
	name, ok := r.word(at, "workload.name")
	switch {
	case !ok:
		return proto.Workload{}
	case name == ESMFold:
		return proto.Workload{Name: name, Params: r.esmfold(s.value("params"))}
	case ownProgram.MatchString(name):
		return proto.Workload{Name: name, Params: r.freeParams(s.value("params"))}
	}
	r.fail(follow(at), "workload.name: %q is neither esmfold nor module:function%s", name, suggestion(name, []string{ESMFold}))
	return proto.Workload{}
}

func (r *reader) esmfold(n *yaml.Node) map[string]string {
	params := map[string]string{
		"model": esmfoldModels()[0], "weights": "random", "stem": stemTypes()[0], "trunk": trunkTypes()[0], "recycles": "1",
	}
	if n == nil {
		return params
	}
	s, ok := r.section(n, "workload.params", reflect.TypeFor[FileESMFold]())
	if !ok {
		return params
	}
	for _, p := range []struct {
		key string
		set []string
	}{{"model", esmfoldModels()}, {"stem", stemTypes()}, {"trunk", trunkTypes()}} {
		if at := s.value(p.key); at != nil {
			if text, ok := r.choice(at, s.name(p.key), p.set); ok {
				params[p.key] = text
			}
		}
	}
	if at := s.value("recycles"); at != nil {
		if count, ok := r.number(at, s.name("recycles"), 0, MaxRecycles); ok {
			params["recycles"] = strconv.Itoa(count)
		}
	}
	if at := s.value("weights"); at != nil {
		if text, ok := r.word(at, s.name("weights")); ok {
			params["weights"] = r.weights(follow(at), text)
		}
	}
	return params
}

// weights reads "random" or the path of a checkpoint. The path is cleaned, so
// that two spellings of one path are one cell.
func (r *reader) weights(at *yaml.Node, text string) string {
	switch {
	case text == "random":
	case !path.IsAbs(text):
		r.fail(at, "workload.params.weights: %q is neither random nor an absolute path; agents have no working directory of yours", text)
	case strings.ContainsFunc(text, isControl):
		r.fail(at, "workload.params.weights: a control character in the path")
	}
	if path.IsAbs(text) {
		return path.Clean(text)
	}
	return text
}

// freeParams reads the parameters of a user's own program: any names, each with
// one plain value that is passed on as text.
func (r *reader) freeParams(n *yaml.Node) map[string]string {
	if n == nil {
		return nil
	}
	n = follow(n)
	if !r.mapping(n, "workload.params") {
		return nil
	}
	if len(n.Content)/2 > maxParams {
		r.fail(n, "workload.params has %d keys; at most %d are passed on", len(n.Content)/2, maxParams)
		return nil
	}
	params := map[string]string{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, ok := r.key(n.Content[i])
		if !ok {
			continue
		}
		text, ok := r.text(n.Content[i+1], "workload.params."+key)
		_, twice := params[key]
		switch {
		case twice:
			r.fail(n.Content[i], "workload.params.%s is set twice", key)
		case key == "" || strings.ContainsFunc(key, isControl):
			r.fail(n.Content[i], "workload.params: %q is no name for a parameter", key)
		case strings.ContainsRune(text, 0) || len(text) > maxParamText:
			r.fail(n.Content[i+1], "workload.params.%s: a value has no NUL and at most %d bytes", key, maxParamText)
		case ok:
			params[key] = text
		}
	}
	if len(params) == 0 {
		return nil
	}
	return params
}

func isControl(c rune) bool { return c < ' ' || c == 0x7f }

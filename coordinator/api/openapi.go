package api

import (
	"net/http"
	"reflect"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/oomfleet/oomfleet/coordinator/diff"
	"github.com/oomfleet/oomfleet/matrix"
)

// plain is a path that answers with something else than JSON, and so is served
// without huma.
type plain struct {
	id, path, summary string
	mediaType         string
	inPath            []string // parameters
}

// document adds a plain path to the OpenAPI document.
func document(h huma.API, p plain) {
	op := &huma.Operation{OperationID: p.id, Method: http.MethodGet, Path: p.path, Summary: p.summary,
		Responses: map[string]*huma.Response{"200": {Description: "OK", Content: map[string]*huma.MediaType{p.mediaType: {}}}}}
	for _, name := range p.inPath {
		op.Parameters = append(op.Parameters, &huma.Param{Name: name, In: "path", Required: true, Schema: &huma.Schema{Type: huma.TypeString}})
	}
	h.OpenAPI().AddOperation(op)
}

// documentProblems says of every operation that its errors are Problems.
func documentProblems(h huma.API) {
	schema := h.OpenAPI().Components.Schemas.Schema(reflect.TypeFor[Problem](), true, "Problem")
	for _, item := range h.OpenAPI().Paths {
		for _, op := range operationsOf(item) {
			op.Responses["default"] = &huma.Response{Description: "Error", Content: map[string]*huma.MediaType{"application/json": {Schema: schema}}}
		}
	}
}

// operationsOf are those of one path.
func operationsOf(item *huma.PathItem) []*huma.Operation {
	return slices.DeleteFunc([]*huma.Operation{item.Get, item.Post, item.Put, item.Patch, item.Delete}, func(op *huma.Operation) bool { return op == nil })
}

// schemaName keeps types of one name apart: the two kinds of problem, and the
// parts of a comparison, which are cells, groups and stacks too.
func schemaName(t reflect.Type, hint string) string {
	if t == reflect.TypeFor[matrix.Problem]() {
		return "MatrixProblem"
	}
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t.Name() != "" && t.PkgPath() == reflect.TypeFor[diff.Document]().PkgPath() {
		return "Diff" + t.Name()
	}
	return huma.DefaultSchemaNamer(t, hint)
}

// ours makes a Problem of huma's own error answers: a parameter that is not a
// number, a body that is no JSON.
func ours(ctx huma.Context, _ string, v any) (any, error) {
	model, ok := v.(*huma.ErrorModel)
	if !ok {
		return v, nil
	}
	ctx.SetHeader("Content-Type", "application/json")
	message := []string{model.Detail}
	for _, e := range model.Errors {
		message = append(message, strings.TrimPrefix(e.Location+": "+e.Message, ": "))
	}
	return problem(model.Status, CodeBadRequest, strings.Join(message, "; ")), nil
}

package lint

import (
	"go/ast"
	"slices"
	"strings"
	"testing"
	"unicode"
)

// calls returns every call of one of the named functions of an imported package.
func calls(s *source, importPath string, names ...string) []*ast.CallExpr {
	local := s.local()
	var found []*ast.CallExpr
	ast.Inspect(s.syntax, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		sel, ok := call.Fun.(*ast.SelectorExpr)
		if !ok || !slices.Contains(names, sel.Sel.Name) {
			return true
		}
		if x, ok := sel.X.(*ast.Ident); ok && x.Obj == nil && local[x.Name] == importPath {
			found = append(found, call)
		}
		return true
	})
	return found
}

func TestNoInit(t *testing.T) {
	var found []finding
	load(t).each(func(p *pkg, s *source) {
		for _, d := range s.syntax.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Recv == nil && f.Name.Name == "init" {
				found = append(found, finding{s.path, s.where(f), "an init function runs behind its reader's back"})
			}
		}
	})
	judge(t, ruleInit, found)
}

func TestNoSleep(t *testing.T) {
	var found []finding
	load(t).each(func(p *pkg, s *source) {
		for _, call := range calls(s, "time", "Sleep") {
			found = append(found, finding{s.path, s.where(call), "wait on an event, a timer with a context, or a virtual clock"})
		}
	})
	judge(t, ruleSleep, found)
}

func TestNoBackgroundContext(t *testing.T) {
	var found []finding
	load(t).each(func(p *pkg, s *source) {
		if s.test || p.main() || p.helper() {
			return
		}
		for _, call := range calls(s, "context", "Background", "TODO") {
			found = append(found, finding{s.path, s.where(call), "take the caller's context, or context.WithoutCancel of it"})
		}
	})
	judge(t, ruleBackground, found)
}

// TestNoSilentSkip: a test that cannot run here fails, or is no test of this
// project. rapid's Skip discards one drawn value and is something else.
func TestNoSilentSkip(t *testing.T) {
	var found []finding
	load(t).each(func(p *pkg, s *source) {
		if !s.test && !p.helper() {
			return
		}
		usesRapid := imports([]*source{s})["pgregory.net/rapid"] != ""
		ast.Inspect(s.syntax, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			sel, ok := call.Fun.(*ast.SelectorExpr)
			if !ok || !slices.Contains([]string{"Skip", "Skipf", "SkipNow"}, sel.Sel.Name) {
				return true
			}
			if x, ok := sel.X.(*ast.Ident); ok && !usesRapid && slices.Contains([]string{"t", "b", "tb", "f"}, x.Name) {
				found = append(found, finding{s.path, s.where(call), "a skipped test proves nothing and nobody notices"})
			}
			return true
		})
	})
	judge(t, ruleSkip, found)
}

// forbiddenImports are packages with a better one in their place.
var forbiddenImports = map[string]string{
	"log":       "log/slog, injected",
	"io/ioutil": "io and os",
	"expvar":    "the injected Prometheus registry",
	"plugin":    "nothing",
	"unsafe":    "nothing; only the NVML binding has a reason",
}

func TestForbiddenImports(t *testing.T) {
	var found []finding
	load(t).each(func(p *pkg, s *source) {
		for name := range imports([]*source{s}) {
			if instead, forbidden := forbiddenImports[name]; forbidden {
				found = append(found, finding{s.path + " " + name, s.path, "imports " + name + "; use " + instead})
			}
			if name == "testing" && !s.test && !p.helper() {
				found = append(found, finding{s.path + " testing", s.path, "product code imports testing"})
			}
		}
	})
	judge(t, ruleImport, found)
}

func TestNoPrint(t *testing.T) {
	var found []finding
	load(t).each(func(p *pkg, s *source) {
		if s.test || p.helper() {
			return
		}
		for _, call := range calls(s, "fmt", "Print", "Printf", "Println") {
			found = append(found, finding{s.path, s.where(call), "stdout belongs to the command's one document; write to an injected writer"})
		}
	})
	judge(t, rulePrint, found)
}

func TestErrorTexts(t *testing.T) {
	var found []finding
	load(t).each(func(p *pkg, s *source) {
		if s.test || p.helper() {
			return
		}
		for _, call := range append(calls(s, "fmt", "Errorf"), calls(s, "errors", "New")...) {
			text := strings.ToLower(literal(call.Args[0]))
			if strings.HasPrefix(text, "failed to") || strings.Contains(text, ": failed to") {
				found = append(found, finding{s.path, s.where(call), `say the operation, not "failed to"`})
			}
			if strings.HasSuffix(text, ".") || strings.HasSuffix(text, "\n") {
				found = append(found, finding{s.path, s.where(call), "an error is wrapped by others; no full stop or new line at its end"})
			}
		}
	})
	judge(t, ruleErrorText, found)
}

// TestLogMessages: what is logged is found by its constant words; what changes
// goes into attributes.
func TestLogMessages(t *testing.T) {
	position := map[string]int{
		"Debug": 0, "Info": 0, "Warn": 0, "Error": 0,
		"DebugContext": 1, "InfoContext": 1, "WarnContext": 1, "ErrorContext": 1, "Log": 2, "LogAttrs": 2,
	}
	var found []finding
	load(t).each(func(p *pkg, s *source) {
		if s.test || p.helper() {
			return
		}
		local := s.local()
		ast.Inspect(s.syntax, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			sel, ok := call.Fun.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			at, logs := position[sel.Sel.Name]
			if x, ok := sel.X.(*ast.Ident); ok && local[x.Name] != "" && local[x.Name] != "log/slog" || !logs || len(call.Args) <= at {
				return true
			}
			if x, ok := call.Args[at].(*ast.Ident); ok && x.Name == "ctx" {
				return true // another kind of Info
			}
			if what := badMessage(literal(call.Args[at])); what != "" {
				found = append(found, finding{s.path, s.where(call), what})
			}
			return true
		})
	})
	judge(t, ruleLog, found)
}

func badMessage(text string) string {
	switch {
	case text == "":
		return "a log message is a constant text"
	case strings.Contains(text, "%"):
		return "a log message interpolates nothing; use attributes"
	case unicode.IsUpper(rune(text[0])) && (len(text) == 1 || unicode.IsLower(rune(text[1]))):
		return "a log message starts in lower case"
	case strings.HasSuffix(text, "."):
		return "a log message has no full stop"
	}
	return ""
}

// literal is the text of a string literal or of a sum of literals; else empty.
func literal(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.BasicLit:
		return strings.Trim(e.Value, "`\"")
	case *ast.BinaryExpr:
		if l, r := literal(e.X), literal(e.Y); l != "" && r != "" {
			return l + r
		}
	}
	return ""
}

// TestLeakChecks: a package that starts goroutines looks for leaked ones.
func TestLeakChecks(t *testing.T) {
	var found []finding
	for _, p := range load(t).packages {
		if p.main() || p.helper() {
			continue // a program ends with its process
		}
		var starts string
		for _, s := range p.product() {
			ast.Inspect(s.syntax, func(n ast.Node) bool {
				if g, ok := n.(*ast.GoStmt); ok && starts == "" {
					starts = s.where(g)
				}
				return true
			})
		}
		if starts != "" && imports(p.tests())["go.uber.org/goleak"] == "" {
			found = append(found, finding{p.dir, starts, "starts a goroutine, and no test of the package looks for leaks (goleak)"})
		}
	}
	judge(t, ruleLeakCheck, found)
}

func TestPackageNames(t *testing.T) {
	bad := []string{"util", "utils", "common", "types", "pkg", "helpers", "misc", "base", "lib", "models", "interfaces"}
	var found []finding
	for _, p := range load(t).packages {
		for _, part := range strings.Split(p.dir, "/") {
			if slices.Contains(bad, part) {
				found = append(found, finding{p.dir, p.dir, "a package is named after what it holds"})
			}
		}
		for _, s := range p.product() {
			if name := s.syntax.Name.Name; slices.Contains(bad, name) || strings.ContainsAny(name, "_ABCDEFGHIJKLMNOPQRSTUVWXYZ") {
				found = append(found, finding{p.dir, s.path, "a package is one lower-case noun"})
			}
		}
	}
	judge(t, ruleName, found)
}

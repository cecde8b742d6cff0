package lint

import (
	"fmt"
	"go/ast"
	"testing"
)

const (
	maxFileLines  = 400
	maxFuncLines  = 80
	maxFields     = 12
	maxParameters = 4
)

func TestFileLines(t *testing.T) {
	var found []finding
	load(t).each(func(p *pkg, s *source) {
		if n := s.lines(); n > maxFileLines && !s.test {
			found = append(found, finding{s.path, s.path, fmt.Sprintf("%d lines; %d is the end", n, maxFileLines)})
		}
	})
	judge(t, ruleFileLines, found)
}

func TestFuncLines(t *testing.T) {
	var found []finding
	load(t).each(func(p *pkg, s *source) {
		for _, d := range s.syntax.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok || f.Body == nil {
				continue
			}
			if n := codeLines(s, f); n > maxFuncLines {
				found = append(found, finding{p.dir + " " + funcName(f), s.where(f), fmt.Sprintf("%d lines; %d is the end", n, maxFuncLines)})
			}
		}
	})
	judge(t, ruleFuncLines, found)
}

// codeLines are a function's lines without its tables: what stands between the
// braces of a composite literal is data.
func codeLines(s *source, f *ast.FuncDecl) int {
	n := s.line(f.End()) - s.line(f.Pos()) + 1
	ast.Inspect(f.Body, func(node ast.Node) bool {
		table, ok := node.(*ast.CompositeLit)
		if ok {
			n -= s.line(table.End()) - s.line(table.Pos())
		}
		return !ok
	})
	return n
}

func TestStructFields(t *testing.T) {
	var found []finding
	load(t).each(func(p *pkg, s *source) {
		if s.test {
			return
		}
		ast.Inspect(s.syntax, func(n ast.Node) bool {
			spec, ok := n.(*ast.TypeSpec)
			if !ok {
				return true
			}
			if st, ok := spec.Type.(*ast.StructType); ok && count(st.Fields) > maxFields {
				found = append(found, finding{p.dir + " " + spec.Name.Name, s.where(spec),
					fmt.Sprintf("%d fields; over %d it is two structs", count(st.Fields), maxFields)})
			}
			return true
		})
	})
	judge(t, ruleFields, found)
}

func TestParameters(t *testing.T) {
	var found []finding
	load(t).each(func(p *pkg, s *source) {
		if s.test {
			return
		}
		for _, d := range s.syntax.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok {
				continue
			}
			n := count(f.Type.Params)
			if n > 0 && isContext(f.Type.Params.List[0].Type) {
				n--
			}
			if n > maxParameters {
				found = append(found, finding{p.dir + " " + funcName(f), s.where(f),
					fmt.Sprintf("%d parameters; over %d it takes a struct", n, maxParameters)})
			}
		}
	})
	judge(t, ruleParameters, found)
}

// TestShareOfTests prints how much of the tree is tests; read, not chased.
func TestShareOfTests(t *testing.T) {
	var product, tests int
	load(t).each(func(p *pkg, s *source) {
		if s.test || p.helper() {
			tests += s.lines()
		} else {
			product += s.lines()
		}
	})
	t.Logf("%d lines of product, %d lines of tests: %d %% tests", product, tests, 100*tests/(product+tests))
}

// count counts names, and an embedded or unnamed one as one.
func count(fields *ast.FieldList) int {
	n := 0
	for _, f := range fields.List {
		n += max(1, len(f.Names))
	}
	return n
}

func isContext(e ast.Expr) bool {
	sel, ok := e.(*ast.SelectorExpr)
	if !ok {
		return false
	}
	x, ok := sel.X.(*ast.Ident)
	return ok && x.Name == "context" && sel.Sel.Name == "Context"
}

// funcName is Type.Method or Func.
func funcName(f *ast.FuncDecl) string {
	if f.Recv == nil {
		return f.Name.Name
	}
	return receiver(f) + "." + f.Name.Name
}

// receiver is the name of a method's type.
func receiver(f *ast.FuncDecl) string {
	e := f.Recv.List[0].Type
	for {
		switch x := e.(type) {
		case *ast.StarExpr:
			e = x.X
		case *ast.IndexExpr:
			e = x.X
		case *ast.IndexListExpr:
			e = x.X
		case *ast.Ident:
			return x.Name
		default:
			return "?"
		}
	}
}

package lint

import (
	"go/ast"
	"go/token"
	"path"
	"strings"
	"testing"
)

// global is one variable of a package.
type global struct {
	file *source
	spec *ast.ValueSpec
	name *ast.Ident
}

// TestNoMutableGlobals allows a variable of a package that is a table: set where
// it is declared and only read after. It is held by syntax alone: an assignment
// to it or to a part of it, ++, delete, clear, its address, or a type that
// exists to be changed.
func TestNoMutableGlobals(t *testing.T) {
	var found []finding
	tree := load(t)
	byPackage := make(map[string]map[string]global)
	for _, p := range tree.packages {
		vars := make(map[string]global)
		for _, s := range p.product() {
			for name, g := range globals(s) {
				vars[name] = g
				if what := changeable(g.spec); what != "" {
					found = append(found, finding{p.dir + " " + name, s.where(g.name), name + " is a " + what})
				}
			}
		}
		byPackage[p.dir] = vars
	}
	for _, p := range tree.packages {
		for _, s := range p.product() {
			for _, c := range changes(s) {
				if dir, name, ok := changed(s, p.dir, c, byPackage); ok {
					found = append(found, finding{dir + " " + name, s.where(c), "changes " + name + ", a variable of package " + dir})
				}
			}
		}
	}
	judge(t, ruleGlobal, found)
}

func globals(s *source) map[string]global {
	vars := make(map[string]global)
	for _, d := range s.syntax.Decls {
		g, ok := d.(*ast.GenDecl)
		if !ok || g.Tok != token.VAR {
			continue
		}
		for _, spec := range g.Specs {
			v := spec.(*ast.ValueSpec)
			for _, n := range v.Names {
				if n.Name != "_" {
					vars[n.Name] = global{s, v, n}
				}
			}
		}
	}
	return vars
}

// changeable names the reason why a declared or made type only makes sense
// when it is changed; empty when there is none.
func changeable(v *ast.ValueSpec) string {
	what := ""
	check := func(e ast.Expr) {
		switch e := e.(type) {
		case *ast.SelectorExpr:
			if x, ok := e.X.(*ast.Ident); ok && (x.Name == "sync" && !strings.HasPrefix(e.Sel.Name, "Once") || x.Name == "atomic") {
				what = x.Name + "." + e.Sel.Name
			}
		case *ast.ChanType:
			what = "channel"
		}
	}
	check(v.Type)
	for _, value := range v.Values {
		switch e := value.(type) {
		case *ast.CompositeLit:
			check(e.Type)
		case *ast.CallExpr:
			if f, ok := e.Fun.(*ast.Ident); ok && f.Name == "make" && len(e.Args) > 0 {
				what = "made container; it can only be filled later"
			}
		}
	}
	return what
}

// changes lists the expressions of a file that are assigned to, counted up or
// down, cleared, deleted from, or whose address is taken.
func changes(s *source) []ast.Expr {
	var list []ast.Expr
	ast.Inspect(s.syntax, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.AssignStmt:
			if n.Tok != token.DEFINE {
				list = append(list, n.Lhs...)
			}
		case *ast.IncDecStmt:
			list = append(list, n.X)
		case *ast.RangeStmt:
			if n.Tok == token.ASSIGN {
				list = append(list, n.Key, n.Value)
			}
		case *ast.UnaryExpr:
			if _, composite := n.X.(*ast.CompositeLit); n.Op == token.AND && !composite {
				list = append(list, n.X)
			}
		case *ast.CallExpr:
			if f, ok := n.Fun.(*ast.Ident); ok && (f.Name == "delete" || f.Name == "clear") && len(n.Args) > 0 {
				list = append(list, n.Args[0])
			}
		}
		return true
	})
	return list
}

// changed finds the package variable at the root of a changed expression.
// Idents that the parser resolved to something local are not it.
func changed(s *source, dir string, e ast.Expr, byPackage map[string]map[string]global) (string, string, bool) {
	for e != nil {
		switch x := e.(type) {
		case *ast.IndexExpr:
			e = x.X
		case *ast.StarExpr:
			e = x.X
		case *ast.ParenExpr:
			e = x.X
		case *ast.SelectorExpr:
			if id, ok := x.X.(*ast.Ident); ok && id.Obj == nil {
				if target, ours := strings.CutPrefix(s.local()[id.Name], module+"/"); ours {
					_, known := byPackage[target][x.Sel.Name]
					return target, x.Sel.Name, known
				}
			}
			e = x.X
		case *ast.Ident:
			g, known := byPackage[dir][x.Name]
			if !known || x.Obj != nil && x.Obj.Decl != g.spec {
				return "", "", false
			}
			return path.Clean(dir), x.Name, true
		default:
			return "", "", false
		}
	}
	return "", "", false
}

// TestMutableGlobalsAreSeen holds the rule above to examples.
func TestMutableGlobalsAreSeen(t *testing.T) {
	text := `package p
var table = map[string]int{"a": 1}
var count int
var list []int
var safe = map[string]int{"a": 1}
var shadowed = 1
func f() {
	table["b"] = 2
	count++
	_ = &list
	shadowed := 2
	shadowed = 3
	_ = safe["a"] + shadowed
}`
	p := &pkg{dir: "p"}
	s := parseText(t, text)
	p.files = append(p.files, s)
	vars := map[string]map[string]global{"p": globals(s)}
	got := make(map[string]bool)
	for _, c := range changes(s) {
		if _, name, ok := changed(s, "p", c, vars); ok {
			got[name] = true
		}
	}
	for name, want := range map[string]bool{"table": true, "count": true, "list": true, "safe": false, "shadowed": false} {
		if got[name] != want {
			t.Errorf("%s: changed is %t, want %t", name, got[name], want)
		}
	}
}

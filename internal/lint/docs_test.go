package lint

import (
	"go/ast"
	"strings"
	"testing"
)

func TestPackageDocs(t *testing.T) {
	var found []finding
	for _, p := range load(t).packages {
		var docs []string
		for _, s := range p.product() {
			if s.syntax.Doc != nil {
				docs = append(docs, s.syntax.Doc.Text())
			}
		}
		want := "Package " + p.dir[strings.LastIndex(p.dir, "/")+1:] + " "
		if p.main() {
			want = "Command " + p.dir[strings.LastIndex(p.dir, "/")+1:] + " "
		}
		switch {
		case len(docs) != 1:
			found = append(found, finding{p.dir, p.dir, itoa(len(docs)) + " package comments; it needs one"})
		case !strings.HasPrefix(docs[0], want):
			found = append(found, finding{p.dir, p.dir, "its package comment does not start with " + want})
		case strings.Count(docs[0], " ") < 12:
			found = append(found, finding{p.dir, p.dir, "its package comment says too little: what it owns, what it refuses, where to start"})
		}
	}
	judge(t, rulePackageDoc, found)
}

// wellKnown are methods whose contract is an interface of the standard library.
var wellKnown = map[string]bool{
	"Error": true, "String": true, "Unwrap": true, "Is": true, "Close": true, "Len": true, "Less": true, "Swap": true,
	"MarshalJSON": true, "UnmarshalJSON": true, "MarshalText": true, "UnmarshalText": true, "ServeHTTP": true, "Read": true, "Write": true,
}

// TestNamesDocumented counts exported names of importable packages: 95 % of
// them have a comment, and none of the undocumented is a type.
func TestNamesDocumented(t *testing.T) {
	total, bare := 0, []finding{}
	var found []finding
	load(t).each(func(p *pkg, s *source) {
		if s.test || p.main() {
			return
		}
		for name, doc := range exported(s.syntax) {
			total++
			if doc == "" {
				bare = append(bare, finding{p.dir + " " + name, s.path, name + " has no comment"})
			}
			if doc == "" && !strings.Contains(name, ".") && isType(s.syntax, name) {
				found = append(found, bare[len(bare)-1])
			}
		}
	})
	if share := 100 * (total - len(bare)) / total; share < 95 {
		t.Errorf("%d of %d exported names are documented (%d %%); 95 %% is the rule", total-len(bare), total, share)
		for _, f := range bare {
			t.Logf("%s: %s", f.where, f.what)
		}
	} else {
		t.Logf("%d of %d exported names are documented (%d %%)", total-len(bare), total, share)
	}
	judge(t, ruleNameDoc, found)
}

// exported maps the exported names of a file to their comments. A comment on a
// group holds for each of its lines.
func exported(f *ast.File) map[string]string {
	names := make(map[string]string)
	for _, d := range f.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			switch {
			case !d.Name.IsExported():
			case d.Recv == nil:
				names[d.Name.Name] = d.Doc.Text()
			case ast.IsExported(receiver(d)) && !wellKnown[d.Name.Name]:
				names[funcName(d)] = d.Doc.Text()
			}
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				exportedSpec(names, d.Doc.Text(), spec)
			}
		}
	}
	return names
}

func exportedSpec(names map[string]string, group string, spec ast.Spec) {
	switch spec := spec.(type) {
	case *ast.TypeSpec:
		if spec.Name.IsExported() {
			names[spec.Name.Name] = group + spec.Doc.Text() + spec.Comment.Text()
		}
	case *ast.ValueSpec:
		for _, n := range spec.Names {
			if n.IsExported() {
				names[n.Name] = group + spec.Doc.Text() + spec.Comment.Text()
			}
		}
	}
}

func isType(f *ast.File, name string) bool {
	for _, d := range f.Decls {
		if g, ok := d.(*ast.GenDecl); ok {
			for _, spec := range g.Specs {
				if ts, ok := spec.(*ast.TypeSpec); ok && ts.Name.Name == name {
					return true
				}
			}
		}
	}
	return false
}

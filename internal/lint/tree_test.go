package lint

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

const (
	root   = "../.."
	module = "github.com/oomfleet/oomfleet"
)

// source is one Go file.
type source struct {
	path   string // from the root, with slashes
	test   bool
	text   []byte
	syntax *ast.File
	fset   *token.FileSet
}

// where is the position of a node, for people.
func (s *source) where(n ast.Node) string {
	p := s.fset.Position(n.Pos())
	return s.path + ":" + itoa(p.Line)
}

func (s *source) line(p token.Pos) int { return s.fset.Position(p).Line }

// lines is the number of lines of the file.
func (s *source) lines() int { return strings.Count(string(s.text), "\n") }

// local maps the names under which this file knows its imports to their paths.
func (s *source) local() map[string]string {
	names := make(map[string]string)
	for _, spec := range s.syntax.Imports {
		p := strings.Trim(spec.Path.Value, `"`)
		name := path.Base(p)
		if strings.HasPrefix(name, "v") && strings.Trim(name[1:], "0123456789") == "" {
			name = path.Base(path.Dir(p))
		}
		if spec.Name != nil {
			name = spec.Name.Name
		}
		names[name] = p
	}
	return names
}

// pkg is one folder with Go files.
type pkg struct {
	dir   string // from the root; also the import path below the module's
	files []*source
}

func (p *pkg) product() []*source { return p.only(false) }
func (p *pkg) tests() []*source   { return p.only(true) }

func (p *pkg) only(test bool) []*source {
	return slices.DeleteFunc(slices.Clone(p.files), func(s *source) bool { return s.test != test })
}

// helper reports whether the package exists for tests alone: queuetest and the
// like, and this one.
func (p *pkg) helper() bool { return strings.HasSuffix(p.dir, "test") || p.dir == "internal/lint" }

// main reports whether the package is a program.
func (p *pkg) main() bool { return strings.HasPrefix(p.dir, "cmd/") }

// imports maps each import path of the given files to one file that has it.
func imports(files []*source) map[string]string {
	found := make(map[string]string)
	for _, s := range files {
		for _, spec := range s.syntax.Imports {
			found[strings.Trim(spec.Path.Value, `"`)] = s.path
		}
	}
	return found
}

type tree struct {
	packages []*pkg            // sorted by folder
	texts    map[string]string // every text file that is not Go, by path
}

// read loads the tree once. It walks the folders itself instead of asking git
// or the go command: files that a test opens are part of the go command's cache
// key, so a cached pass is never older than the tree.
var read = sync.OnceValues(func() (*tree, error) {
	t := &tree{texts: make(map[string]string)}
	byDir := make(map[string]*pkg)
	err := filepath.WalkDir(root, func(file string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel := filepath.ToSlash(strings.TrimPrefix(strings.TrimPrefix(file, root), string(filepath.Separator)))
		switch {
		case entry.IsDir() && rel != "" && skipped(rel):
			return fs.SkipDir
		case !entry.Type().IsRegular():
			return nil
		case path.Ext(rel) != ".go":
			return t.addText(file, rel)
		}
		p := byDir[path.Dir(rel)]
		if p == nil {
			p = &pkg{dir: path.Dir(rel)}
			byDir[p.dir] = p
			t.packages = append(t.packages, p)
		}
		return p.add(file, rel)
	})
	slices.SortFunc(t.packages, func(a, b *pkg) int { return strings.Compare(a.dir, b.dir) })
	return t, err
})

// skipped reports whether a folder holds nothing of the project's own.
func skipped(rel string) bool {
	hidden := strings.HasPrefix(path.Base(rel), ".") && rel != ".ci"
	return hidden || rel == "bin" || rel == "dist" || path.Base(rel) == "__pycache__"
}

func (p *pkg) add(file, rel string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	fset := token.NewFileSet()
	syntax, err := parser.ParseFile(fset, rel, text, parser.ParseComments)
	if err != nil {
		return err
	}
	p.files = append(p.files, &source{
		path: rel, test: strings.HasSuffix(rel, "_test.go"), text: text, syntax: syntax, fset: fset,
	})
	return nil
}

// addText keeps a file that people write; recorded data and pictures are left out.
func (t *tree) addText(file, rel string) error {
	switch path.Ext(rel) {
	case ".parquet", ".jsonl", ".csv", ".png", ".gz", ".zst", ".sum", ".test", ".prof":
		return nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	if !strings.Contains(string(text), "\x00") {
		t.texts[rel] = string(text)
	}
	return nil
}

func load(t *testing.T) *tree {
	t.Helper()
	tree, err := read()
	if err != nil {
		t.Fatalf("read the tree: %v", err)
	}
	if len(tree.packages) < 20 {
		t.Fatalf("read only %d packages; the rules below would hold of nothing", len(tree.packages))
	}
	return tree
}

// each calls visit for every Go file.
func (t *tree) each(visit func(*pkg, *source)) {
	for _, p := range t.packages {
		for _, s := range p.files {
			visit(p, s)
		}
	}
}

// parseText makes a source out of an example.
func parseText(t *testing.T, text string) *source {
	t.Helper()
	fset := token.NewFileSet()
	syntax, err := parser.ParseFile(fset, "p.go", text, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	return &source{path: "p/p.go", text: []byte(text), syntax: syntax, fset: fset}
}

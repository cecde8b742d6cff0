// Package wiretest holds documents that cross a version to golden files, one
// folder a version: testdata/wire/v1, v2 and so on beside the test. It owns the
// comparison and a document of each type with every field set. It refuses to
// know any document: a test names them.
//
// To change a document, see docs/lifecycle.md. Start reading at Check.
package wiretest

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// Root is where a package's golden files lie.
const Root = "testdata/wire"

// Rewriting reports whether the test was started with -rewrite: then the newest
// version's files are written anew, which is right until that version is released.
func Rewriting() bool {
	f := flag.Lookup("rewrite")
	return f != nil && f.Value.String() == "true"
}

// Flag defines -rewrite; for the package's TestMain or a variable of its test.
func Flag() *bool {
	if f := flag.Lookup("rewrite"); f != nil {
		on := f.Value.String() == "true"
		return &on
	}
	return flag.Bool("rewrite", false, "write the golden files of the newest version anew")
}

// Document is one kind of document.
type Document struct {
	// Name is its file's, with the ending.
	Name string
	// Full is a document with every field set, as today's code writes it.
	Full []byte
	// Again reads a document and writes what it has read.
	Again func(text []byte) ([]byte, error)
	// Strict documents refuse a field that they do not know; others pass over it.
	Strict bool
}

// Versions are the folders, oldest first.
func Versions(t *testing.T) []string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(Root, "v*"))
	if err != nil || len(found) == 0 {
		t.Fatalf("no golden files in %s (%v)", Root, err)
	}
	slices.SortFunc(found, func(a, b string) int {
		if len(a) != len(b) {
			return len(a) - len(b)
		}
		return bytes.Compare([]byte(a), []byte(b))
	})
	return found
}

// Check reads every golden file of every version with today's code, and holds
// what that writes to it: all that the old reader knows is there, under the same
// names, with the same values. The newest version's file is today's full document,
// so that no field is left out of this.
func Check(t *testing.T, documents []Document) {
	t.Helper()
	versions := Versions(t)
	newest := versions[len(versions)-1]
	for _, d := range documents {
		t.Run(d.Name, func(t *testing.T) {
			Golden(t, filepath.Join(newest, d.Name), d.Full)
			for _, v := range versions {
				text, err := os.ReadFile(filepath.Join(v, d.Name))
				if os.IsNotExist(err) && v != newest {
					continue // that version had none
				}
				if err != nil {
					t.Fatal(err)
				}
				got, err := d.Again(text)
				if err != nil {
					t.Errorf("%s cannot be read: %v", v, err)
					continue
				}
				if lost := missing(value(t, text), value(t, got), ""); len(lost) > 0 {
					t.Errorf("a reader of %s would miss %v in\n%s", v, lost, got)
				}
			}
			d.unknown(t)
		})
	}
}

// unknown adds a field of a version to come.
func (d Document) unknown(t *testing.T) {
	t.Helper()
	text := bytes.Replace(d.Full, []byte("{"), []byte(`{"of_a_version_to_come":{"a":[1]},`), 1)
	got, err := d.Again(text)
	if d.Strict {
		if err == nil {
			t.Errorf("a field that this build would leave out is taken: %s", got)
		}
		return
	}
	if err != nil {
		t.Errorf("a field of a version to come: %v", err)
	} else if lost := missing(value(t, d.Full), value(t, got), ""); len(lost) > 0 {
		t.Errorf("with a field of a version to come, %v is lost", lost)
	}
}

// Golden holds text to a file, and writes the file with -rewrite.
func Golden(t *testing.T, path string, text []byte) {
	t.Helper()
	if Rewriting() {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(bytes.TrimSpace(text), bytes.TrimSpace(want)) {
		t.Errorf("today's document is not %s any more. If that version is released, add the next one (docs/lifecycle.md); "+
			"if not, run this test with -rewrite and read the difference.\ngot  %s\nwant %s", path, text, want)
	}
}

func value(t *testing.T, text []byte) any {
	t.Helper()
	var v any
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	if err := d.Decode(&v); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	return v
}

// missing are the places of old that now lacks or has otherwise.
func missing(old, now any, at string) (lost []string) {
	switch o := old.(type) {
	case map[string]any:
		n, ok := now.(map[string]any)
		if !ok {
			return []string{at}
		}
		for name, value := range o {
			lost = append(lost, missing(value, n[name], at+"."+name)...)
		}
	case []any:
		n, ok := now.([]any)
		if !ok || len(n) != len(o) {
			return []string{at}
		}
		for i := range o {
			lost = append(lost, missing(o[i], n[i], at+"[]")...)
		}
	default:
		if old != now {
			lost = append(lost, at)
		}
	}
	slices.Sort(lost)
	return lost
}

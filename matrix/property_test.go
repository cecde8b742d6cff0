package matrix

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/oomfleet/oomfleet/proto"
)

// writer draws a matrix once and writes it down in any order of keys, values and
// rules: what it says stays the same.
type writer struct {
	axes    map[string][]string
	exclude []map[string][]string
	include []map[string][]string
}

func drawMatrix(t *rapid.T) writer {
	some := func(label string, from []string) []string {
		return rapid.SliceOfNDistinct(rapid.SampledFrom(from), 1, min(3, len(from)), rapid.ID).Draw(t, label)
	}
	pool := map[string][]string{
		"seq_len": {"128", "256", "384", "512", "1024"}, "batch": {"1", "2", "3"}, "chunk_size": {"0", "64"},
		"driver": {"580.10", "580.1", "580.159.04", "installed"},
		"env":    {"{}", "{A: b}", "{A: b, C: d}", "{PYTORCH_CUDA_ALLOC_CONF: expandable_segments:True}"},
	}
	keys := []string{"seq_len", "batch", "chunk_size", "driver", "env"}
	w := writer{axes: map[string][]string{}}
	for _, key := range keys {
		w.axes[key] = some(key, pool[key])
	}
	for range rapid.IntRange(0, 2).Draw(t, "excludes") {
		rule := map[string][]string{}
		for _, key := range some("exclude keys", keys) {
			rule[key] = some("exclude "+key, w.axes[key])
		}
		w.exclude = append(w.exclude, rule)
	}
	for range rapid.IntRange(0, 2).Draw(t, "includes") {
		rule := map[string][]string{}
		for _, key := range some("include keys", keys) {
			rule[key] = some("include "+key, pool[key])
		}
		w.include = append(w.include, rule)
	}
	return w
}

// write is the matrix in an order that t decides.
func (w writer) write(t *rapid.T) string {
	mapping := func(axes map[string][]string, indent string) string {
		var lines []string
		for _, key := range rapid.Permutation(slices.Sorted(maps.Keys(axes))).Draw(t, "keys") {
			values := rapid.Permutation(axes[key]).Draw(t, "values")
			if len(values) == 1 && rapid.Bool().Draw(t, "bare") {
				lines = append(lines, fmt.Sprintf("%s: %s", key, values[0]))
				continue
			}
			lines = append(lines, fmt.Sprintf("%s: [%s]", key, strings.Join(values, ", ")))
		}
		return strings.Join(lines, "\n"+indent)
	}
	rules := func(name string, list []map[string][]string) string {
		if len(list) == 0 {
			return ""
		}
		text := name + ":"
		for _, i := range rapid.Permutation(indexes(len(list))).Draw(t, name) {
			text += "\n  - " + mapping(list[i], "    ")
		}
		return text + "\n"
	}
	sections := []string{
		"apiVersion: oomfleet/v1\n", "name: drawn\n", "workload: {name: esmfold}\n", "target: {gpu: NVIDIA H200}\n",
		"axes:\n  " + mapping(w.axes, "  ") + "\n", rules("exclude", w.exclude), rules("include", w.include),
	}
	return strings.Join(rapid.Permutation(sections).Draw(t, "sections"), "")
}

func indexes(n int) []int {
	list := make([]int, n)
	for i := range list {
		list[i] = i
	}
	return list
}

// TestOrderOfWritingIsNothing: the same matrix in another order has the same
// cells in the same order, or is refused both times.
func TestOrderOfWritingIsNothing(t *testing.T) {
	refused, expanded := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		w := drawMatrix(t)
		first, second := w.write(t), w.write(t)
		a, errA := Expand([]byte(first), Options{Installed: fleet()})
		b, errB := Expand([]byte(second), Options{Installed: fleet()})
		if (errA == nil) != (errB == nil) {
			t.Fatalf("one is refused, the other not:\n%s%v\n\n%s%v", first, errA, second, errB)
		}
		if errA != nil {
			refused++
			return
		}
		expanded++
		if got, want := ids(b.Cells), ids(a.Cells); !slices.Equal(got, want) {
			t.Fatalf("cells differ:\n%s%v\n\n%s%v", first, want, second, got)
		}
		if !slices.IsSortedFunc(a.Cells, proto.Cell.Compare) {
			t.Fatalf("not sorted: %v", a.Cells)
		}
		if distinct := slices.Compact(slices.Sorted(slices.Values(ids(a.Cells)))); len(distinct) != len(a.Cells) {
			t.Fatalf("%d cells, %d ids", len(a.Cells), len(distinct))
		}
		w.compareWithOracle(t, a.Cells)
	})
	if expanded == 0 {
		t.Errorf("every drawn matrix was refused (%d): the test says nothing", refused)
	}
}

// compareWithOracle asks for every combination of all values by itself whether
// it belongs to the matrix, without making any product.
func (w writer) compareWithOracle(t *rapid.T, cells []proto.Cell) {
	has := func(list []string, value string) bool {
		return list == nil || slices.Contains(list, value) ||
			slices.Contains(list, "installed") && strings.HasPrefix(value, "580.159.04")
	}
	matches := func(rule map[string][]string, c []string) bool {
		for i, key := range []string{"seq_len", "batch", "chunk_size", "driver", "env"} {
			if !has(rule[key], c[i]) {
				return false
			}
		}
		return true
	}
	want := map[string]bool{}
	for _, seqLen := range []string{"128", "256", "384", "512", "1024"} {
		for _, batch := range []string{"1", "2", "3"} {
			for _, chunk := range []string{"0", "64"} {
				for _, driver := range []string{"580.10", "580.1", "580.159.04", "580.159.04-synthetic"} {
					for _, env := range []string{"{}", "{A: b}", "{A: b, C: d}", "{PYTORCH_CUDA_ALLOC_CONF: expandable_segments:True}"} {
						c := []string{seqLen, batch, chunk, driver, env}
						in := matches(w.axes, c) && !slices.ContainsFunc(w.exclude, func(r map[string][]string) bool { return matches(r, c) })
						if in || slices.ContainsFunc(w.include, func(r map[string][]string) bool { return matches(w.filled(r), c) }) {
							want[strings.Join(c, " ")] = true
						}
					}
				}
			}
		}
	}
	for _, c := range cells {
		env := strings.ReplaceAll(strings.ReplaceAll(proto.EnvString(c.Env), "=", ": "), " C", ", C")
		name := fmt.Sprintf("%d %d %d %s {%s}", c.SeqLen, c.Batch, c.ChunkSize, c.Driver, env)
		if !want[name] {
			t.Fatalf("%s should not be there", name)
		}
		delete(want, name)
	}
	if len(want) > 0 {
		t.Fatalf("missing: %v", want)
	}
}

// filled is an include rule with the axes that it leaves out.
func (w writer) filled(rule map[string][]string) map[string][]string {
	full := maps.Clone(w.axes)
	maps.Copy(full, rule)
	return full
}

func ids(cells []proto.Cell) []proto.CellID {
	list := make([]proto.CellID, len(cells))
	for i, cell := range cells {
		list[i] = cell.ID()
	}
	return list
}

// FuzzExpand: any text gives cells or problems that have a place, and the same
// twice.
func FuzzExpand(f *testing.F) {
	for _, pattern := range []string{"testdata/broken/*.yaml", "testdata/good/*.yaml", "../deploy/examples/*.yaml"} {
		for _, path := range sources(f, pattern, 3) {
			source, err := os.ReadFile(path)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(source, "axes.seq_len=128,256")
		}
	}
	f.Add([]byte("a: &a [*a, *a]\n"), "axes.env=A=b")
	f.Add([]byte("apiVersion: oomfleet/v1\naxes: &a\n  seq_len: 1\ninclude: [*a, *a]\n"), "exclude=[]")
	f.Fuzz(func(t *testing.T, source []byte, set string) {
		options := Options{Installed: fleet(), Set: []string{set}}
		expansion, err := Expand(source, options)
		again, errAgain := Expand(source, options)
		if fmt.Sprint(err) != fmt.Sprint(errAgain) {
			t.Fatalf("two answers:\n%v\n%v", err, errAgain)
		}
		if err != nil {
			problems, ok := err.(Problems)
			if !ok || len(problems) == 0 {
				t.Fatalf("%T: %v", err, err)
			}
			_ = problems.String()
			return
		}
		if len(expansion.Cells) == 0 || !slices.Equal(ids(expansion.Cells), ids(again.Cells)) {
			t.Fatalf("%d and %d cells", len(expansion.Cells), len(again.Cells))
		}
		_ = expansion.Notices.String()
	})
}

package allocator

import (
	"path/filepath"
	"slices"
	"testing"
)

// TestLayoutSensitive: the flag, for which a sweep stops at the first difference,
// is that of whole maps under the other layouts. (L256_B2 has a fail band under
// one of them, well above the boundary: replays at the edges alone miss it.)
func TestLayoutSensitive(t *testing.T) {
	paths, _ := filepath.Glob(traceDir + "/*.parquet")
	others, _ := filepath.Glob("testdata/other/*.parquet")
	sensitive := 0
	for _, path := range append(paths, others...) {
		p := compileFile(t, path)
		o := SweepOptions{Step: roundLarge, MaxReplays: maxReplays}
		got, err := p.Sweep(o)
		if err != nil {
			t.Fatal(err)
		}
		want := false
		for _, layout := range []Layout{LayoutAscending, LayoutDescending, LayoutReuse} {
			s := newSweeper(p, o, layout)
			if err := s.walk(); err != nil {
				t.Fatal(err)
			}
			r := &s.result
			want = want || r.Boundary != got.Boundary || r.LowestPass != got.LowestPass || r.NoRetry != got.NoRetry || !slices.Equal(r.FailBands, got.FailBands)
		}
		if got.LayoutSensitive != want {
			t.Errorf("%s: %v, the whole maps say %v", filepath.Base(path), got.LayoutSensitive, want)
		}
		if want {
			sensitive++
		}
	}
	if all := len(paths) + len(others); sensitive == 0 || sensitive == all {
		t.Errorf("%d of %d maps depend on addresses: the test says nothing", sensitive, all)
	}
}

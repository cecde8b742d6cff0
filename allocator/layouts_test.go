package allocator

import (
	"path/filepath"
	"reflect"
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
			r := mapWhole(t, p, o, layout)
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

// mapWhole sweeps under one layout with whole states, from checkpoint to
// checkpoint.
func mapWhole(t interface{ Fatal(...any) }, p *Program, o SweepOptions, layout Layout) *SweepResult {
	low := p.lowest(&o)
	s := newSweeper(&o, low, &forks{p: p, o: &o, layout: layout, floor: low})
	if err := s.walk(); err != nil {
		t.Fatal(err)
	}
	return &s.result
}

// mapPools sweeps under one layout pool by pool; the pools are shared with other
// layouts.
func mapPools(t interface{ Fatal(...any) }, p *Program, o SweepOptions, layout Layout, pools *[2]*pool) *SweepResult {
	low := p.lowest(&o)
	s := newSweeper(&o, low, newPaths(p, layout, low, *pools))
	if err := s.walk(); err != nil {
		t.Fatal(err)
	}
	return &s.result
}

// TestPoolsAgreeWithWholeStates: pool by pool, every recording has the map, path
// for path, that it has when whole states are replayed.
func TestPoolsAgreeWithWholeStates(t *testing.T) {
	paths, _ := filepath.Glob(traceDir + "/*.parquet")
	others, _ := filepath.Glob("testdata/other/*.parquet")
	compared := 0
	for i, path := range append(paths, others...) {
		p := compileFile(t, path)
		sets := []Settings{{}, {MaxSplit: 256 << 20}, {Divisions: all(4)}, {LargeSegment: 64 << 20}}
		if i%7 > 0 || testing.Short() {
			sets = sets[:1]
		}
		for _, set := range sets {
			if !p.divisible(&set) {
				t.Errorf("%s %+v: not replayed pool by pool", filepath.Base(path), set)
				continue
			}
			pools := newPools(p, &set, nil)
			o := SweepOptions{Settings: set, Step: roundLarge, MaxReplays: maxReplays}
			for layout := LayoutDriver; layout <= LayoutReuse; layout++ {
				got, want := mapPools(t, p, o, layout, pools), mapWhole(t, p, o, layout)
				compared += want.Replays
				if !reflect.DeepEqual(got, want) {
					t.Errorf("%s %+v layout %d: pool by pool\n%+v\nwhole\n%+v", filepath.Base(path), set, layout, got, want)
				}
			}
		}
	}
	t.Logf("%d paths compared", compared)
}

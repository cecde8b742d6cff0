package allocator

import (
	"slices"
	"sort"
)

// runLength is the most spans in one run of a spanSet: few enough to be moved
// quickly, and as many as ordinary recordings have segments.
const runLength = 512

// spanSet holds ranges of addresses that do not overlap, in order. It is cut into
// runs of bounded length, so that what one more or one less takes does not grow
// with how many there are. Its zero value holds none.
type spanSet struct {
	runs  [][]span // ascending; none is empty
	n     int
	moved int // spans and runs that were moved so far
}

// from is the place of the first span that ends behind an address; run is
// len(runs) without one.
func (s *spanSet) from(addr uint64) (run, at int) {
	run = sort.Search(len(s.runs), func(i int) bool { return s.runs[i][len(s.runs[i])-1].end() > addr })
	if run < len(s.runs) {
		r := s.runs[run]
		at = sort.Search(len(r), func(i int) bool { return r[i].end() > addr })
	}
	return run, at
}

// place adds a span; false when another lies there.
func (s *spanSet) place(x span) bool {
	run, at := s.from(x.addr)
	if run < len(s.runs) && s.runs[run][at].addr < x.end() {
		return false
	}
	s.insert(run, at, x)
	return true
}

// take removes the span that begins at an address, if there is one.
func (s *spanSet) take(addr uint64) {
	if run, at := s.from(addr); run < len(s.runs) && s.runs[run][at].addr == addr {
		s.remove(run, at)
	}
}

// cover adds a range, part of which may be covered already: over is whether it
// was. What touches becomes one.
func (s *spanSet) cover(x span) (over bool) {
	run, at := s.from(max(x.addr, 1) - 1) // one that ends where x begins counts
	for run < len(s.runs) && s.runs[run][at].addr <= x.end() {
		y := s.runs[run][at]
		over = over || y.addr < x.end() && y.end() > x.addr
		low, high := min(x.addr, y.addr), max(x.end(), y.end())
		x = span{low, int64(high - low)}
		s.remove(run, at)
		run, at = s.from(max(x.addr, 1) - 1)
	}
	s.insert(run, at, x)
	return over
}

// insert puts a span before the one at a place.
func (s *spanSet) insert(run, at int, x span) {
	s.n++
	if run == len(s.runs) { // behind all
		if run == 0 {
			s.runs = append(s.runs, nil)
			run++
		}
		run--
		at = len(s.runs[run])
	}
	if r := s.runs[run]; len(r) == runLength {
		half := runLength / 2
		s.moved += half + len(s.runs) - run
		s.runs = slices.Insert(s.runs, run+1, slices.Clone(r[half:]))
		s.runs[run] = r[:half]
		if at > half {
			run, at = run+1, at-half
		}
	}
	s.moved += len(s.runs[run]) - at
	s.runs[run] = slices.Insert(s.runs[run], at, x)
}

func (s *spanSet) remove(run, at int) {
	s.n--
	s.moved += len(s.runs[run]) - at
	s.runs[run] = slices.Delete(s.runs[run], at, at+1)
	if len(s.runs[run]) == 0 {
		s.moved += len(s.runs) - run
		s.runs = slices.Delete(s.runs, run, run+1)
	}
}

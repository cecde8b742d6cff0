package allocator

import "slices"

// edges are the map that a sweeper has so far, from the top quota down to last.
type edges struct {
	result  SweepResult
	passed  bool // the path noted last did
	retried bool // some path did
	last    int64
}

// note files the outcome of the grid quotas from low up to those noted before.
func (s *sweeper) note(low int64, r ReplayResult) {
	out := &s.result
	s.retried = s.retried || r.Retries > 0
	if !s.retried {
		out.NoRetry = low
	}
	out.Map = append(out.Map, Interval{From: low, To: s.last, Pass: !r.OOM, Retries: r.Retries, PeakReserved: r.PeakReserved})
	switch {
	case !r.OOM:
		out.LowestPass = low
		if len(out.FailBands) == 0 {
			out.Boundary = low
		}
	case len(out.Map) > 1 && !s.passed:
		out.FailBands[len(out.FailBands)-1].From = low
	default:
		out.FailBands = append(out.FailBands, Band{From: low, To: s.last - s.o.Step})
	}
	s.differs = s.differs || s.against != nil && !s.agrees(out.Map[len(out.Map)-1])
	s.passed, s.last = !r.OOM, low
}

// agrees is whether the map of the other layout has the outcomes of v, and the
// same no-retry quota as far as both are known.
func (s *sweeper) agrees(v Interval) bool {
	if s.retried && s.result.NoRetry != s.against.NoRetry {
		return false
	}
	for _, w := range s.against.Map {
		if w.From < v.To && v.From < w.To && w.Pass != v.Pass {
			return false
		}
	}
	return true
}

// finish drops the failing region below the lowest pass, which is no band, and
// says so where nothing passes up to the card's total.
func (s *sweeper) finish(top int64) {
	if s.result.Boundary == 0 {
		s.result.Boundary, s.result.AboveDevice = top, true
		if s.result.LowestPass == 0 {
			s.result.LowestPass = top
		}
	}
	bands := s.result.FailBands
	if len(bands) > 0 && bands[len(bands)-1].To < s.result.LowestPass {
		bands = bands[:len(bands)-1]
	}
	slices.Reverse(bands)
	s.result.FailBands = bands
}

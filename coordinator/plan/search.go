package plan

import "github.com/oomfleet/oomfleet/proto"

// points are quotas with a decided outcome, each list ascending.
type points struct {
	passes, fails []proto.Bytes
}

// bracket is where the boundary is assumed: lo fails, hi passes. Nothing is
// settled on an assumption; it only says where to look first.
type bracket struct {
	lo, hi proto.Bytes
	// stride is how far at least a gallop goes at a time; 0 is one step.
	stride proto.Bytes
}

// limits are the quotas that probes may use: from min to max, on the grid.
type limits struct {
	min, max, step proto.Bytes
}

// finding is what the points say: the boundary, or what to probe next.
type finding struct {
	// found is set with the boundary; atMin says that it is the range's own
	// lower end and nothing below was probed.
	found    bool
	atMin    bool
	boundary proto.Bytes
	// noPass: the largest quota of the range fails.
	noPass bool
	probes []proto.Bytes
}

// edge is one end of the bracket; real when a probe has seen it.
type edge struct {
	at   proto.Bytes
	real bool
}

// search applies the survive rule (lo is the largest failing quota, hi the
// smallest passing one above it) and ends between two real edges one step
// apart, or at the range's own end. Where an edge is only assumed it halves
// towards it, probes it when it gets there, and gallops outward in doubling
// strides from where the assumption proved wrong, by the bracket's own at least.
//
// With w steps in the bracket and the boundary inside, it takes at most
// ceil(log2 w) + 2 probes; with the boundary d steps outside, at most
// 2 ceil(log2 d) + 3 more. It always ends: every probe lies strictly between
// the edges, or moves one outward.
func search(p points, br bracket, lim limits) finding {
	br = br.within(lim)
	lo, hi := p.edges()
	switch {
	case lo.real && lo.at >= lim.max:
		return finding{noPass: true}
	case !lo.real && hi.real && hi.at <= lim.min:
		return finding{found: true, atMin: true, boundary: hi.at}
	case lo.real && hi.real && hi.at-lo.at <= lim.step:
		return finding{found: true, boundary: hi.at}
	case lo.real && !hi.real && br.hi <= lo.at:
		return probe(min(lim.max, max(lo.at+br.stride, br.hi+2*(lo.at-br.hi))))
	case !lo.real && hi.real && br.lo >= hi.at:
		return probe(max(lim.min, min(hi.at-br.stride, br.lo-2*(br.lo-hi.at))))
	}
	if !lo.real {
		lo.at = br.lo
	}
	if !hi.real {
		hi.at = br.hi
	}
	if steps := (hi.at - lo.at) / lim.step; steps > 1 {
		middle := lo.at + steps/2*lim.step
		switch { // an edge just outside of what was assumed is likelier near than in the middle
		case lo.real && lo.at >= br.hi:
			middle = min(middle, lo.at+max(br.stride, 2*(lo.at-br.hi)))
		case hi.real && hi.at <= br.lo:
			middle = max(middle, hi.at-max(br.stride, 2*(br.lo-hi.at)))
		}
		return probe(middle)
	}
	var f finding
	if !hi.real {
		f.probes = append(f.probes, hi.at)
	}
	if !lo.real && lo.at >= lim.min {
		f.probes = append(f.probes, lo.at)
	}
	return f
}

func probe(q proto.Bytes) finding { return finding{probes: []proto.Bytes{q}} }

// edges are the real ones: the largest fail, and the smallest pass above it.
func (p points) edges() (lo, hi edge) {
	if n := len(p.fails); n > 0 {
		lo = edge{p.fails[n-1], true}
	}
	for _, q := range p.passes {
		if q > lo.at {
			return lo, edge{q, true}
		}
	}
	return lo, edge{}
}

// within moves the bracket into the range. One step below the range stands for
// "nothing smaller may be probed".
func (br bracket) within(lim limits) bracket {
	br.stride = max(br.stride, lim.step)
	br.hi = min(max(br.hi, lim.min), lim.max)
	br.lo = min(max(br.lo, lim.min-lim.step), br.hi-lim.step)
	return br
}

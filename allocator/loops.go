package allocator

import "fmt"

// site is a place where a program of more chunks does more turns of a loop: the
// body is the length steps before at.
type site struct {
	at     int
	length int
}

// findSites compares a program with one of turns more chunks and returns where
// the longer one repeats itself. The two agree up to the end of a loop of the
// shorter; there the longer goes on with further turns, which look like the
// turn before, and then both leave the loop.
func findSites(short, long []step, turns int) ([]site, error) {
	var out []site
	m := &meter{most: siteWork}
	for i, j := 0, 0; ; {
		n := agree(short[i:], long[j:])
		m.spend(n)
		i, j = i+n, j+n
		if i == len(short) && j == len(long) {
			return out, nil
		}
		length := turnLength(m, short[i:], long, seam{j, turns})
		if m.over() {
			return nil, fmt.Errorf("%w: at operation %d, to find what the longer run repeats there: %w", ErrSequencesDiffer, i, m.err)
		}
		if length == 0 {
			return nil, fmt.Errorf("%w: at operation %d, and the longer run does not repeat a loop there", ErrSequencesDiffer, i)
		}
		at, ok := middle(short, i, length)
		if !ok || len(out) > 0 && at < out[len(out)-1].at {
			return nil, fmt.Errorf("%w: at operation %d the shortest run turns too few times in a loop to tell its body: record more chunks", ErrTooFewTraces, i)
		}
		out = append(out, site{at, length})
		j += turns * length
	}
}

// siteWork bounds findSites, in steps: some seconds.
const siteWork = 1 << 32

// seam is the operation of the long run where it goes on with further turns, and
// how many.
type seam struct{ j, turns int }

func agree(a, b []step) int {
	n := min(len(a), len(b))
	for i := range n {
		if a[i] != b[i] {
			return i
		}
	}
	return n
}

// turnLength is the length of the body that the long run repeats from j on, 0
// where it repeats none: further turns equal the one before, and the rest of the
// short run follows behind them, the further the better.
func turnLength(m *meter, rest, long []step, at seam) int {
	best, reach := 0, 0
	j, turns := at.j, at.turns
	for p := 1; p <= j && j+turns*p <= len(long) && !m.over(); p++ {
		n := agree(long[j:j+turns*p], long[j-p:])
		if m.spend(n + 1); n < turns*p {
			continue
		}
		after := long[j+turns*p:]
		n = agree(rest, after)
		m.spend(n)
		if n == len(rest) && n == len(after) {
			return p
		}
		if n > reach {
			best, reach = p, n
		}
	}
	return best
}

// middle finds where further turns go: behind the middle turn of those that end
// at i, so that a first or a last turn of other sizes stays first or last.
func middle(short []step, i, length int) (int, bool) {
	from := i
	for from > length && short[from-1] == short[from-1-length] {
		from--
	}
	from = max(from-length, 0)
	full := (i - from) / length
	if full < 2 {
		return 0, false
	}
	return from + (full+1)/2*length, true
}

// unroll lists, for a program of turns more chunks than the base, the base step
// that each of its steps is.
func unroll(sites []site, steps, turns int) []int32 {
	out := make([]int32, 0, steps)
	next := 0
	for _, s := range sites {
		for ; next < s.at; next++ {
			out = append(out, int32(next))
		}
		for range turns {
			for k := s.at - s.length; k < s.at; k++ {
				out = append(out, int32(k))
			}
		}
	}
	for ; next < steps; next++ {
		out = append(out, int32(next))
	}
	return out
}

package allocator

import "slices"

// longestCycle is the most turns of a stretch after which a replay looks for a
// state it has seen.
const longestCycle = 16

// place is where a live block lies.
type place struct {
	addr uint64
	size int64
}

// repeat executes a stretch, or what is left of it; false when an allocation is
// refused. Turns that would go round a cycle of states are left out: they
// change neither the allocator nor any peak.
func (r *replay) repeat(s *stretch) bool {
	turn := max(0, (r.at-s.start+s.period-1)/s.period)
	if !r.execute(s.start + turn*s.period) {
		return false
	}
	n := len(s.carried)
	states, seen := 1, r.places(s, nil) // at the begin of turns, oldest first
	for driver := r.driverCalls(); turn < s.turns; turn++ {
		if !r.execute(s.start + (turn+1)*s.period) {
			return false
		}
		if d := r.driverCalls(); d != driver {
			driver, states, seen = d, 0, seen[:0]
		}
		states, seen = states+1, r.places(s, seen)
		now := seen[len(seen)-n:]
		for back := 1; back <= longestCycle && back < states; back++ {
			if at := len(seen) - (back+1)*n; slices.Equal(seen[at:at+n], now) {
				left := (s.turns - turn - 1) % back // turns to execute
				if r.check != nil {
					n := allocs(r.p.ops[s.start : s.start+s.period])
					if !r.check.again(r.p.addrs, (s.turns-turn-1-left)*n, back*n) {
						return r.execute(s.end())
					}
				}
				r.at = s.end() - left*s.period
				return r.execute(s.end())
			}
		}
	}
	return true
}

func allocs(ops []op) int {
	n := 0
	for i := range ops {
		if ops[i].kind == opAlloc {
			n++
		}
	}
	return n
}

// places appends where the carried blocks of a stretch lie.
func (r *replay) places(s *stretch, list []place) []place {
	for _, slot := range s.carried {
		b := &r.a.blocks[r.live[slot]]
		list = append(list, place{b.addr, b.size})
	}
	return list
}

// driverCalls grows with everything that changes what is mapped.
func (r *replay) driverCalls() int {
	s := &r.a.stats
	return s.DeviceAllocs + s.DeviceFrees + s.SyncAllStreams
}

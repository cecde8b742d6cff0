package allocator

import "sync"

// stride is how many ops lie between the bounds of a half at least.
const stride = 768

// half is the part of a program that one of the two pools serves. The pools
// share nothing but the limit and the driver: what a pool does between two of
// its requests to the driver depends on its own ops alone.
//
// Under max_split_size the large pool is two: blocks of that size or more serve
// requests of that size or more, whole, and no others. Those requests make up a
// third part (see oversize).
type half struct {
	Program
	bounds []int // ops before which a replay stops, so that equal states meet; the end is one
}

// divisible is whether a program can be replayed pool by pool under the
// settings: one stream, no free that waits for another stream, nothing that
// makes a pool depend on the limit (garbage collection) or on addresses
// themselves (expandable segments).
func (p *Program) divisible(set *Settings) bool {
	if set.Expandable || set.GCThreshold > 0 || len(p.streams) != 1 || p.slots > 1<<20 {
		return false
	}
	for i := range p.ops {
		if k := p.ops[i].kind; k == opFreeDeferred || k == opComplete || p.ops[i].size >= int64(apartBytes/2) {
			return false
		}
	}
	return true
}

// division keeps the halves of a program under plain rounding, which most sweeps
// ask for: they are made once.
type division struct {
	once   sync.Once
	halves [3]*half
}

// halves are the parts of a divisible program under the settings.
func (p *Program) halves(set *Settings) [3]*half {
	if p.divided == nil || set.Divisions != [16]int64{} || set.MaxSplit > 0 {
		return p.divide(set)
	}
	p.divided.once.Do(func() { p.divided.halves = p.divide(set) })
	return p.divided.halves
}

// divide splits a divisible program. Ops keep their index in it as their event,
// slots are numbered anew, and blocks that are never freed have none.
func (p *Program) divide(set *Settings) [3]*half {
	s := splitter{p: p, set: set, pool: make([]uint8, p.slots), apart: p.keepsApart(set)}
	for h := range s.out {
		s.out[h] = &half{Program: Program{streams: p.streams, oomAt: -1, synthetic: true}}
		s.names[h] = make([]int32, p.slots)
	}
	for h, n := range s.count() {
		s.out[h].ops = make([]op, 0, n)
	}
	at := 0
	freed := p.freed()
	for _, t := range p.repeated {
		// The first turn may free blocks of the other pool than the turns behind
		// it do: what lives from turn to turn was allocated elsewhere.
		at = s.take(at, t.start+t.period, freed)
		start := [3]int{len(s.out[0].ops), len(s.out[1].ops), len(s.out[2].ops)}
		at = s.take(at, t.start+2*t.period, freed)
		for h, q := range s.out {
			if period := len(q.ops) - start[h]; period > 0 {
				turn := stretch{start: start[h], period: period, turns: t.turns - 1, carried: carried(q.ops[start[h]:])}
				q.repeated = append(q.repeated, turn)
			}
		}
		at = s.take(at, t.end(), freed)
	}
	s.take(at, len(p.ops), freed)
	for _, q := range s.out {
		q.bound()
	}
	return s.out
}

// freed is, by op, whether it is an allocation that the program frees.
func (p *Program) freed() []bool {
	out := make([]bool, len(p.ops))
	later := make([]bool, p.slots)
	for i := len(p.ops) - 1; i >= 0; i-- {
		switch o := &p.ops[i]; o.kind {
		case opFree:
			later[o.slot] = true
		case opAlloc:
			out[i], later[o.slot] = later[o.slot], false
		}
	}
	return out
}

// splitter deals the ops of a program to its halves.
type splitter struct {
	p     *Program
	set   *Settings
	apart bool       // oversize requests are a part of their own
	pool  []uint8    // by slot: the part that its block belongs to
	names [3][]int32 // by slot: its number in a half, plus one
	out   [3]*half
}

// keepsApart is whether oversize blocks and the others never become one another:
// no segment of max_split_size or more is ever asked for a smaller request.
func (p *Program) keepsApart(set *Settings) bool {
	for i := range p.ops {
		if o := &p.ops[i]; o.kind == opAlloc && set.MaxSplit > 0 {
			if size := set.round(o.size); size < set.MaxSplit && set.ask(size) >= set.MaxSplit {
				return false
			}
		}
	}
	return set.MaxSplit > 0
}

// part is where a request belongs.
func (s *splitter) part(size int64) int {
	if s.apart && s.set.round(size) >= s.set.MaxSplit {
		return 2
	}
	return s.set.poolOf(size)
}

// count is how many ops each part gets.
func (s *splitter) count() (n [3]int) {
	for i := range s.p.ops {
		switch o := &s.p.ops[i]; o.kind {
		case opAlloc:
			s.pool[o.slot] = uint8(s.part(o.size))
			n[s.pool[o.slot]]++
		case opFree:
			n[s.pool[o.slot]]++
		default:
			n[1]++
		}
	}
	return n
}

// take deals the ops from at up to end and returns end.
func (s *splitter) take(at, end int, freed []bool) int {
	for ; at < end; at++ {
		o := s.p.ops[at]
		h := 1 // what concerns both is the large pool's
		switch o.kind {
		case opAlloc:
			h = s.part(o.size)
			s.pool[o.slot] = uint8(h)
			if !freed[at] {
				o.kind, o.slot = opHold, 0
				break
			}
			o.slot = s.name(h, o.slot)
		case opFree:
			h = int(s.pool[o.slot])
			o.slot = s.name(h, o.slot)
		}
		o.event = int32(at)
		s.out[h].ops = append(s.out[h].ops, o)
	}
	return at
}

func (s *splitter) name(h int, slot int32) int32 {
	if s.names[h][slot] == 0 {
		s.out[h].slots++
		s.names[h][slot] = int32(s.out[h].slots)
	}
	return s.names[h][slot] - 1
}

// bound sets the bounds: none within a stretch, and one at each opFlush.
func (h *half) bound() {
	within := 0
	for i, last := 0, 0; i < len(h.ops); i++ {
		for within < len(h.repeated) && h.repeated[within].end() <= i {
			within++
		}
		if within < len(h.repeated) && h.repeated[within].start < i {
			continue
		}
		if h.ops[i].kind == opFlush || i-last >= stride {
			h.bounds = append(h.bounds, i)
			last = i
		}
	}
	h.bounds = append(h.bounds, len(h.ops))
}

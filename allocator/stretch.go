package allocator

import (
	"cmp"
	"hash/maphash"
	"math/bits"
	"slices"
)

// stretch is a part of a program that repeats one turn exactly: the same
// allocations, frees and slots, period ops to a turn. Once some turns together
// have left the allocator as they found it and have asked nothing of the driver,
// all further ones go round the same way, and a replay leaves them out.
type stretch struct {
	start  int
	period int
	turns  int
	// carried are the slots that live from turn to turn and are used within:
	// where their blocks lie is all of the state that a turn can change while
	// the driver is left alone, since free blocks are what lies between.
	carried []int32
}

func (s *stretch) end() int { return s.start + s.period*s.turns }

const (
	window      = 24 // ops that make a repetition worth a look
	maxPeriods  = 24 // distances looked at
	leastTurns  = 4  // two are executed, so that fewer save little
	leastLength = 512
)

// repeats is whether op o can be o2, a turn later.
func (o *op) repeats(o2 *op) bool {
	return o.kind <= opFree && o.kind == o2.kind && o.slot == o2.slot && o.size == o2.size && o.strm == o2.strm
}

// findStretches returns the stretches of a program, by start. They do not
// overlap; where some would, those that save most are kept.
func findStretches(ops []op) []stretch {
	var all []stretch
	for _, d := range distances(ops) {
		all = append(all, runsOf(ops, d.from, d.to, d.period)...)
	}
	slices.SortFunc(all, func(x, y stretch) int {
		return cmp.Or(cmp.Compare((y.turns-2)*y.period, (x.turns-2)*x.period), cmp.Compare(x.period, y.period), cmp.Compare(x.start, y.start))
	})
	var kept []stretch
	for _, s := range all {
		at, _ := slices.BinarySearchFunc(kept, s.start, func(k stretch, start int) int { return cmp.Compare(k.start, start) })
		if at > 0 && kept[at-1].end() > s.start || at < len(kept) && kept[at].start < s.end() {
			continue
		}
		s.carried = carried(ops[s.start : s.start+s.period])
		kept = slices.Insert(kept, at, s)
	}
	return kept
}

// distance is how far apart two windows of equal ops were seen, how often, and
// between which ops.
type distance struct{ period, count, from, to int }

// distances are the likely periods of a program: the distances between equal
// windows that lie closest together, those that cover most first.
func distances(ops []op) []distance {
	if len(ops) < leastLength {
		return nil
	}
	const base = 0x9e3779b97f4a7c15
	drop := uint64(1)
	for range window {
		drop *= base
	}
	last := newSeen(len(ops))
	found := map[int]*distance{}
	var hash uint64
	d := &distance{}
	for i := range ops {
		hash = hash*base + ops[i].hash()
		if i >= window {
			hash -= drop * ops[i-window].hash()
		}
		if at := last.note(hash, i); at >= 0 {
			if period := i - at; period != d.period { // most are as long as the one before
				if d = found[period]; d == nil {
					d = &distance{period: period, from: max(at-window, 0)}
					found[period] = d
				}
			}
			d.count++
			d.to = i
		}
	}
	var out []distance
	for _, d := range found {
		if d.to-d.from >= leastTurns*d.period {
			out = append(out, *d)
		}
	}
	slices.SortFunc(out, func(x, y distance) int {
		return cmp.Or(cmp.Compare(y.count*y.period, x.count*x.period), cmp.Compare(x.period, y.period))
	})
	return out[:min(len(out), maxPeriods)]
}

// seen tells where each hash was seen last. A map of that many took half of the
// time that it takes to build a program.
type seen struct {
	hashes []uint64 // by op
	slots  []int32  // ops, plus one; 0 is vacant
	shift  int
	// odd spreads the hashes over the slots. It differs from one to the next, so
	// that no trace can be made whose hashes meet; nothing but time hangs on it.
	odd uint64
}

func newSeen(n int) *seen {
	length := bits.Len(uint(2 * n))
	odd := maphash.Comparable(maphash.MakeSeed(), n) | 1
	return &seen{hashes: make([]uint64, n), slots: make([]int32, 1<<length), shift: 64 - length, odd: odd}
}

// note notes the hash of op i and returns the last op of the same, -1 without one.
func (s *seen) note(hash uint64, i int) int {
	s.hashes[i] = hash
	for k := hash * s.odd >> s.shift; ; k = (k + 1) & uint64(len(s.slots)-1) {
		at := int(s.slots[k]) - 1
		if at < 0 || s.hashes[at] == hash {
			s.slots[k] = int32(i + 1)
			return at
		}
	}
}

func (o *op) hash() uint64 {
	h := uint64(o.size)*0xbf58476d1ce4e5b9 ^ uint64(o.slot)<<16 ^ uint64(o.strm)<<8 ^ uint64(o.kind)
	h ^= h >> 29
	return h * 0x94d049bb133111eb
}

// runsOf are the stretches of one period between two ops.
func runsOf(ops []op, from, to, period int) []stretch {
	var out []stretch
	for i := from; i+period <= to; {
		n := i
		for n+period < len(ops) && ops[n].repeats(&ops[n+period]) {
			n++
		}
		if turns := (n + period - i) / period; n > i && turns >= leastTurns && turns*period >= leastLength {
			out = append(out, stretch{start: i, period: period, turns: turns})
		}
		i = n + 1
	}
	return out
}

// carried are the slots that a turn frees before it allocates them: they are
// live at each turn's begin.
func carried(turn []op) []int32 {
	var out []int32
	seen := map[int32]bool{}
	for i := range turn {
		o := &turn[i]
		if !seen[o.slot] && o.kind == opFree {
			out = append(out, o.slot)
		}
		seen[o.slot] = true
	}
	return out
}

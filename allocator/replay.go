package allocator

import (
	"fmt"
	"slices"
	"sort"
)

// ReplayOptions are the parts of a replay beyond settings and limit.
type ReplayOptions struct {
	Limit  Limit
	Layout Layout
	// DeviceTotal is the card's total in bytes; 0 is a card of 4 TiB, whose
	// ranges never fill up. It sizes the address space of expandable ranges only.
	DeviceTotal int64
	// Observe, when set, is called with each simulated event, addresses
	// included, so that a what-if run can be written as a trace of its own.
	Observe func(Event)
	// Stop, when set, is asked every few hundredths of a second; true ends the
	// replay, which is then Stopped.
	Stop  func() bool
	meter *meter // nil: one for Stop alone
}

// Replay runs a trace under other settings and a limit. It is Compile followed
// by Program.Replay.
func Replay(events []Event, s Settings, l Limit) (ReplayResult, error) {
	p, err := Compile(events)
	if err != nil {
		return ReplayResult{}, err
	}
	return p.Replay(s, ReplayOptions{Limit: l}), nil
}

// Replay executes the program under the given settings and limit and stops at
// the first out-of-memory.
func (p *Program) Replay(s Settings, o ReplayOptions) ReplayResult {
	r := p.start(s, o)
	r.run(len(p.ops))
	return r.result()
}

// replay is one execution in progress.
type replay struct {
	p       *Program
	a       *Allocator
	live    []int32 // by slot: its block
	flushes []int   // by slot, of a deferred free: see completeDeferred
	at      int     // the op that runs next, or runs now
	oomAt   int     // event of the refused allocation, -1 without one
	steps   int     // ops executed
	check   *checker
}

func (p *Program) start(s Settings, o ReplayOptions) *replay {
	a := New(s, o.Limit, o.DeviceTotal)
	a.blocks = make([]block, 1, p.slots+p.slots/8+64)
	a.observe = o.Observe
	a.meter = o.meter
	if o.meter == nil && o.Stop != nil {
		a.meter = &meter{stop: o.Stop}
	}
	var known []recorded
	if p.ranges == s.Expandable { // else the recorded addresses mean nothing
		known = p.segments
	}
	a.place = newPlacer(o.Layout, known)
	a.place.space.meter = a.meter
	for _, h := range p.streams {
		a.stream(h) // numbers agree with the program's
	}
	return &replay{p: p, a: a, live: make([]int32, p.slots), oomAt: -1}
}

// run executes ops up to but not including end, or to the first refusal, or as
// far as its meter lets it. It
// leaves out turns of a loop that would change nothing, unless someone watches
// (a check looks after the turns itself).
func (r *replay) run(end int) {
	if r.a.observe == nil && !r.a.ages { // ages count each allocation
		ahead := sort.Search(len(r.p.repeated), func(i int) bool { return r.p.repeated[i].end() > r.at })
		for _, s := range r.p.repeated[ahead:] { // many runs are short: most stretches lie before or behind
			if s.start >= end {
				break
			}
			if end < s.end() {
				s.turns = (end - s.start) / s.period
			}
			if s.turns > 0 && r.at < s.end() && !r.repeat(&s) {
				return
			}
		}
	}
	r.execute(end)
}

// opSteps are the steps that an op counts as (see meter).
const opSteps = 8

// execute runs ops one by one up to end; false when one is refused, or the meter
// ends the work.
func (r *replay) execute(end int) bool {
	a, live, ops, from := r.a, r.live, r.p.ops[:end], r.at
	a.meter.spend(opSteps * max(0, end-from))
	for i := from; i < len(ops); i++ {
		r.at = i
		if a.walked >= lookEvery && !a.goOn() {
			r.oomAt = int(ops[i].event) // no result: the caller asks the meter
			r.steps += i - from
			return false
		}
		switch o := &ops[i]; o.kind {
		case opAlloc, opHold:
			id := a.malloc(o.size, o.strm)
			if id == none {
				r.oomAt = int(o.event)
				r.steps += i - from
				return false
			}
			if o.kind == opHold {
				a.hold(id)
				continue
			}
			live[o.slot] = id
			if r.check != nil {
				r.check.alloc(r, o)
			}
		case opFree:
			a.free(live[o.slot])
			live[o.slot] = none
		default:
			r.rare(o)
		}
	}
	r.at = max(from, len(ops))
	r.steps += r.at - from
	return true
}

// rare executes the kinds of op that most programs have few of, or none.
func (r *replay) rare(o *op) {
	if r.flushes == nil {
		r.flushes = make([]int, r.p.slots)
	}
	switch o.kind {
	case opFreeDeferred:
		r.flushes[o.slot] = r.a.freeDeferred(r.live[o.slot])
	case opComplete:
		r.a.completeDeferred(r.live[o.slot], r.flushes[o.slot])
	case opFlush:
		r.a.flush()
	}
}

func (r *replay) result() ReplayResult {
	s := r.a.stats
	out := ReplayResult{
		OOM: r.oomAt >= 0, OOMAt: r.oomAt,
		PeakReserved: s.ReservedPeak, PeakAllocated: s.AllocatedPeak, PeakActive: s.ActivePeak,
		Reserved: s.Reserved, Allocated: s.Allocated, Retries: s.Retries, OOMs: s.OOMs,
	}
	if out.OOM {
		out.Tried = r.a.tried
	}
	if r.a.meter.over() {
		return ReplayResult{OOMAt: -1, Stopped: true}
	}
	return out
}

// checker compares a replay under the recorded settings with the recording.
type checker struct {
	report SelfCheckReport
	next   int // next recorded allocation
}

func (c *checker) alloc(r *replay, o *op) {
	want, got := r.p.addrs[c.next], r.a.blocks[r.live[o.slot]].addr
	c.next++
	c.report.Allocs++
	if want != got {
		c.miss(fmt.Sprintf("event %d: an allocation of %d bytes was recorded at %#x and replayed at %#x", o.event, o.size, want, got))
	}
}

// again is whether n more allocations were recorded at the places of those
// before, which go round in a cycle; they are then compared without execution.
func (c *checker) again(addrs []uint64, n, cycle int) bool {
	if c.report.Mismatches > 0 || c.next+n > len(addrs) || !slices.Equal(addrs[c.next:c.next+n], addrs[c.next-cycle:c.next+n-cycle]) {
		return false
	}
	c.next += n
	c.report.Allocs += n
	return true
}

func (c *checker) miss(text string) {
	if c.report.Mismatches == 0 {
		c.report.First = text
	}
	c.report.Mismatches++
}

// SelfCheck replays a recording under the settings it was made with. It is
// Compile followed by Program.SelfCheckUntil, without a stop.
func SelfCheck(events []Event, s Settings) (SelfCheckReport, error) {
	p, err := Compile(events)
	if err != nil {
		return SelfCheckReport{}, err
	}
	return p.SelfCheckUntil(s, nil)
}

// SelfCheckUntil is SelfCheck that ends where stop says so (ErrStopped; nil never
// does) or the recording takes too much work (ErrTooMuchWork).
func (p *Program) SelfCheckUntil(s Settings, stop func() bool) (SelfCheckReport, error) {
	m := &meter{most: maxWork, stop: stop}
	report, _ := p.selfCheck(s, m)
	if m.over() {
		return SelfCheckReport{}, m.gaveUp("to check the recording")
	}
	return report, nil
}

// SelfCheck gives simulated segments the recorded addresses and compares where
// each allocation lands: the k-th segment must have the recorded size, every
// allocation the recorded place. A program of a Family has nothing to compare:
// its report is empty.
func (p *Program) SelfCheck(s Settings) SelfCheckReport {
	report, _ := p.selfCheck(s, nil)
	return report
}

// selfCheck also returns the replay; nil of a program that nobody recorded.
func (p *Program) selfCheck(s Settings, m *meter) (SelfCheckReport, *replay) {
	if p.synthetic {
		return SelfCheckReport{}, nil
	}
	r := p.start(s, ReplayOptions{meter: m})
	r.check = &checker{}
	segments := 0
	r.a.sweep.got = func(size int64) { // Observe would see every allocation too
		if segments >= len(p.segments) || p.segments[segments].size != size {
			r.check.miss(fmt.Sprintf("segment %d: the replay asks the driver for %d bytes, the recording shows another request there", segments, size))
		}
		segments++
	}
	r.run(len(p.ops))
	if r.oomAt >= 0 {
		r.check.miss(fmt.Sprintf("event %d: the replay without a limit ran out of memory", r.oomAt))
	}
	if segments < len(p.segments) && p.oomAt < 0 {
		r.check.miss(fmt.Sprintf("the recording shows %d segments, the replay asked for %d", len(p.segments), segments))
	}
	r.check.report.Segments = segments
	return r.check.report, r
}

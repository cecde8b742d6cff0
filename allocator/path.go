package allocator

import "slices"

// path is a replay under one limit and layout, put together from what the two
// pools do. It holds what they do not know: the limit, and where the segments
// lie.
type path struct {
	place    placer
	pools    [2]cursor
	over     oversize
	cached   []uint64 // small segments that hold nothing, by address
	limit    int64
	reserved int64
	peak     int64
	passed   int64 // largest value that the limit let through
	retries  int
	last     bool // the small pool's request waits after a flush
	pressed  int  // how often a request of another pool has made the large one flush
	walked   int  // nodes so far
}

// copiesApart is how many nodes lie between copies at least: to walk over what the
// pools know already costs less than a copy.
const copiesApart = 16

// hardPressed is how many flushes for requests of others make it likely that the
// next one, too, comes before the large pool's next request.
const hardPressed = 4

// cursor is where a path is in a pool.
type cursor struct {
	from   *node
	answer int32
	edge   *edge
	done   int      // how many of the edge's segments have left
	segs   []uint64 // addresses of the pool's segments, ascending
}

// paths replays a divisible program under falling limits. A path is resumed
// from a copy taken where the limit first matters.
type paths struct {
	p      *Program
	layout Layout
	floor  int64 // no copy for limits below
	pools  [2]*pool
	before int // steps of the pools, for other layouts
	passes int // oversize ops done
	now    path
	copies []*path
	spare  []*path
	meter  *meter
}

func newPaths(p *Program, layout Layout, floor int64, pools [2]*pool) *paths {
	s := &paths{p: p, layout: layout, floor: floor, pools: pools, meter: pools[0].meter}
	s.before = s.steps()
	return s
}

func (s *paths) start(limit int64) {
	s.now = path{place: newPlacer(s.layout, nil), limit: limit}
	if !s.p.ranges {
		s.now.place = newPlacer(s.layout, s.p.segments)
	}
	s.now.place.space.meter = s.meter
	s.now.over.live = make([]span, s.pools[1].over.slots)
	for h, m := range s.pools {
		s.now.pools[h].edge = &edge{to: m.root, flushes: true}
	}
}

// replay runs under a limit that is lower than those before.
func (s *paths) replay(limit int64) ReplayResult {
	n := len(s.copies)
	for ; n > 0 && s.copies[n-1].passed > limit; n-- {
		s.spare = append(s.spare, s.copies[n-1])
	}
	if s.copies = s.copies[:n]; n == 0 {
		s.start(limit)
	} else {
		s.now.copyFrom(s.copies[n-1])
		s.now.limit = limit
	}
	oom := !s.run()
	return ReplayResult{OOM: oom, Retries: s.now.retries, PeakReserved: s.now.peak}
}

func (s *paths) reach() (passed, idle int64) { return s.now.passed, 0 }

func (s *paths) tied() bool { return s.pools[0].tied || s.pools[1].tied }

func (s *paths) steps() int {
	return s.pools[0].run.steps + s.pools[1].run.steps - s.before + s.passes
}

// run goes on to the end; false where a request is refused for good.
func (s *paths) run() bool {
	x := &s.now
	for !s.meter.over() {
		s.meter.spend(nodeSteps + x.lists()/4)
		h := 0
		if x.pools[1].edge.to.time < x.pools[0].edge.to.time {
			h = 1
		}
		n := x.pools[h].edge.to
		if s.overBefore(n.time) {
			if !s.advance(n.time) {
				return false
			}
			continue // a flush may have changed what comes next
		}
		x.walked++
		x.leave(h, n.time)
		switch n.kind {
		case nodeEnd:
			return true // the other one is at its end too
		case nodeBound:
			s.step(h, n, goOn)
		case nodeFlush:
			s.step(h, n, goOn)
			x.leave(h, n.time+1)
			x.drop(n.time)
		default:
			if !s.serve(h, n) {
				return false
			}
		}
	}
	return false // as far as the meter lets it
}

// nodeSteps are the steps that a node of a path counts as (see meter), beside
// what its lists take.
const nodeSteps = 32

// lists is how much a path has to move to put something in its place.
func (x *path) lists() int {
	return len(x.cached) + len(x.pools[0].segs) + len(x.pools[1].segs) + len(x.over.free)
}

// step goes on from a node.
func (s *paths) step(h int, n *node, answer int32) {
	c, until := &s.now.pools[h], int32(0)
	if h == 1 && s.now.pressed >= hardPressed {
		until = min(s.now.pools[0].edge.to.time, s.nextOversize(n.time))
	}
	c.from, c.answer, c.edge, c.done = n, answer, s.pools[h].step(n, answer, until), 0
}

// serve answers a request; false where it is refused for good.
func (s *paths) serve(h int, n *node) bool {
	x := &s.now
	if h == 0 && len(x.cached) > 0 {
		addr := x.cached[0]
		x.cached = slices.Delete(x.cached, 0, 1)
		s.step(h, n, x.insert(h, addr))
		return true
	}
	s.save(x.reserved + n.want)
	addr, ok := x.ask(n.want)
	if !ok && h == 1 && n.kind == nodeAsk && len(x.over.free) > 0 {
		x.release(0)
		addr, ok = x.ask(n.want)
	}
	if ok {
		x.last = false
		s.step(h, n, x.insert(h, addr))
		return true
	}
	if n.kind == nodeAskLast || x.last {
		return false
	}
	if h == 1 {
		s.step(1, n, refused)
		x.leave(1, n.time+1)
		if x.pools[1].edge.to.kind == nodeAskLess {
			return true
		}
	} else {
		s.flushLarge(n.time)
		x.last = true
	}
	x.retries++
	x.drop(n.time)
	return true
}

// flushLarge flushes the large pool for a request that is not its own.
func (s *paths) flushLarge(time int32) {
	c := &s.now.pools[1]
	s.now.leave(1, time)
	if e := s.pools[1].flushed(c.from, c.answer, time, c.edge); e != c.edge {
		c.edge = e
		s.now.pressed++
	}
	s.now.leave(1, time+1)
}

// ask asks the driver; false where the limit refuses.
func (x *path) ask(want int64) (addr uint64, ok bool) {
	v := x.reserved + want
	if v > x.limit {
		return 0, false
	}
	x.passed, x.peak, x.reserved = max(x.passed, v), max(x.peak, v), v
	return x.place.take(want, want), true
}

// insert files a segment of a pool and returns its rank.
func (x *path) insert(h int, addr uint64) int32 {
	c := &x.pools[h]
	i, _ := slices.BinarySearch(c.segs, addr)
	c.segs = slices.Insert(c.segs, i, addr)
	return int32(i)
}

// leave takes out the segments that leave a pool before a time.
func (x *path) leave(h int, time int32) {
	c := &x.pools[h]
	for ; c.done < len(c.edge.outs) && c.edge.outs[c.done].time < time; c.done++ {
		out := &c.edge.outs[c.done]
		addr := c.segs[out.index]
		x.place.space.meter.scan((len(c.segs) + len(x.cached)) / 4)
		c.segs = slices.Delete(c.segs, int(out.index), int(out.index)+1)
		switch {
		case out.held:
		case h == 0:
			i, _ := slices.BinarySearch(x.cached, addr)
			x.cached = slices.Insert(x.cached, i, addr)
		default:
			x.place.give(addr, out.size)
			x.reserved -= out.size
		}
	}
}

// drop is what a flush at a time does beside the large pool: oversize segments and
// cached small ones go back to the driver.
func (x *path) drop(time int32) {
	for len(x.over.free) > 0 {
		x.release(0)
	}
	x.leave(0, time)
	for _, addr := range x.cached {
		x.place.give(addr, smallSegment)
		x.reserved -= smallSegment
	}
	x.cached = x.cached[:0]
}

// save keeps a copy before a request that no limit so far had to let through.
func (s *paths) save(v int64) {
	n := len(s.copies)
	if n > 0 && (n+1)*32*(s.now.lists()+len(s.now.place.log)) > keptBytes {
		return
	}
	if v <= s.now.passed || v < s.floor || n >= maxCheckpoints || n > 0 && s.now.walked-s.copies[n-1].walked < copiesApart {
		return
	}
	c := &path{}
	if k := len(s.spare); k > 0 {
		c, s.spare = s.spare[k-1], s.spare[:k-1]
	}
	s.now.place.learn() // once for all paths that are resumed here
	c.copyFrom(&s.now)
	s.meter.scan(s.now.lists() + len(s.now.place.log))
	s.copies = append(s.copies, c)
}

// copyFrom makes x what src is, in x's own memory.
func (x *path) copyFrom(src *path) {
	old := *x
	*x = *src
	x.place.copyLists(&old.place, &src.place)
	x.cached = append(old.cached[:0], src.cached...)
	x.over.copyLists(&old.over, &src.over)
	for h := range x.pools {
		x.pools[h].segs = append(old.pools[h].segs[:0], src.pools[h].segs...)
	}
}

package allocator

import (
	"cmp"
	"math"
	"slices"
	"sort"
)

// pool replays one half of a program once for each distinct state, whatever the
// quota and the layout of addresses. It asks the driver for nothing: it stops at
// each request (a node) and goes on with the answer (an edge): refused, or
// granted a segment. Of addresses only their order matters, so that an answer
// names the new segment's rank among those of the pool. States in which the same
// blocks lie in the same places of segments of the same order are one node, and
// what follows from a node is executed once.
//
// Whole free segments of the small pool are not kept but leave at once: in it
// they serve a request only when nothing else does, just as a new one, so that
// the pool's course does not depend on how many there are. A path keeps them.
type pool struct {
	half *half
	over *half    // of the large pool: the oversize requests, which it leaves out
	size uint16   // 0: the small pool, 1: the large one, as in a block's set
	run  *replay  // stands at node at
	segs []uint64 // of run: bases of segments, ascending
	at   *node    // nil: run stands at no node
	leaving
	tied bool // addresses decided something

	root  *node // before the first op
	nodes map[string]*node
	room  scratch
	meter *meter
}

// leaving is what becomes known of the edge that is being run.
type leaving struct {
	outs   []passing
	passed int  // how many outs there were before the last flush
	tight  bool // of the edge
	bare   bool // of the node that it comes to
}

// scratch is memory that a pool uses again and again.
type scratch struct {
	key    []byte
	first  []int32 // by segment, its first block
	owner  []int32 // by block, its slot
	way    []*node
	last   kept // of node lastOf, which a flush is likely to come back to
	lastOf *node
	nodes  []node // to be handed out: there are thousands
	edges  []edge
	outs   []passing // edges have those before its length
}

const (
	// apartBytes lie between the bases of a pool's segments at least, farBytes
	// if there is room.
	apartBytes = uint64(1) << 41
	farBytes   = uint64(1) << 48
	// maxNodes bounds the states that a pool remembers, at some 10 KiB each.
	maxNodes = 20_000
)

// nodeKind is why a replay of a half stopped.
type nodeKind uint8

const (
	nodeBound   nodeKind = iota // at a bound, for equal states to meet
	nodeAsk                     // the driver is asked
	nodeAskLess                 // again, after oversize blocks were released
	nodeAskLast                 // again, after a flush
	nodeFlush                   // the program empties the cache
	nodeEnd
)

// kept is the state of a pool's run: of its allocator what a pool changes.
type kept struct {
	blocks  []block
	set     freeSet
	vacancy int32
	born    int32
	live    []int32
	segs    []uint64
	at      int
}

// The answers at nodes that are no granted rank.
const (
	goOn    = int32(0)
	refused = int32(-1)
)

// node is a state in which a pool waits for an answer.
type node struct {
	kind  nodeKind
	want  int64    // asked of the driver
	time  int32    // op of the whole program that comes next, or waits
	kept  *kept    // nil: to be had from the node before
	first answered // most nodes get one answer only
	next  []answered

	before *node
	way    way  // that led here from before
	sought int  // how often its state was had from there
	bare   bool // no whole segment is free, so that a flush releases nothing
}

// answered is how a pool goes on after an answer.
type answered struct {
	answer int32
	edge   *edge
}

// way is how a pool goes on from a node.
type way struct {
	answer int32
	flush  int32 // time of a flush that ends it, 0 without
	until  int32 // time before which it ends, 0 at the next bound or request
}

// edge is what a pool does from one node to the next.
type edge struct {
	outs    []passing
	to      *node
	flushed map[int32]*edge // by time: the same with a flush there
	flushes bool            // there was one, or nothing, since the last op
	tight   bool            // a flush would have released nothing at any time
}

// passing is a segment that leaves the pool.
type passing struct {
	time  int32 // op of the whole program
	index int32 // its rank
	size  int64
	held  bool // full for good: it stays with the program
}

func newPool(h *half, set Settings, size uint16, work *meter) *pool {
	m := &pool{half: h, size: size, nodes: map[string]*node{}, meter: work}
	m.run = h.start(set, ReplayOptions{Layout: LayoutAscending, meter: work})
	hooks := &m.run.a.sweep
	hooks.asks, hooks.gives, hooks.gone = true, size == 0, m.gone
	hooks.tie = func() {
		m.tied = true
		hooks.tie = nil // once is enough
	}
	m.bare = true
	m.root = m.node(m.kind())
	return m
}

func newPools(p *Program, set *Settings, m *meter) *[2]*pool {
	parts := p.halves(set)
	out := &[2]*pool{newPool(parts[0], *set, 0, m), newPool(parts[1], *set, 1, m)}
	out[1].over = parts[2]
	return out
}

// gone notes a segment that leaves.
func (m *pool) gone(id int32) {
	b := &m.run.a.blocks[id]
	i, _ := slices.BinarySearch(m.segs, b.addr)
	m.meter.scan((len(m.segs) - i) / 4)
	m.segs = slices.Delete(m.segs, i, i+1)
	m.outs = append(m.outs, passing{time: m.time(), index: int32(i), size: b.size, held: b.state == held})
}

// time is the op of the whole program that the half's next one is.
func (m *pool) time() int32 {
	if m.run.at == len(m.half.ops) {
		return math.MaxInt32
	}
	return m.half.ops[m.run.at].event
}

// step is the edge of a node for an answer. Where it is new it may end before a
// time, if that is not 0.
func (m *pool) step(n *node, answer, until int32) *edge {
	if e := n.after(answer); e != nil {
		return e
	}
	m.stand(n)
	if n.way.flush > 0 {
		m.room.last.save(m)
		m.room.lastOf = n
	}
	e := m.newEdge()
	e.to = m.arrive(n, way{answer: answer, until: until})
	e.outs, e.tight = m.claim(), m.tight
	if n.first.edge == nil {
		n.first = answered{answer, e}
	} else {
		n.next = append(n.next, answered{answer, e})
	}
	return e
}

// after is the edge of an answer that was given before; nil without one.
func (n *node) after(answer int32) *edge {
	if n.first.answer == answer {
		return n.first.edge
	}
	for _, a := range n.next {
		if a.answer == answer {
			return a.edge
		}
	}
	return nil
}

// flushed is edge e of a node with a flush at a time before e.to; e itself where
// nothing is released.
func (m *pool) flushed(n *node, answer, time int32, e *edge) *edge {
	if f := e.flushed[time]; f != nil || e.flushes || e.tight {
		return cmp.Or(f, e)
	}
	w := way{answer: answer, flush: time}
	f := m.newEdge()
	f.flushes = true
	if m.at == e.to && m.run.at == m.opAt(time) { // run stands there
		m.outs, m.passed = append(m.room.outs[len(m.room.outs):], e.outs...), len(e.outs)
		m.run.a.flush()
		m.bare = true
		f.to = m.light(n, w, m.kind())
	} else {
		m.stand(n)
		f.to = m.arrive(n, w)
	}
	if f.outs = m.claim(); len(f.outs) == m.passed {
		f = e
	}
	for i := m.passed; i < len(f.outs) && f != e; i++ {
		f.outs[i].time = time
	}
	if e.flushed == nil {
		e.flushed = map[int32]*edge{}
	}
	e.flushed[time] = f
	return f
}

// arrive goes on from a node, at which run stands, and is the node reached.
func (m *pool) arrive(n *node, w way) *node {
	kind := m.leg(n, w)
	if w.flush > 0 || kind == nodeAsk || kind == nodeAskLess || kind == nodeAskLast {
		return m.light(n, w, kind)
	}
	if _, bound := slices.BinarySearch(m.half.bounds, m.run.at); !bound {
		return m.light(n, w, kind)
	}
	m.at = m.node(kind)
	return m.at
}

// light is a new node that keeps no state, where run stands.
func (m *pool) light(n *node, w way, kind nodeKind) *node {
	m.at = m.newNode()
	*m.at = node{kind: kind, time: m.time(), before: n, way: w, bare: m.bare}
	if kind == nodeAsk || kind == nodeAskLess || kind == nodeAskLast {
		set := &m.run.a.set
		m.at.want = set.ask(set.round(m.half.ops[m.run.at].size))
	}
	return m.at
}

// leg executes what follows an answer.
func (m *pool) leg(n *node, w way) nodeKind {
	m.at, m.outs, m.tight = nil, m.room.outs[len(m.room.outs):], false
	m.bare = false
	a := m.run.a
	switch {
	case n.kind == nodeFlush:
		a.flush()
		m.run.at++
	case n.kind == nodeAsk && w.answer == refused && a.maxSplit != unlimited &&
		a.releaseOversize(m.size, a.set.round(m.half.ops[m.run.at].size)):
		return nodeAskLess
	case w.answer == refused:
		a.flush()
		m.bare = true
		return nodeAskLast
	case n.kind != nodeBound:
		m.grant(int(w.answer), n.want)
	}
	from := m.run.at + 1
	if n.kind == nodeFlush {
		from-- // two flushes may follow one another
	}
	end := len(m.half.ops)
	if next, _ := slices.BinarySearch(m.half.bounds, from); next < len(m.half.bounds) {
		end = m.half.bounds[next]
	}
	if w.flush > 0 {
		end = m.opAt(w.flush)
	} else if w.until > 0 {
		end = min(end, m.opAt(w.until))
	}
	a.sweep.loose = !n.bare && n.kind != nodeFlush
	m.run.run(end)
	m.tight = !a.sweep.loose
	m.bare = m.tight
	if w.flush > 0 {
		m.passed = len(m.outs)
		a.flush()
		m.bare = true
	}
	return m.kind()
}

// opAt is the half's first op at or after a time.
func (m *pool) opAt(time int32) int {
	ops := m.half.ops
	return sort.Search(len(ops), func(i int) bool { return ops[i].event >= time })
}

// kind is what run has stopped at.
func (m *pool) kind() nodeKind {
	switch r := m.run; {
	case r.oomAt >= 0:
		r.oomAt = -1
		return nodeAsk
	case r.at == len(m.half.ops):
		return nodeEnd
	case m.half.ops[r.at].kind == opFlush:
		return nodeFlush
	}
	return nodeBound
}

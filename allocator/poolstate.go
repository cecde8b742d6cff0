package allocator

import (
	"encoding/binary"
	"errors"
	"math"
	"slices"
)

// longWay is how many nodes may lie between two whose states are kept, if one of
// them is come back to.
const longWay = 8

// stand puts run at a node: from the state that was kept nearest before it, on
// the way that led from there.
func (m *pool) stand(n *node) {
	if m.at == n {
		return
	}
	way, from, steps := m.room.way[:0], n, m.run.steps
	for ; from.kept == nil && from != m.room.lastOf; from = from.before {
		way = append(way, from)
	}
	if from.kept != nil {
		m.restore(from.kept)
	} else {
		m.restore(&m.room.last)
	}
	for i := len(way) - 1; i >= 0; i-- {
		m.leg(way[i].before, way[i].way)
	}
	if n.sought++; n.kept == nil && (n.sought > 1 || len(way) > longWay || m.run.steps-steps > stride/2) {
		n.kept = &kept{}
		n.kept.save(m)
		m.keep(n.kept.bytes())
	}
	m.at, m.room.way = n, way
}

// save keeps run's state.
func (k *kept) save(m *pool) {
	a := m.run.a
	k.blocks = append(k.blocks[:0], a.blocks...)
	k.set, k.vacancy, k.born = a.sets[m.size], a.vacancy, a.born
	k.live = append(k.live[:0], m.run.live...)
	k.segs = append(k.segs[:0], m.segs...)
	k.at = m.run.at
	m.meter.scan(k.bytes() / 16)
}

func (k *kept) bytes() int {
	return keptSize + len(k.blocks)*blockBytes + len(k.live)*4 + len(k.segs)*8
}

// errManyStates ends the work of pools whose states take too much memory.
var errManyStates = errors.New("the pools have too many large states to keep")

// statesBytes bounds what the states and nodes of both pools take.
const statesBytes = 1 << 30

// keep counts memory that the pool keeps until the sweep ends.
func (m *pool) keep(bytes int) {
	if m.meter == nil {
		return
	}
	if m.meter.kept += int64(bytes); m.meter.kept > statesBytes && m.meter.err == nil {
		m.meter.err = errManyStates
	}
}

// restore puts run where it was saved.
func (m *pool) restore(k *kept) {
	a := m.run.a
	a.blocks = append(a.blocks[:0], k.blocks...)
	a.sets[m.size], a.vacancy, a.born = k.set, k.vacancy, k.born
	m.run.live = append(m.run.live[:0], k.live...)
	m.segs = append(m.segs[:0], k.segs...)
	m.run.at = k.at
	m.meter.scan(len(k.blocks) * 2)
}

// slab is how many nodes, edges and passings are made at once.
const slab = 64

func (m *pool) newNode() *node {
	if len(m.room.nodes) == 0 {
		m.room.nodes = make([]node, slab)
		m.keep(slab * nodeBytes)
	}
	n := &m.room.nodes[0]
	m.room.nodes = m.room.nodes[1:]
	return n
}

// claim is outs, for an edge to keep.
func (m *pool) claim() []passing {
	n, at := len(m.outs), len(m.room.outs)
	out := m.outs[:n:n]
	switch m.outs = nil; {
	case n <= cap(m.room.outs)-at: // they lie there
		m.room.outs = m.room.outs[:at+n]
	default:
		m.room.outs = make([]passing, 0, slab)
		m.keep(max(n, slab) * passingBytes)
	}
	return out
}

func (m *pool) newEdge() *edge {
	if len(m.room.edges) == 0 {
		m.room.edges = make([]edge, slab)
		m.keep(slab * edgeBytes)
	}
	e := &m.room.edges[0]
	m.room.edges = m.room.edges[1:]
	return e
}

// grant gives the pool a segment, of a rank among those it has.
func (m *pool) grant(rank int, want int64) {
	a := m.run.a
	base := m.baseAt(rank)
	if base == 0 {
		m.spread()
		base = m.baseAt(rank)
	}
	m.meter.scan((len(m.segs) - rank) / 4)
	m.segs = slices.Insert(m.segs, rank, base)
	a.born++
	a.sweep.grant = a.newBlock(block{addr: base, size: want, segment: -a.born, set: m.size})
}

// baseAt is a base between two of the pool's segments, 0 where there is no room.
func (m *pool) baseAt(rank int) uint64 {
	low, high := uint64(0), uint64(math.MaxInt64)
	if rank > 0 {
		low = m.segs[rank-1]
	}
	if rank < len(m.segs) {
		high = m.segs[rank]
	}
	switch {
	case high-low < 2*apartBytes:
		return 0
	case low == 0 && high != math.MaxInt64:
		low = max(low, high-min(high, 2*farBytes))
	case high == math.MaxInt64 && low != 0:
		high = min(high, low+2*farBytes)
	}
	return low + (high-low)/2
}

// spread gives all segments new bases, equally far from one another.
func (m *pool) spread() {
	blocks := m.run.a.blocks
	far := min(farBytes, math.MaxInt64/uint64(len(m.segs)+1))
	for i, id := range m.heads() {
		base := uint64(i+1) * far
		m.segs[i] = base
		for ; id != none; id = blocks[id].next {
			blocks[id].addr = base
			base += uint64(blocks[id].size)
		}
	}
}

// heads are the first blocks of the pool's segments.
func (m *pool) heads() []int32 {
	m.meter.scan(len(m.run.a.blocks))
	m.room.first = slices.Grow(m.room.first[:0], len(m.segs))[:len(m.segs)]
	for id := range m.run.a.blocks {
		if b := &m.run.a.blocks[id]; b.state != vacant && b.prev == none {
			i, _ := slices.BinarySearch(m.segs, b.addr)
			m.room.first[i] = int32(id)
		}
	}
	return m.room.first
}

// node is the node of run's state, at no request.
func (m *pool) node(kind nodeKind) *node {
	m.describe(kind)
	n := m.nodes[string(m.room.key)]
	if n == nil {
		n = m.newNode()
		*n = node{kind: kind, time: m.time(), kept: &kept{}}
		n.kept.save(m)
		m.keep(n.kept.bytes() + len(m.room.key))
		if len(m.nodes) >= maxNodes {
			clear(m.nodes)
		}
		m.nodes[string(m.room.key)] = n
	}
	n.bare = n.bare || m.bare
	m.at = n
	return n
}

// describe writes all that the pool's course from here depends on.
func (m *pool) describe(kind nodeKind) {
	a, live := m.run.a, m.run.live
	m.room.owner = slices.Grow(m.room.owner[:0], len(a.blocks))[:len(a.blocks)]
	for slot, id := range live {
		m.room.owner[id] = int32(slot)
	}
	key := binary.AppendUvarint(append(m.room.key[:0], byte(kind)), uint64(m.run.at))
	for _, id := range m.heads() {
		for ; id != none; id = a.blocks[id].next {
			b := &a.blocks[id]
			what := uint64(b.state)
			if b.state == used {
				what = uint64(held) + 1 + uint64(m.room.owner[id])
			}
			key = binary.AppendUvarint(binary.AppendUvarint(key, uint64(b.size)/minBlock), what)
		}
		key = append(key, 0)
	}
	m.room.key = key
}

package allocator

import "slices"

// step is an operation without its size, named so that it reads the same in
// every run of a program: an allocation by its stream, a free by how many live
// blocks were allocated after the one it frees, a completion likewise among the
// deferred frees. Slots and addresses would differ from one turn of a loop to
// the next.
type step struct {
	kind opKind
	arg  int32
}

// shapeOf gives the steps of a compiled trace, and the size of each (0 for all
// but allocations).
func shapeOf(p *Program) ([]step, []int64) {
	steps, sizes := make([]step, len(p.ops)), make([]int64, len(p.ops))
	live, pending := newRanks(p.slots), newRanks(p.slots)
	for i := range p.ops {
		o := &p.ops[i]
		steps[i].kind = o.kind
		switch o.kind {
		case opAlloc:
			live.add(o.slot)
			steps[i].arg, sizes[i] = o.strm, o.size
		case opFree, opFreeDeferred:
			steps[i].arg = live.takeOut(o.slot)
			if o.kind == opFreeDeferred {
				pending.add(o.slot)
			}
		case opComplete:
			steps[i].arg = pending.takeOut(o.slot)
		}
	}
	return steps, sizes
}

// ranks are slots in the order in which they came; each leaves at the price of a
// logarithm, wherever it stands.
type ranks struct {
	at   []int32 // by slot, its place in tree
	tree []int32 // of counts, binary indexed; from 1
	n    int32   // slots that have not left
}

func newRanks(slots int) *ranks { return &ranks{at: make([]int32, slots), tree: make([]int32, 1)} }

func (r *ranks) add(slot int32) {
	i := int32(len(r.tree))
	count := int32(1)
	for j := i - 1; j > i-i&-i; j -= j & -j {
		count += r.tree[j]
	}
	r.tree = append(r.tree, count)
	r.at[slot] = i
	r.n++
}

// takeOut removes a slot and returns how many stood behind it.
func (r *ranks) takeOut(slot int32) int32 {
	at, behind := r.at[slot], r.n
	if at == 0 {
		panic("allocator: a compiled trace frees a slot that is not live")
	}
	for i := at; i > 0; i -= i & -i {
		behind -= r.tree[i]
	}
	for i := at; i < int32(len(r.tree)); i += i & -i {
		r.tree[i]--
	}
	r.at[slot] = 0
	r.n--
	return behind
}

// takeOut removes a slot of a short list and returns how many stood behind it.
func takeOut(list *[]int32, slot int32) int32 {
	for i := len(*list) - 1; i >= 0; i-- {
		if (*list)[i] == slot {
			behind := len(*list) - 1 - i
			*list = slices.Delete(*list, i, i+1)
			return int32(behind)
		}
	}
	panic("allocator: a compiled trace frees a slot that is not live")
}

// builder turns steps back into a program.
type builder struct {
	p       Program
	live    []int32
	pending []int32
	slots   slots
	moved   int // slots, to free one from among others
}

// mostMoved bounds what a builder moves: some seconds.
const mostMoved = 1 << 34

// add appends one step; false when it names a block that does not exist.
func (b *builder) add(s step, size int64) bool {
	o := op{kind: s.kind, event: int32(len(b.p.ops)), size: size}
	list := &b.live
	switch s.kind {
	case opAlloc:
		o.strm = s.arg
		o.slot = b.slots.take()
		b.live = append(b.live, o.slot)
	case opComplete, opFree, opFreeDeferred:
		if s.kind == opComplete {
			list = &b.pending
		}
		at := len(*list) - 1 - int(s.arg)
		if at < 0 || s.arg < 0 {
			return false
		}
		o.slot = (*list)[at]
		*list = slices.Delete(*list, at, at+1)
		b.moved += int(s.arg)
		if s.kind == opFreeDeferred {
			b.pending = append(b.pending, o.slot)
		} else {
			b.slots.give(o.slot)
		}
	}
	b.p.ops = append(b.p.ops, o)
	return true
}

// program is what was built.
func (b *builder) program() *Program {
	b.p.slots = b.slots.n
	b.p.repeated = findStretches(b.p.ops)
	return &b.p
}

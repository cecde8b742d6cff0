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
	var live, pending []int32
	for i := range p.ops {
		o := &p.ops[i]
		steps[i].kind = o.kind
		switch o.kind {
		case opAlloc:
			live = append(live, o.slot)
			steps[i].arg, sizes[i] = o.strm, o.size
		case opFree, opFreeDeferred:
			steps[i].arg = takeOut(&live, o.slot)
			if o.kind == opFreeDeferred {
				pending = append(pending, o.slot)
			}
		case opComplete:
			steps[i].arg = takeOut(&pending, o.slot)
		}
	}
	return steps, sizes
}

// takeOut removes a slot and returns how many stood behind it.
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
}

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

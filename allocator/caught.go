package allocator

// Caught says how a workload goes on that catches a refusal: it gives back what
// it allocated since event From of its program, empties the cache and begins
// again there, as program Then does. Up to From both programs do the same.
type Caught struct {
	From int
	Then *Program
}

// CaughtResult is what a replay with a caught refusal came to. The embedded
// result counts both attempts; its OOMAt is an event of Then. Refused is the
// event of the program at which the first attempt was refused, -1 when it was
// not; such a run is an ordinary one.
type CaughtResult struct {
	ReplayResult
	Refused int
}

// ReplayCaught is Replay of a workload that catches one refusal. Observe sees
// both attempts and the refusal between them. A refusal before event From, and
// a second one, end the run.
func (p *Program) ReplayCaught(s Settings, o ReplayOptions, c Caught) CaughtResult {
	r := p.start(s, o)
	r.run(len(p.ops))
	if r.oomAt < 0 || r.oomAt < c.From {
		return CaughtResult{ReplayResult: r.result(), Refused: -1}
	}
	refused := r.oomAt
	r.unwind(c.From)
	r.a.flush()
	r.p, r.oomAt = c.Then, -1
	r.live = append(r.live, make([]int32, max(0, c.Then.slots-len(r.live)))...)
	r.at = c.Then.opFrom(c.From)
	r.execute(len(c.Then.ops))
	return CaughtResult{ReplayResult: r.result(), Refused: refused}
}

// unwind gives back what was allocated since an event, the newest first, as
// frames on a stack would.
func (r *replay) unwind(from int) {
	var held []int32
	for i := r.p.opFrom(from); i < r.at; i++ {
		switch o := &r.p.ops[i]; o.kind {
		case opAlloc:
			held = append(held, o.slot)
		case opFree, opFreeDeferred:
			takeOut(&held, o.slot)
		}
	}
	for i := len(held) - 1; i >= 0; i-- {
		r.a.free(r.live[held[i]])
		r.live[held[i]] = none
	}
}

// opFrom is the first op of an event or of one behind it.
func (p *Program) opFrom(event int) int {
	for i := range p.ops {
		if int(p.ops[i].event) >= event {
			return i
		}
	}
	return len(p.ops)
}

package fleetsim

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/oomfleet/oomfleet/allocator"
	"github.com/oomfleet/oomfleet/proto"
)

// workload is an invented program: what it allocates at a length and batch, in
// which order it frees. Sizes are polynomials, as those of real models are.
type workload struct{ ops []op }

// op allocates c0 + c1 B L + c2 B L^2 bytes, or frees what an earlier op allocated.
type op struct {
	frees      int // the op that allocated; -1 for an allocation
	c0, c1, c2 int64
}

// drawWorkload draws weights that stay and activations that come and go, out of
// step, so that what is free lies in pieces and some quotas fail above others
// that pass.
func drawWorkload(r *rand.Rand) workload {
	var w workload
	for range 1 + r.IntN(2) {
		w.ops = append(w.ops, op{frees: -1, c0: int64(20+r.IntN(300))<<20 + int64(r.IntN(1<<20))})
	}
	var held []int
	for range 16 + r.IntN(24) {
		if len(held) > 0 && r.IntN(2) == 0 {
			i := r.IntN(len(held))
			w.ops = append(w.ops, op{frees: held[i]})
			held = slices.Delete(held, i, i+1)
			continue
		}
		held = append(held, len(w.ops))
		w.ops = append(w.ops, op{frees: -1, c0: int64(r.IntN(64 << 20)), c1: int64(r.IntN(60_000)), c2: int64(r.IntN(900))})
	}
	for _, at := range held {
		w.ops = append(w.ops, op{frees: at})
	}
	return w
}

// events is the program as a trace without places: an allocator's replay gives them.
func (w workload) events(seqLen, batch int) []allocator.Event {
	var events []allocator.Event
	sizes := make([]int64, len(w.ops))
	l, b := int64(seqLen), int64(batch)
	for i, o := range w.ops {
		at := i
		action := allocator.Alloc
		if o.frees >= 0 {
			at, action = o.frees, allocator.FreeRequested
		} else {
			sizes[i] = o.c0 + o.c1*b*l + o.c2*b*l*l + 512
		}
		e := allocator.Event{Action: action, Addr: uint64(at+1) << 40, Size: sizes[at]}
		events = append(events, e)
		if action == allocator.FreeRequested {
			e.Action = allocator.FreeCompleted
			events = append(events, e)
		}
	}
	return events
}

// live is the most that the program holds at once.
func (w workload) live(seqLen, batch int) proto.Bytes {
	var now, most int64
	for _, e := range w.events(seqLen, batch) {
		switch e.Action {
		case allocator.Alloc:
			now += e.Size
		case allocator.FreeRequested:
			now -= e.Size
		}
		most = max(most, now)
	}
	return proto.Bytes(most)
}

// with is the program with one more block, held over its second half.
func (w workload) with(extra proto.Bytes) workload {
	middle := len(w.ops) / 2
	out := workload{ops: slices.Clone(w.ops[:middle])}
	out.ops = append(out.ops, op{frees: -1, c0: int64(extra)})
	for _, o := range w.ops[middle:] {
		if o.frees >= middle {
			o.frees++
		}
		out.ops = append(out.ops, o)
	}
	out.ops = append(out.ops, op{frees: middle})
	return out
}

// variant is the program with two neighbouring frees or a free and an allocation
// the other way round, which changes what is free when.
func (w workload) variant(n int) workload {
	out := workload{ops: slices.Clone(w.ops)}
	var places []int
	for i := 1; i < len(w.ops)-1; i++ {
		if w.ops[i].frees >= 0 && w.ops[i+1].frees < 0 {
			places = append(places, i)
		}
	}
	if n == 0 || len(places) == 0 {
		return out
	}
	i := places[n%len(places)]
	out.ops[i], out.ops[i+1] = out.ops[i+1], out.ops[i]
	for j := range out.ops { // the allocation has moved one up
		if out.ops[j].frees == i+1 {
			out.ops[j].frees = i
		}
	}
	return out
}

// compile makes the program of a length and batch; the invented ones are whole.
func (w workload) compile(seqLen, batch int) *allocator.Program {
	p, err := allocator.Compile(w.events(seqLen, batch))
	if err != nil {
		panic(fmt.Sprintf("fleetsim: an invented program is whole: %v", err))
	}
	return p
}

// digestOf names a stored object by what it is.
func digestOf(what string) proto.Digest {
	sum := sha256.Sum256([]byte(what))
	return proto.Digest(hex.EncodeToString(sum[:]))
}

package fit

import (
	"fmt"
	"slices"
)

// recipe is how one target is put together: what is read from each point, which
// terms may explain it, and on top of which smaller target.
type recipe struct {
	target Target
	on     Target // "" = fitted directly
	read   reading
	names  []string
	fixed  []Term
	least  int // different combinations of length and batch that are needed
	loaded bool
	noise  []Wobble // of the fixed terms
	notes  []string
}

// recipe says how a target is fitted, given the models of the smaller targets:
// on top of one of them if both peaks were measured together often enough.
func (g *group) recipe(t Target, below []Model) recipe {
	on := func(base Target, r recipe) (recipe, bool) {
		built := slices.ContainsFunc(below, func(m Model) bool { return m.Target == base })
		return r, built && len(gather(g.points, difference(base, t))) >= r.least
	}
	switch t {
	case Reserved:
		if r, ok := on(Allocated, slack()); ok {
			return r
		}
	case Process:
		if r, ok := on(Reserved, g.outside()); ok {
			return r
		}
	}
	return g.direct(t)
}

// difference reads how much larger peak b is than peak a.
func difference(a, b Target) reading {
	return func(p Point) (int64, int64, bool) {
		x, y := p.peak(a), p.peak(b)
		return y - x, y, x > 0 && y > 0
	}
}

// direct reads a whole peak; its constant gets the given name.
func direct(t Target, constant string) recipe {
	return recipe{
		target: t,
		read:   func(p Point) (int64, int64, bool) { v := p.peak(t); return v, v, v > 0 },
		names:  []string{constant, "BL", "BL2", "BL3"},
		least:  3,
	}
}

// direct fits a peak with no smaller one under it, less the measured weights.
func (g *group) direct(t Target) recipe {
	r := g.whole(t)
	if !g.chunked() {
		return r
	}
	if !g.tellsChunks() {
		r.notes = append(r.notes, fmt.Sprintf("with chunks of %d and fewer than two batches of two lengths each, what grows with the rows of a chunk cannot be told from BL and BL2, which hold it", g.points[0].Chunk))
		return r
	}
	r.names = append(r.names, "CL", "CL2")
	return r
}

// chunked reports whether the program works in chunks. A chunk's rows are as many
// for every batch: what was B*L^2 and B*L^3 without chunks is then chunk*L and
// chunk*L^2, up to the chunk's last row.
func (g *group) chunked() bool { return len(g.points) > 0 && g.points[0].Chunk > 0 }

// tellsChunks reports whether the points can tell what a chunk's rows hold from
// the rest: two batches, of two lengths each.
func (g *group) tellsChunks() bool {
	lengths := map[int]map[int]bool{}
	for _, p := range g.points {
		if lengths[p.Batch] == nil {
			lengths[p.Batch] = map[int]bool{}
		}
		lengths[p.Batch][p.SeqLen] = true
	}
	rich := 0
	for _, l := range lengths {
		if len(l) > 1 {
			rich++
		}
	}
	return rich > 1
}

// whole is direct without regard to chunks.
func (g *group) whole(t Target) recipe {
	if g.weights == 0 {
		r := direct(t, "weights")
		if t != Allocated {
			r.notes = []string{string(t) + " was fitted alone: its constant (weights) holds slack, context and all else that is fixed"}
		}
		return r
	}
	r := direct(t, map[Target]string{Allocated: "workspaces", Reserved: "slack", Process: "context"}[t])
	read, weights := r.read, g.weights
	r.read = func(p Point) (int64, int64, bool) {
		v, scale, ok := read(p)
		return v - weights, scale, ok
	}
	r.fixed = []Term{metered("weights", []int64{weights})}
	r.least = 2
	if t != Allocated {
		r.notes = []string{string(t) + " was fitted alone: its constant (" + r.names[0] + ") holds every fixed part beyond the weights, and its cubic extrapolates less well than one on top of allocated"}
	}
	return r
}

// slack is what the allocator holds beyond what it handed out. It may grow with
// what is handed out, but gets no cubic term.
func slack() recipe {
	return recipe{
		target: Reserved, on: Allocated, least: 2, loaded: true,
		read:  difference(Allocated, Reserved),
		names: []string{"slack", "BL", "BL2"},
		notes: []string{"BL and BL2 of reserved hold the part of the allocator's slack that grows; the same terms of allocated are without it"},
	}
}

// outside is what the process holds beyond the allocator: the context, measured
// before the first tensor, and the modules that load as kernels are first used.
func (g *group) outside() recipe {
	r := recipe{
		target: Process, on: Reserved, least: 2,
		read:  difference(Reserved, Process),
		names: []string{"modules"},
	}
	if len(g.context) == 0 {
		r.names = []string{"context"}
		r.notes = []string{"context was not measured: the term holds context and modules, not told apart"}
		return r
	}
	// Each point's own context is subtracted; the fixed term is their middle.
	middle := g.context[len(g.context)/2]
	r.fixed, r.noise = []Term{metered("context", g.context)}, meteredNoise(g.context)
	r.read = func(p Point) (int64, int64, bool) {
		y, scale, ok := difference(Reserved, Process)(p)
		own := p.Context
		if own == 0 {
			own = middle
		}
		return y - own, scale, ok
	}
	return r
}

// metered is a term that is known from a meter: sorted values, the middle one
// taken, the ends as its interval.
func metered(name string, sorted []int64) Term {
	return finish(Term{
		Name:  name,
		Value: float64(sorted[len(sorted)/2]),
		Lo:    float64(slices.Min(sorted)),
		Hi:    float64(slices.Max(sorted)),
	})
}

// zero is the observation at length 0 that a recipe has besides its points, or
// one of scale 0 for none: after loading, the allocator holds the weights, no
// activations, and already some slack.
func (r recipe) zero(g *group) observation {
	if !r.loaded || g.weights == 0 {
		return observation{}
	}
	loaded := known(g.points, func(p Point) int64 { return p.LoadedReserved })
	if len(loaded) == 0 || loaded[len(loaded)/2] < g.weights {
		return observation{}
	}
	middle := loaded[len(loaded)/2]
	return observation{y: float64(middle - g.weights), scale: float64(middle)}
}

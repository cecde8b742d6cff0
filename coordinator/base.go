package coordinator

import (
	"cmp"
	"strconv"
	"strings"

	"github.com/oomfleet/oomfleet/proto"
	"github.com/oomfleet/oomfleet/storage/registry"
)

// hardware is the part of a stack that is part of a cell.
type hardware struct{ gpu, driver string }

// cellsOf are a sweep's cells by what they have in common with cells of another
// stack, for each stack of the sweep.
func cellsOf(v registry.View, s *registry.Sweep) map[hardware]map[proto.CellID]bool {
	out := make(map[hardware]map[proto.CellID]bool)
	for _, id := range s.Cells {
		c := v.Records[registry.Key{Origin: s.Origin, Cell: id}].Cell
		on := hardware{c.GPU, c.Driver}
		if out[on] == nil {
			out[on] = make(map[proto.CellID]bool)
		}
		c.GPU, c.Driver = "", ""
		out[on][c.ID()] = true
	}
	return out
}

// bases finds the sweeps that others are compared with, and remembers what they
// all have in common with other stacks: each such cell is a hash, and to compare
// some hundred sweeps with one another took them again and again, for seconds.
// The zero value is ready. It is not safe for concurrent use.
type bases struct {
	restored uint64 // View.Restored: behind another one the same id may be another sweep
	known    map[proto.MatrixID]map[hardware]map[proto.CellID]bool
}

// cells is cellsOf, made once for each sweep.
func (b *bases) cells(v registry.View, s *registry.Sweep) map[hardware]map[proto.CellID]bool {
	if b.known == nil || b.restored != v.Restored {
		b.restored, b.known = v.Restored, make(map[proto.MatrixID]map[hardware]map[proto.CellID]bool)
	}
	cells := b.known[s.ID]
	if cells == nil {
		cells = cellsOf(v, s)
		b.known[s.ID] = cells
	}
	return cells
}

// BaseOf is the sweep that s is compared with, and its driver: of those before it
// that have settled with a cell in common on another stack, one of the same GPU
// goes before another, one of the same name before another, then the newest
// driver, then the newest sweep.
//
// A driver is held against an older one, whatever the order in which the two were
// swept: who sweeps an old driver late (to go back to it, or to fill a gap) did not
// roll it out over a newer one. Where its card's other drivers are all newer there
// is nothing to compare with, and newer says so.
func BaseOf(v registry.View, s *registry.Sweep) (base *registry.Sweep, driver string, newer bool) {
	return new(bases).of(v, s)
}

// of is BaseOf.
func (b *bases) of(v registry.View, s *registry.Sweep) (base *registry.Sweep, driver string, newer bool) {
	own := b.cells(v, s)
	if len(own) != 1 {
		return nil, "", false
	}
	var on hardware
	for on = range own {
	}
	var best candidate
	for _, t := range byIndex(v) {
		if tr := trigger(t); t.Index >= s.Index || t.Origin != s.Origin || t.Cancelled || tr != nil && tr.Repeats > 0 {
			continue
		}
		for h, cells := range b.cells(v, t) {
			switch {
			case h == on || !overlap(cells, own[on]) || !settledWhole(v, t):
			case h.gpu == on.gpu && byVersion(h, on) > 0:
				newer = true
			default:
				if c := (candidate{t, h, h.gpu == on.gpu, t.Name == s.Name}); best.sweep == nil || c.compare(best) > 0 {
					best = c
				}
			}
		}
	}
	if best.sweep == nil || newer && !best.sameGPU { // another card's driver is no predecessor
		return nil, "", newer
	}
	return best.sweep, best.on.driver, false
}

// candidate is a stack that a sweep may be compared with.
type candidate struct {
	sweep             *registry.Sweep
	on                hardware
	sameGPU, sameName bool
}

// compare is above 0 for the better one; never 0 for two that differ.
func (c candidate) compare(o candidate) int {
	rank := func(c candidate) (r int) {
		if c.sameGPU {
			r += 2
		}
		if c.sameName {
			r++
		}
		return r
	}
	return cmp.Or(cmp.Compare(rank(c), rank(o)), versions(c.on.driver, o.on.driver),
		cmp.Compare(c.sweep.Index, o.sweep.Index), strings.Compare(c.on.gpu, o.on.gpu), strings.Compare(c.on.driver, o.on.driver))
}

func overlap(a, b map[proto.CellID]bool) bool {
	for id := range a {
		if b[id] {
			return true
		}
	}
	return false
}

// byVersion orders stacks by GPU and then by driver.
func byVersion(a, b hardware) int {
	return cmp.Or(strings.Compare(a.gpu, b.gpu), versions(a.driver, b.driver))
}

// versions orders drivers as versions go: 580.9 comes before 580.10.
func versions(a, b string) int {
	x, y := strings.Split(a, "."), strings.Split(b, ".")
	for i := range min(len(x), len(y)) {
		m, errM := strconv.Atoi(x[i])
		n, errN := strconv.Atoi(y[i])
		c := strings.Compare(x[i], y[i])
		if errM == nil && errN == nil {
			c = cmp.Compare(m, n)
		}
		if c != 0 {
			return c
		}
	}
	return cmp.Compare(len(x), len(y))
}

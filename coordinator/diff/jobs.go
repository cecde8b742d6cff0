package diff

import (
	"fmt"
	"strings"

	"github.com/oomfleet/oomfleet/proto"
)

// jobOf says what a pair means for a job of it; nil where a boundary is missing.
// outside is what a process of the group holds beside the allocator on each side.
func jobOf(p pair, basis Basis, outside [2]proto.Bytes) *Job {
	old := p.before.Boundary.Boundary
	if old == 0 || p.after.Boundary.Boundary == 0 {
		return nil
	}
	return &Job{FitsOldQuota: passes(p.after.Boundary, old), NeedBefore: cardNeed(p.before, basis, outside[0]), NeedAfter: cardNeed(p.after, basis, outside[1])}
}

// passes reports whether a quota passes for sure: at or above the boundary, or
// between the bands where they are known.
func passes(b proto.Boundary, quota proto.Bytes) bool {
	if quota >= b.Boundary {
		return true
	}
	if !b.BandsKnown || b.LowestPass == 0 || quota < b.LowestPass {
		return false
	}
	for _, band := range b.FailBands {
		if quota >= band.From && quota <= band.To {
			return false
		}
	}
	return true
}

// cardNeed is what a job takes of a card at the least: under an allocator quota
// its boundary and what the process holds beside the allocator, by its own
// recordings or, without any, by the group's; 0 where nothing was recorded. The
// other kinds limit the whole already.
func cardNeed(c proto.CellReport, basis Basis, outside proto.Bytes) proto.Bytes {
	if basis.QuotaKind != proto.QuotaAllocator {
		return c.Boundary.Boundary
	}
	if own := beside(c); own > 0 {
		outside = own
	}
	if outside == 0 {
		return 0
	}
	return c.Boundary.Boundary + outside
}

// beside is the most that a cell's recordings held beside the allocator: the
// context and the modules, which no length moves much.
func beside(c proto.CellReport) proto.Bytes {
	var most proto.Bytes
	for _, pt := range points(c) {
		if pt.Process > 0 && pt.Reserved > 0 {
			most = max(most, proto.Bytes(pt.Process-pt.Reserved))
		}
	}
	return most
}

// jobs says what the cells mean for those who run under quotas.
func jobs(cells []Cell, basis Basis, card proto.Bytes) Jobs {
	j := Jobs{QuotaTooSmall: []string{}, CardTooSmall: []string{}, Card: card, Sentences: []string{}}
	asked, sized, held := 0, 0, 0
	var worst, heavier *Cell
	for i := range cells {
		c := &cells[i]
		if c.Job == nil {
			continue
		}
		asked++
		if !c.Job.FitsOldQuota {
			j.QuotaTooSmall = append(j.QuotaTooSmall, c.Name())
			if worst == nil || c.grown() > worst.grown() {
				worst = c
			}
		}
		if c.Job.NeedBefore == 0 || c.Job.NeedAfter == 0 {
			continue
		}
		sized++
		if heavier == nil || c.Job.NeedAfter-c.Job.NeedBefore > heavier.Job.NeedAfter-heavier.Job.NeedBefore {
			heavier = c
		}
		if c.Job.NeedBefore > card {
			continue
		}
		held++
		if c.Job.NeedAfter > card {
			j.CardTooSmall = append(j.CardTooSmall, c.Name())
		}
	}
	say := func(format string, args ...any) { j.Sentences = append(j.Sentences, fmt.Sprintf(format, args...)) }
	switch {
	case asked == 0:
		say("No cell has a boundary on both sides, so nothing can be said of quotas.")
	case worst == nil:
		say("Every cell (%d) still fits the smallest %s quota that sufficed before.", asked, basis.QuotaKind)
	default:
		say("%d of %s no longer fit the smallest %s quota that sufficed before; the most by %s, which needs %v: %v.", len(j.QuotaTooSmall),
			plural(asked, "cell"), basis.QuotaKind, worst.Name(), Signed(worst.grown()), worst.boundaryAfter())
	}
	if heavier != nil {
		more := heavier.Job.NeedAfter - heavier.Job.NeedBefore
		switch {
		case more > basis.Margin:
			say("On the card a job takes up to %s more (%s: %v, before %v); n jobs side by side take n times that.",
				Signed(more), heavier.Name(), heavier.Job.NeedAfter, heavier.Job.NeedBefore)
		case more > 0:
			say("On the card no job takes more than %s more, which is within the margin.", Signed(more))
		default:
			say("On the card no job takes more than before.")
		}
	}
	if card > 0 && sized > 0 {
		if n := len(j.CardTooSmall); n > 0 {
			say("A card of %v no longer holds %s that it held before: %s.", card, plural(n, "cell"), strings.Join(j.CardTooSmall, ", "))
		} else if held == 0 {
			say("A card of %v held none of %s before.", card, plural(sized, "cell"))
		} else {
			say("A card of %v still holds every cell that it held before (%d of %d).", card, held, sized)
		}
	}
	return j
}

// Name is the cell for people, without its driver.
func (c Cell) Name() string {
	return nameOf(proto.CellReport{SeqLen: c.SeqLen, Batch: c.Batch, ChunkSize: c.ChunkSize, Env: c.Env})
}

// grown is by how much the cell's boundary grew.
func (c *Cell) grown() proto.Bytes {
	for _, m := range c.Measures {
		if m.Name == boundary {
			return m.After - m.Before
		}
	}
	return 0
}

func (c *Cell) boundaryAfter() proto.Bytes {
	for _, m := range c.Measures {
		if m.Name == boundary {
			return m.After
		}
	}
	return 0
}

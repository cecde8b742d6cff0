package allocator

// noteTie reports a choice that only driver addresses decided: blocks of one
// size in different segments, not all of them whole segments. (Whole segments of
// one size are interchangeable, and so is all that follows.)
func (a *Allocator) noteTie(id int32) {
	first := &a.blocks[id]
	alike, same := !first.split(), true
	for at := first.after; at != none && a.blocks[at].size == first.size; at = a.blocks[at].after {
		a.walked++
		b := &a.blocks[at]
		alike = alike && !b.split() && (!a.ages || b.gcBase == first.gcBase)
		same = same && b.segment == first.segment
		if !alike && !same {
			a.sweep.tie()
			return
		}
	}
}

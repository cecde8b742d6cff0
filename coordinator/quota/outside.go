package quota

import (
	"github.com/oomfleet/oomfleet/proto"
	"github.com/oomfleet/oomfleet/storage/registry"
)

// outside is what processes held on the card beside the allocator's memory at
// their peak: context, modules, libraries.
type outside struct {
	most, least proto.Bytes
	// context is the largest that was held before the first tensor.
	context    proto.Bytes
	recordings int
	// index and at are of the newest recording.
	newest *registry.Run
}

// outside collects it from the recordings of exactly this length and batch, or,
// without any, of all the scope's: it depends on the kernels that were loaded,
// hardly on sizes.
func (s scope) outside(q Question) outside {
	var here, all outside
	for _, r := range s.records {
		run := r.Recording()
		if run == nil || run.Meters.ProcessPeak == nil || run.Meters.PeakReserved == nil {
			continue
		}
		all.add(run)
		if r.Cell.SeqLen == q.SeqLen && r.Cell.Batch == q.Batch {
			here.add(run)
		}
	}
	if here.recordings > 0 {
		return here
	}
	return all
}

func (o *outside) add(run *registry.Run) {
	bytes := *run.Meters.ProcessPeak - *run.Meters.PeakReserved
	if bytes < 0 {
		return // meters of two kinds that contradict each other say nothing
	}
	if o.recordings == 0 || bytes < o.least {
		o.least = bytes
	}
	o.most = max(o.most, bytes)
	if c := run.Meters.Context; c != nil {
		o.context = max(o.context, *c)
	}
	if o.newest == nil || run.Index > o.newest.Index {
		o.newest = run
	}
	o.recordings++
}

// translation says what was added, or taken off.
func (o outside) translation(from, to proto.QuotaKind) *Translation {
	t := &Translation{From: from, To: to, Outside: o.most, Context: o.context, Recordings: o.recordings}
	if to == proto.QuotaAllocator {
		t.Outside = o.least
	}
	if o.context > 0 {
		t.Modules = max(0, t.Outside-o.context)
	}
	return t
}

// measured puts the overhead among the evidence of a draft that needed it.
func (d *draft) measured() {
	o := d.outside
	d.Evidence = append(d.Evidence, Evidence{What: "overhead", Bytes: o.most, Index: o.newest.Index, AgeSeconds: d.age(o.newest.AppliedTime),
		Detail: "process peak less reserved peak, the most of any recording here"})
}

// fromOtherKind is the same cell's boundary under another kind of quota.
func (d *draft) fromOtherKind() bool {
	if d.outside.recordings == 0 {
		return false
	}
	usable := func(r *registry.Record) bool { return r.Settled != nil && r.Settled.Boundary.Boundary > 0 }
	var best *registry.Record
	for _, kind := range proto.QuotaKinds() {
		if r := d.finest(kind, usable); kind != d.q.Kind && r != nil && (best == nil || probed(r) && !probed(best)) {
			best = r
		}
	}
	if best == nil {
		return false
	}
	d.boundary(best.Settled.Boundary)
	d.of(best, BasisTranslated)
	d.Translation = d.outside.translation(best.Cell.QuotaKind, d.q.Kind)
	d.measured()
	by := d.outside.most
	switch {
	case best.Cell.QuotaKind != proto.QuotaAllocator && d.q.limitsProcess():
		by = 0 // both count the whole process
		d.Translation.Outside = 0
	case !d.q.limitsProcess():
		by = -d.outside.least
		d.widen(outsideMargin, "what a process holds outside the allocator moves by some MiB from run to run")
	}
	d.Survive += by
	if d.NoRetry != nil {
		moved := *d.NoRetry + by
		d.NoRetry = &moved
	}
	for i, band := range d.FailBands {
		if i == 0 {
			d.FailBands = append([]proto.Band{}, d.FailBands...)
		}
		d.FailBands[i] = proto.Band{From: band.From + by, To: band.To + by}
	}
	if d.expandable() {
		d.widen(expandableMargin, "expandable segments may reserve beyond an allocator quota")
	}
	d.note("translated from the %s quota of the same cell, with what was measured outside the allocator; no probe of kind %s has held it", best.Cell.QuotaKind, d.q.Kind)
	return true
}

// cardTotal is the memory of the card that the newest run of the scope had.
func (s scope) cardTotal() proto.Bytes {
	var total proto.Bytes
	var index uint64
	for _, r := range s.records {
		for _, run := range r.Runs {
			if run.Index >= index && run.Card.Total > 0 {
				total, index = run.Card.Total, run.Index
			}
		}
	}
	return total
}

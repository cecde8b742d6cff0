package plan

import (
	"hash/fnv"

	"github.com/oomfleet/oomfleet/proto"
	"github.com/oomfleet/oomfleet/storage/registry"
)

// replayMargin is how exact a prediction under a device or process quota is:
// its non-allocator bytes are the recording's, and a run's may differ by this.
const replayMargin = 16 * proto.MiB

// claim is one thing that a prediction says about a quota.
type claim struct {
	quota proto.Bytes
	says  verdict
}

// certify holds a prediction against real probes. When one of them disagrees,
// missed says how, and there is no step.
//
// The first claim is probed alone: mostly that is the fail below the boundary,
// whose run is the cheapest and shows at once what passes where it should not.
func certify(rec *registry.Record, l ledger, lim limits) (s step, missed miss) {
	p := *rec.Prediction
	b := p.Boundary.Boundary
	if !probed(rec) {
		return l.settled(predicted(p)), miss{}
	}
	if b < lim.min || b > lim.max {
		return step{}, miss{why: outOfRange(b, lim)}
	}
	claims := claimsOf(p.Boundary, rec.Search.Certify, lim)
	if varies(rec) {
		claims = l.claimsOfRange(p, lim)
	}
	var missing []aim
	first := false
	for i, c := range claims {
		a := aim{proto.TaskProbe, c.quota}
		switch v := l.verdict(a); {
		case v == unknown, c.says == passes && l.unsure(rec, a):
			missing = append(missing, a)
			first = first || i == 0
		case v != c.says:
			return step{}, miss{at: a, seen: v, why: c.contradicted(b, l.tallies[a].last)}
		}
		if m := elsewhere(rec, l, c); m.why != "" {
			return step{}, m
		}
	}
	if failed := l.points().fails; len(failed) > 0 && failed[len(failed)-1] >= b && !varies(rec) {
		at := aim{proto.TaskProbe, failed[len(failed)-1]}
		return step{}, miss{at: at, seen: fails, why: claim{at.quota, passes}.contradicted(b, l.tallies[at].last)}
	}
	if first {
		missing = missing[:1]
	}
	if len(missing) > 0 {
		s := l.wanting(missing...)
		s.expects = true
		return s, miss{}
	}
	return l.settled(certified(rec, l, lim)), miss{}
}

// searchOn bisects after the prediction was of no use; why says how.
func searchOn(rec *registry.Record, l ledger, lim limits, why string) step {
	p := rec.Prediction
	around := bracket{hi: p.Boundary.Boundary, stride: farStride * lim.step}
	switch {
	case p.Lesson != nil && unusable(*p) != "":
		around.hi = p.Lesson.Said.Boundary
	case p.Lesson != nil || rec.Cell.QuotaKind != proto.QuotaAllocator:
		around.stride = nearStride * lim.step
	}
	around.lo = around.hi - lim.step
	f := search(l.points(), around, lim)
	at := aim{proto.TaskProbe, f.boundary}
	switch {
	case f.noPass:
		return l.settled(failed(noPass(lim, why)))
	case f.found && l.unsure(rec, at):
		return l.wanting(at)
	case f.found:
		s := bisected(f, lim, why)
		if adapted(rec, l, f) {
			s.State = proto.CellAdaptive
		}
		return l.settled(s)
	}
	return l.wanting(probesAt(f.probes)...)
}

const (
	// farStride is how far the first probe behind a miss goes, in steps: what a
	// workload does otherwise under a quota was seen to be tens of MiB.
	farStride = 32
	// nearStride is the same once a lesson has told how far, and under device
	// and process quotas, whose predictions were 2 to 12 MiB off on an H200
	// (docs/measured).
	nearStride = 4
)

// adapted reports whether the workload was seen to catch a refusal, or passed
// where replay of its recording said that it cannot: below the predicted
// boundary, or inside a fail band of it. A prediction of a device or process
// quota is not exact, and a pass within its margin proves nothing about the
// workload.
func adapted(rec *registry.Record, l ledger, f finding) bool {
	if caught(rec) {
		return true
	}
	b := rec.Prediction.Boundary
	if rec.Prediction.Lesson != nil {
		b = rec.Prediction.Lesson.Said
	}
	if rec.Recording() == nil || varies(rec) {
		return false // what was borrowed may have been wrong, and another run may need more
	}
	margin := proto.Bytes(0)
	if rec.Cell.QuotaKind != proto.QuotaAllocator {
		margin = replayMargin
	}
	if f.boundary > b.Boundary {
		return false // what varies in both directions is no fall-back
	}
	for _, q := range l.points().passes {
		if q+margin < b.Boundary && says(b, q) == fails {
			return true
		}
	}
	return false
}

// probed reports whether the matrix wants this cell's prediction probed. A
// sample is drawn by the cell's own id: the same cells on every leader.
func probed(rec *registry.Record) bool {
	switch rec.Search.Certify {
	case proto.CertifyNone:
		return false
	case proto.CertifySample:
		h := fnv.New64a()
		h.Write([]byte("certify sample " + rec.Key.Cell)) // hash.Hash never errs
		return h.Sum64()%100 < uint64(max(0, rec.Search.SamplePercent))
	}
	return true
}

// claimsOf lists what is to be probed: both edges of the boundary first, the fail
// before the pass, then,
// for CertifyAll, both edges of every fail band and of the lowest pass. Quotas
// outside the range are left out.
func claimsOf(b proto.Boundary, how proto.Certify, lim limits) []claim {
	var claims []claim
	seen := make(map[proto.Bytes]bool)
	add := func(q proto.Bytes) {
		if q >= lim.min && q <= lim.max && !seen[q] {
			seen[q] = true
			claims = append(claims, claim{q, says(b, q)})
		}
	}
	add(b.Boundary - lim.step)
	add(b.Boundary)
	if how != proto.CertifyAll {
		return claims
	}
	for _, band := range b.FailBands {
		add(band.From - lim.step)
		add(band.From)
		add(band.To)
		add(band.To + lim.step)
	}
	if b.LowestPass > 0 {
		add(b.LowestPass)
		add(b.LowestPass - lim.step)
	}
	return claims
}

// says is what a prediction claims about a quota on the grid.
func says(b proto.Boundary, q proto.Bytes) verdict {
	if q >= b.Boundary {
		return passes
	}
	if b.LowestPass <= 0 || q < b.LowestPass {
		return fails
	}
	for _, band := range b.FailBands {
		if q >= band.From && q <= band.To {
			return fails
		}
	}
	return passes
}

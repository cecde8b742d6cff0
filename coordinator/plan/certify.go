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
func certify(rec *registry.Record, l ledger, lim limits) (s step, missed string) {
	p := *rec.Prediction
	b := p.Boundary.Boundary
	if !probed(rec) {
		return l.settled(predicted(p)), ""
	}
	if b < lim.min || b > lim.max {
		return step{}, outOfRange(b, lim)
	}
	claims := claimsOf(p.Boundary, rec.Search.Certify, lim)
	var missing []aim
	for _, c := range claims {
		a := aim{proto.TaskProbe, c.quota}
		switch l.verdict(a) {
		case unknown:
			missing = append(missing, a)
		case c.says:
		default:
			return step{}, c.contradicted(b, l.tallies[a].last)
		}
	}
	if len(missing) > 0 {
		return l.wanting(missing...), ""
	}
	return l.settled(certified(p, lim)), ""
}

// searchOn bisects after the prediction was of no use; why says how.
func searchOn(rec *registry.Record, l ledger, lim limits, why string) step {
	b := rec.Prediction.Boundary.Boundary
	around := bracket{lo: b - lim.step, hi: b}
	f := search(l.points(), around, lim)
	switch {
	case f.noPass:
		return l.settled(failed(noPass(lim, why)))
	case f.found:
		s := bisected(f, lim, why)
		if adapted(rec, l, f) {
			s.State = proto.CellAdaptive
		}
		return l.settled(s)
	}
	return l.wanting(probesAt(f.probes)...)
}

// adapted reports whether the workload passed where replay said that it cannot:
// below the predicted boundary, or inside a fail band of it. A prediction of a
// device or process quota is not exact, and a pass within its margin proves
// nothing about the workload.
func adapted(rec *registry.Record, l ledger, f finding) bool {
	b := rec.Prediction.Boundary
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

// claimsOf lists what is to be probed: both edges of the boundary first, then,
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
	add(b.Boundary)
	add(b.Boundary - lim.step)
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

package quota

import (
	"fmt"
	"maps"
	"time"

	"github.com/oomfleet/oomfleet/allocator"
	"github.com/oomfleet/oomfleet/proto"
	"github.com/oomfleet/oomfleet/storage/registry"
)

// Library reads what replay needs. An error is a reason to go to the next
// evidence, and is told in the answer's notes.
type Library struct {
	// Family is a stored allocation program, Recording a stored trace,
	// compiled. Without one, nothing is replayed from its kind.
	Family    func(digest proto.Digest) (*allocator.Family, error)
	Recording func(digest proto.Digest) (*allocator.Program, error)
}

// Adviser answers questions from one view. The zero Library answers without
// replay. It holds no state and is safe for concurrent use if its Library is.
type Adviser struct {
	View    registry.View
	Library Library
	// At is where the view stands, for every answer.
	At Stamp
	// Now is the time that ages are counted to.
	Now time.Time
	// Stop, when set, is asked between replays; true ends the work, and what is
	// answered then is of no use.
	Stop func() bool
}

// Recommend answers with the best evidence that there is. Every error is a
// *Refusal.
func (a Adviser) Recommend(q Question) (Recommendation, error) {
	if err := q.Validate(); err != nil {
		return Recommendation{}, err
	}
	s, err := a.scopeOf(q)
	if err != nil {
		return Recommendation{}, err
	}
	return a.at(s, q)
}

// at walks the ladder for one length and batch of a scope.
func (a Adviser) at(s scope, q Question) (Recommendation, error) {
	d := &draft{Adviser: a, scope: s, q: q, outside: s.outside(q)}
	d.QuotaKind, d.Origin, d.SeqLen, d.Batch, d.Subject = q.Kind, q.Origin, q.SeqLen, q.Batch, s.subject
	d.Step, d.FailBands, d.Notes, d.Article = proto.DefaultStep, []proto.Band{}, []string{}, []Rule{}
	for _, rung := range []func() bool{d.fromProbes, d.fromPrediction, d.fromRecording, d.fromProgram, d.fromOtherKind} {
		if rung() {
			return d.done()
		}
	}
	neighbour := d.neighbour()
	bound, err := d.fitted()
	switch {
	case err == nil && !bound.Extrapolated && (neighbour == nil || bound.Survive < neighbour.Settled.Boundary.Boundary):
		d.take(bound)
	case neighbour != nil:
		d.fromNeighbour(neighbour)
	case err == nil:
		d.take(bound)
	default:
		return Recommendation{}, err
	}
	return d.done()
}

// draft is an answer in the making.
type draft struct {
	Adviser
	Recommendation
	scope   scope
	q       Question
	outside outside
	// peak is the reserved peak without a quota, and where it is from.
	peak      proto.Bytes
	peakBasis string
}

// sameSettings is whether a record has exactly the question's environment.
func (d *draft) sameSettings(r *registry.Record) bool {
	return maps.Equal(r.Cell.Env, d.scope.subject.Env)
}

func (d *draft) samePoint(r *registry.Record) bool {
	return r.Cell.SeqLen == d.q.SeqLen && r.Cell.Batch == d.q.Batch
}

// finest is the record of exactly this length, batch and environment under a
// kind of quota that keep wants, on the finest grid if there are several.
func (d *draft) finest(kind proto.QuotaKind, keep func(*registry.Record) bool) *registry.Record {
	var best *registry.Record
	for _, r := range d.scope.records {
		if d.samePoint(r) && d.sameSettings(r) && r.Cell.QuotaKind == kind && keep(r) && (best == nil || r.Cell.Step < best.Cell.Step) {
			best = r
		}
	}
	return best
}

// probed is whether real probes found the record's boundary.
func probed(r *registry.Record) bool {
	if r.Settled == nil || r.Settled.Boundary.Boundary <= 0 {
		return false
	}
	switch r.Settled.State {
	case proto.CellCertified, proto.CellBisected, proto.CellAdaptive:
		return true
	}
	return false
}

// fromProbes is the first rung.
func (d *draft) fromProbes() bool {
	r := d.finest(d.q.Kind, probed)
	if r == nil {
		return false
	}
	d.boundary(r.Settled.Boundary)
	d.of(r, BasisBoundary)
	switch r.Settled.State {
	case proto.CellBisected:
		d.note("bisected: one edge is known, so larger quotas may fail again in a band (bands_known is false)")
		if run := r.Recording(); run != nil && run.Meters.PeakReserved != nil && d.q.Kind == proto.QuotaAllocator {
			d.note("from %s, its reserved peak without a quota, on nothing is refused in a run like that one", *run.Meters.PeakReserved)
		}
	case proto.CellAdaptive:
		d.note("adaptive: this workload catches a refusal and goes another way, so a run near the quota may be slower than one with room")
	}
	return true
}

// fromPrediction is what replay has said of this very cell.
func (d *draft) fromPrediction() bool {
	r := d.finest(d.q.Kind, func(r *registry.Record) bool { return predicted(r).Boundary.Boundary > 0 })
	if r == nil {
		return false
	}
	p := predicted(r)
	d.boundary(p.Boundary)
	d.of(r, BasisPrediction)
	e := &d.Evidence[len(d.Evidence)-1]
	e.What, e.Trace, e.Program, e.Bytes = "prediction", p.Trace, p.Program, p.Boundary.Boundary
	e.Detail = "read off a " + string(r.PredictedFrom()) + "; no probe has held it"
	d.addMargin(p.Program != "", p.LayoutSensitive)
	d.peak, d.peakBasis = p.PeakReserved, "predicted reserved peak"
	return true
}

// predicted is what replay has said of a record; a boundary of 0 for nothing. A
// cell that was settled otherwise since is no prediction any more.
func predicted(r *registry.Record) proto.Prediction {
	switch {
	case r.Settled != nil && r.Settled.State != proto.CellPredicted:
	case r.Prediction != nil && r.Prediction.Refused == "":
		return *r.Prediction
	case r.Settled != nil:
		return proto.Prediction{Boundary: r.Settled.Boundary}
	}
	return proto.Prediction{}
}

// boundary takes over what is known of the quotas.
func (d *draft) boundary(b proto.Boundary) {
	d.Survive, d.BandsKnown = b.Boundary, b.BandsKnown
	if b.FailBands != nil {
		d.FailBands = b.FailBands
	}
	if b.NoRetry > 0 {
		noRetry := b.NoRetry
		d.NoRetry = &noRetry
	}
}

// of names the record that an answer is of.
func (d *draft) of(r *registry.Record, basis Basis) {
	d.Basis, d.CellID, d.CellState = basis, r.Key.Cell, r.State()
	if r.Cell.Step > 0 {
		d.Step = r.Cell.Step
	}
	d.Torch = r.Group().Torch
	d.Evidence = append(d.Evidence, d.evidenceOf(r))
}

func (d *draft) evidenceOf(r *registry.Record) Evidence {
	e := Evidence{What: "cell", Cell: r.Cell.String(), ID: r.Key.Cell, State: r.State()}
	if r.Settled != nil {
		b := r.Settled.Boundary.Boundary
		e.Bytes, e.Index, e.Detail = b, r.Settled.Index, r.Settled.Reason
		for _, run := range r.Runs {
			if run.Kind != proto.TaskProbe {
				continue
			}
			switch verdict := run.Outcome.Verdict(); {
			case run.Quota == b && verdict == proto.VerdictPass:
				e.Passes++
			case run.Quota == b-r.Cell.Step && verdict == proto.VerdictFail:
				e.Fails++
			}
		}
	} else if r.Prediction != nil {
		e.Bytes, e.Index = r.Prediction.Boundary.Boundary, r.LastIndex
	}
	if run := r.Recording(); run != nil && run.Trace != nil {
		e.Trace = run.Trace.Digest
	}
	if n := len(r.Runs); n > 0 {
		e.AgeSeconds = d.age(r.Runs[n-1].AppliedTime)
	}
	return e
}

// age is how long ago something was; 0 where a clock went back or is not known.
func (d *draft) age(at time.Time) float64 {
	if at.IsZero() || d.Now.IsZero() {
		return 0
	}
	return max(0, d.Now.Sub(at).Seconds())
}

func (d *draft) note(format string, args ...any) {
	d.Notes = append(d.Notes, fmt.Sprintf(format, args...))
}

package quota

import (
	"fmt"

	"github.com/oomfleet/oomfleet/fit"
	"github.com/oomfleet/oomfleet/proto"
)

// The rules of thumb that schedulers are told to use. Where their authors write
// GB, 1024^3 bytes are meant, since that is what they divide by.
const (
	ruleReserved = "reserved x 1.1"
	ruleWeights  = "weights + L/256 x 8 + 8"
)

// rules are what the rules of thumb would have asked for, in place of the quota.
// A rule whose input nobody measured is left out, with a note.
func (d *draft) rules() []Rule {
	out := []Rule{}
	if peak, basis := d.reservedPeak(); peak > 0 {
		// 11/10, rounded up: no float decides a byte.
		out = append(out, d.rule(ruleReserved, peak+(peak+9)/10, fmt.Sprintf("%s %s", basis, peak)))
	} else {
		d.note("what the rule %q asks for is not known: no reserved peak", ruleReserved)
	}
	if weights := d.weights(); weights > 0 {
		asks := weights + (proto.Bytes(d.SeqLen)*8*proto.GiB+255)/256 + 8*proto.GiB
		out = append(out, d.rule(ruleWeights, asks, fmt.Sprintf("weights %s; it knows no batch", weights)))
	} else {
		d.note("what the rule %q asks for is not known: no weights were measured", ruleWeights)
	}
	return out
}

func (d *draft) rule(name string, asks proto.Bytes, basis string) Rule {
	return Rule{Rule: name, Asks: asks, Basis: basis, Waste: asks - d.Quota, Verdict: d.verdict(asks)}
}

// verdict is what the answer's evidence says of another quota.
func (d *draft) verdict(quota proto.Bytes) Verdict {
	bound := d.Basis == BasisCoefficients || d.Basis == BasisNeighbour
	switch {
	case quota >= d.Survive+d.Margin && !d.Extrapolated && d.BandsKnown:
		return Passes
	case quota < d.Survive-d.Margin && !bound && d.BandsKnown && len(d.FailBands) == 0:
		return Fails
	}
	return NotAssured
}

// reservedPeak is the reserved peak without a quota: measured in this very cell's
// settings, else what replay or the fit expects.
func (d *draft) reservedPeak() (proto.Bytes, string) {
	for _, r := range d.scope.records {
		if run := r.Recording(); run != nil && run.Meters.PeakReserved != nil && d.samePoint(r) && d.sameSettings(r) {
			return *run.Meters.PeakReserved, "recorded reserved peak"
		}
	}
	if d.peak > 0 {
		return d.peak, d.peakBasis
	}
	for _, r := range d.scope.records {
		if d.samePoint(r) && d.sameSettings(r) && r.Prediction != nil && r.Prediction.PeakReserved > 0 {
			return r.Prediction.PeakReserved, "predicted reserved peak"
		}
	}
	for _, set := range d.scope.sets {
		for _, c := range set.Models {
			if model, err := ModelOf(c); err == nil && c.Target == string(fit.Reserved) {
				return proto.Bytes(model.Predict(d.SeqLen, d.Batch).Value), "fitted reserved peak"
			}
		}
	}
	return 0, ""
}

// weights are what parameters and buffers hold, as the newest recording says or
// a fit's term.
func (d *draft) weights() proto.Bytes {
	var weights proto.Bytes
	var index uint64
	for _, r := range d.scope.records {
		if run := r.Recording(); run != nil && run.Meters.Weights != nil && run.Index >= index {
			weights, index = *run.Meters.Weights, run.Index
		}
	}
	if weights > 0 {
		return weights
	}
	for _, set := range d.scope.sets {
		for _, c := range set.Models {
			for _, t := range c.Terms {
				if t.Name == "weights" && t.Value > 0 {
					return proto.Bytes(t.Value)
				}
			}
		}
	}
	return 0
}

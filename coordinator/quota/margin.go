package quota

import (
	"fmt"
	"strings"

	"github.com/oomfleet/oomfleet/proto"
)

const (
	// layoutMargin is how far an edge moves with the addresses that the driver
	// hands out, which a replay cannot know: programs are held to it against
	// recordings (see the tests of package allocator).
	layoutMargin = 24 * proto.MiB
	// outsideMargin is how far the bytes outside the allocator move from run to
	// run: within it the outcome under a process or device quota is undetermined.
	outsideMargin = 16 * proto.MiB
	// expandableMargin is how far reserved memory may pass an allocator quota
	// with expandable segments, whose last pages the quota does not count.
	expandableMargin = 20 * proto.MiB
)

// addMargin puts on what an unprobed edge may move by.
func (d *draft) addMargin(program, layout bool) {
	switch {
	case program:
		d.widen(layoutMargin, "a program knows no driver addresses, which decide between equal blocks")
	case layout:
		d.widen(layoutMargin, "the edge depends on the addresses that the driver hands out")
	}
}

// widen adds to the margin and its reason.
func (d *draft) widen(by proto.Bytes, why string) {
	d.Margin += by
	why = fmt.Sprintf("%s: %s", by, why)
	if d.MarginWhy != "" {
		why = d.MarginWhy + "; " + why
	}
	d.MarginWhy = why
}

// done fills in what follows from the rest. The error is a *Refusal.
func (d *draft) done() (Recommendation, error) {
	if d.q.limitsProcess() && d.Basis != BasisCoefficients {
		d.widen(outsideMargin, "what a process holds outside the allocator moves by some MiB from run to run")
	}
	if d.MarginWhy == "" {
		d.MarginWhy = "none: " + map[Basis]string{
			BasisBoundary: "real probes passed at this very quota", BasisNeighbour: "it is a larger run's quota already",
			BasisCoefficients: "the bound holds the risk already",
		}[d.Basis]
		if d.Basis == BasisPrediction || d.Basis == BasisRecording {
			d.MarginWhy = "none: no address decides this edge"
		}
	}
	d.Survive = d.Survive.RoundUp(d.Step)
	d.Quota = (d.Survive + d.Margin).RoundUp(d.Step)
	if d.Survive <= 0 || d.Quota <= 0 {
		return Recommendation{}, refusef(NotCovered, "what the %s says comes to %d bytes, which no run can have: its evidence is wrong, record the cell again", d.Basis, int64(d.Quota))
	}
	if d.outside.recordings > 0 {
		d.Outside = d.outside.most
	}
	if set, c := d.coefficients(); set != nil && d.Basis != BasisCoefficients && !inside(c.Domain, d.q) {
		d.note("%s; what answers is the %s, not the fit", d.outsideOf(c.Domain), d.Basis)
	}
	d.CardTotal = d.scope.cardTotal()
	if d.CardTotal > 0 && d.Quota > d.CardTotal {
		d.note("this is more than the card has (%s): the run does not fit on it", d.CardTotal)
	}
	if d.Driver != "" && strings.HasSuffix(d.Driver, "-synthetic") {
		d.note("driver %s is synthetic: it does not exist, and stands for a rollout in simulations", d.Driver)
	}
	if d.Origin == proto.OriginSimulated {
		d.note("simulated: replayed from recordings of real runs, not measured on a card of this fleet")
	}
	if d.NoRetry == nil {
		d.note("the no-retry quota is unknown: at this quota the allocator may flush and try again, which is slower")
	}
	d.Article, d.Stamp = d.rules(), d.At
	return d.Recommendation, nil
}

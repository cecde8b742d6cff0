package plan

import (
	"fmt"
	"testing"

	"github.com/oomfleet/oomfleet/proto"
)

// TestEveryOutcome sends each outcome of the closed set through a recording,
// and through the probe at a predicted boundary, for as long as the plan asks.
func TestEveryOutcome(t *testing.T) {
	// For the recording and for the probe: the state that follows, and how many
	// runs of that kind and quota it takes.
	type end struct {
		state proto.CellState
		runs  int
	}
	fail := func(runs int) end { return end{proto.CellFailed, runs} }
	want := map[proto.Outcome][2]end{
		proto.OutcomePass:        {{proto.CellCertified, 1}, {proto.CellCertified, 1}},
		proto.OutcomePassRetried: {{proto.CellCertified, 1}, {proto.CellCertified, 1}},
		proto.OutcomeOOMQuota:    {fail(1), {proto.CellBisected, 1}},
		proto.OutcomeOOMDevice:   {fail(1), {proto.CellBisected, 1}},
		proto.OutcomeOOMOutside:  {fail(2), {proto.CellBisected, 2}},
		proto.OutcomeCrowded:     {fail(maxElsewhere), fail(maxElsewhere)},
		proto.OutcomeHostMemory:  {fail(maxRepeats), fail(maxRepeats)},
		proto.OutcomeCrash:       {fail(maxRepeats), fail(maxRepeats)},
		proto.OutcomeHang:        {fail(maxRepeats), fail(maxRepeats)},
		proto.OutcomeWrongOutput: {fail(1), fail(1)},
		proto.OutcomeWrongStack:  {fail(maxElsewhere), fail(maxElsewhere)},
		proto.OutcomeUnsupported: {fail(1), fail(1)},
		proto.OutcomeBadCell:     {fail(1), fail(1)},
		proto.OutcomeAgentFault:  {fail(maxElsewhere), fail(maxElsewhere)},
		proto.OutcomeLost:        {fail(maxRepeats), fail(maxRepeats)},
	}
	tr := truth{boundary: 10662 * proto.MiB, lowest: 10662 * proto.MiB}
	for _, o := range proto.Outcomes() {
		ends, ok := want[o]
		if !ok {
			t.Errorf("outcome %s has no row", o)
		}
		for i, at := range []aim{{kind: proto.TaskRecord}, {proto.TaskProbe, tr.boundary}} {
			t.Run(fmt.Sprintf("%s/%s", o, at.kind), func(t *testing.T) {
				w := newWorld(testCell(proto.QuotaAllocator), proto.Search{Strategy: proto.StrategyPredict, Certify: proto.CertifyEdges})
				w.meters = proto.Meters{PeakAllocated: ptr(10 * proto.GiB), PeakReserved: ptr(11 * proto.GiB)}
				w.prediction = proto.Prediction{Boundary: tr.document()}
				w.outcome = func(a aim, n int) proto.Outcome {
					if a == at {
						return o
					}
					return tr.outcome(a, n)
				}
				if err := w.settle(func(int) int { return 0 }); err != nil {
					t.Fatal(err)
				}
				if got := w.rec().Settled; got.State != ends[i].state || w.asked[at] != ends[i].runs {
					t.Errorf("%s after %d runs (%s), want %+v", got.State, w.asked[at], got.Reason, ends[i])
				}
			})
		}
	}
}

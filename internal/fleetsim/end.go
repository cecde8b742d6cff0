package fleetsim

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/oomfleet/oomfleet/coordinator/plan"
	"github.com/oomfleet/oomfleet/proto"
	"github.com/oomfleet/oomfleet/storage/registry"
)

// ending is what a history came to: the registry's word on each cell.
type ending map[registry.Key]*registry.Record

// checkEnd lets stragglers come in, then looks at everything once more.
func (s *sim) checkEnd() {
	accepted := s.check.accepted
	for until := s.now + stragglers; s.check.first == nil && s.now < until && !s.drained() && s.step(); {
		continue
	}
	for until := s.now + aftermath; s.check.first == nil && s.now < until && s.step(); {
		continue
	}
	if s.check.first != nil {
		return
	}
	if s.check.accepted != accepted {
		s.check.fail("fence", fmt.Sprintf("%d results were counted after every cell had settled", s.check.accepted-accepted))
	}
	if !s.drained() {
		s.check.fail("lost", fmt.Sprintf("%d tasks and %d reports lie in the queue long after the end", len(s.queue.tasks), len(s.queue.reports)))
	}
	for _, n := range s.cluster.nodes {
		if n.up {
			n.catchUp(uint64(len(s.cluster.log)))
			n.compare()
		}
	}
	s.check.tally(s.view())
	s.checkQuiet(s.view())
	s.checkStored(s.view())
}

// checkQuiet: the plan has nothing left to do, and every fit stands on recordings
// that were counted.
func (s *sim) checkQuiet(v registry.View) {
	if a := plan.Next(v); len(a.Issue)+len(a.Predict)+len(a.Build)+len(a.Settle) > 0 {
		s.check.fail("lost", fmt.Sprintf("every cell has settled, and the plan still wants %+v", a))
	}
	passed := make(map[proto.TaskID]bool)
	for _, rec := range v.Records {
		for _, r := range rec.Runs {
			passed[r.Task] = r.Kind == proto.TaskRecord && r.Outcome.Verdict() == proto.VerdictPass
		}
	}
	for _, rec := range v.Records {
		run := rec.Recording()
		if run == nil {
			continue
		}
		if set := v.Coefficients[registry.GroupOf(rec)]; set != nil && !slices.Contains(set.Evidence, run.Task) {
			s.check.fail("lost", fmt.Sprintf("the coefficients of %s do not know the recording of %s", set.Key.Group, rec.Cell))
		}
	}
	for _, set := range v.Coefficients {
		for _, task := range set.Evidence {
			if !passed[task] {
				s.check.fail("disturbed", fmt.Sprintf("coefficients stand on %s, which is no recording that passed", task))
			}
		}
	}
}

// drained: nothing lies in the queue, and no agent has anything in hand.
func (s *sim) drained() bool {
	for _, a := range s.agents {
		if a.held != nil || len(a.outbox) > 0 {
			return false
		}
	}
	return len(s.queue.tasks) == 0 && len(s.queue.reports) == 0
}

func (s *sim) ending() ending { return s.view().Records }

// unfitted is a group of which the undisturbed history has coefficients and this one
// has none, though all that was recorded there was recorded here.
func (t *town) unfitted(alone, disturbed registry.View) *Violation {
	for key := range alone.Coefficients {
		fewer := slices.ContainsFunc(t.keys, func(k registry.Key) bool {
			return registry.GroupOf(alone.Records[k]) == key && alone.Records[k].Recording() != nil && disturbed.Records[k].Recording() == nil
		})
		if disturbed.Coefficients[key] != nil || fewer {
			continue
		}
		return &Violation{Kind: "lost", What: fmt.Sprintf("the group %s has no coefficients, and has them when nothing comes in between", key.Group)}
	}
	return nil
}

func gaveUp(rec *registry.Record) bool {
	return rec.Settled != nil && rec.Settled.State == proto.CellFailed && strings.HasPrefix(rec.Settled.Reason, "gave up after")
}

// checkAlone holds an undisturbed history to the truth: where nothing deviates
// and probes have certified the prediction, boundary and bands are exact. No run
// is made in vain, but for those of cells that were cancelled meanwhile.
func (t *town) checkAlone(e ending, late int) *Violation {
	if late > 0 && !slices.ContainsFunc(t.sweeps, func(s sweep) bool { return s.cancelled > 0 }) {
		return &Violation{Kind: "waste", What: fmt.Sprintf("%d results came late and nothing came in between", late)}
	}
	for _, key := range t.keys {
		tr, s := t.truths[key], e[key].Settled
		if gaveUp(e[key]) {
			return &Violation{Kind: "unjustified", What: fmt.Sprintf("cell %s failed and nothing came in between: %s", tr.cell, s.Reason)}
		}
		if s.State != proto.CellCertified || tr.deviates != deviateNone || t.vague(key) || s.Boundary.LayoutSensitive || !s.Boundary.BandsKnown || e[key].Search.Min > 0 {
			continue
		}
		if err := tr.holds(s.Boundary); err != nil {
			return &Violation{Kind: "truth", What: fmt.Sprintf("cell %s (%s) is certified and wrong: %v", tr.cell, tr.deviates, err)}
		}
	}
	return nil
}

// checkSame compares the content of two histories that differ in faults, in the
// order of events and in the number of agents alone.
func (t *town) checkSame(alone, disturbed ending) *Violation {
	for _, key := range t.keys {
		if !t.steady(key) {
			continue
		}
		a, b := alone[key].Settled, disturbed[key].Settled
		tr := t.truths[key]
		differ := func(what string) *Violation {
			return &Violation{Kind: "content", What: fmt.Sprintf("cell %s (%s, %v): %s\n  alone:     %s %+v %s\n  disturbed: %s %+v %s",
				tr.cell, tr.deviates, alone[key].Search, what, a.State, a.Boundary, a.Reason, b.State, b.Boundary, b.Reason)}
		}
		vague := t.vague(key)
		bending := tr.deviates == deviateAdaptive || tr.deviates == deviateExtra
		switch {
		case tr.deviates == deviateOrder || a.Boundary.LayoutSensitive || b.Boundary.LayoutSensitive:
			// Runs differ from each other, or hang on addresses: any edge will do.
		case vague && (a.State == proto.CellPredicted || b.State == proto.CellPredicted):
			// Nobody probed it: what it was predicted from decides.
		case a.State != b.State:
			return differ("it ends in two ways")
		case a.Boundary.Boundary == b.Boundary.Boundary && (vague || reflect.DeepEqual(a.Boundary, b.Boundary)):
		case (bending || vague) && len(tr.edges()) > 1:
			// A search, or a misled prediction, may end at any edge.
		default:
			return differ("two boundaries")
		}
	}
	return nil
}

package fleetsim

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/oomfleet/oomfleet/coordinator/diff"
	"github.com/oomfleet/oomfleet/proto"
	"github.com/oomfleet/oomfleet/storage/registry"
)

// rollouts is what standing orders have come to, in the checker's own books.
type rollouts struct {
	// started is when sweeps were submitted by themselves, by the log's time.
	started []time.Time
	// swept are the stacks that they were for.
	swept map[proto.Stack]bool
	// verdicts is how often each sweep got one, repeats how often cells are
	// recorded again for it.
	verdicts, repeats map[proto.MatrixID]int
	// owed are sweeps with cells that the order wants to be recorded again.
	owed map[proto.MatrixID]bool
}

func newRollouts() rollouts {
	return rollouts{swept: make(map[proto.Stack]bool), verdicts: make(map[proto.MatrixID]int), repeats: make(map[proto.MatrixID]int), owed: make(map[proto.MatrixID]bool)}
}

func (r rollouts) covered() int { return len(r.swept) }

// aDay is the time in which no more sweeps start than an order allows. Clocks that
// are put back in the moment of a submission may take two hours from it.
const aDay = 22 * time.Hour

// triggers checks a sweep that nobody submitted: once for each stack that the order
// is about, with its cells, and not too many in a day.
func (c *checker) triggers(add *registry.AddSweep, reply registry.Reply, after registry.View) {
	o := c.town.order
	if add.Rollout == nil || !reply.Accepted {
		return
	}
	t := add.Rollout.Trigger
	switch {
	case t == nil:
		return
	case t.Kind == proto.TriggerRepeat:
		c.rollouts.repeats[t.Of]++
		return
	case o == nil || t.Stack.GPU != gpuName || o.wants[t.Stack.Driver] == nil:
		c.fail("rollout", fmt.Sprintf("%s is swept on %s with driver %s, which no order is about", add.Name, t.Stack.GPU, t.Stack.Driver))
		return
	case c.rollouts.swept[*t.Stack]:
		c.fail("rollout", fmt.Sprintf("%s is swept on driver %s a second time, as %s", add.Name, t.Stack.Driver, add.ID))
	}
	sweep := after.Sweeps[add.ID]
	if cells := slices.Sorted(slices.Values(sweep.Cells)); !slices.Equal(cells, o.wants[t.Stack.Driver]) {
		c.fail("rollout", fmt.Sprintf("%s is swept on driver %s with the cells %v and not %v", add.Name, t.Stack.Driver, cells, o.wants[t.Stack.Driver]))
	}
	c.rollouts.swept[*t.Stack] = true
	c.books.Triggered++
	c.rollouts.started = append(c.rollouts.started, sweep.Submitted)
	today := 0
	for _, at := range c.rollouts.started {
		if sweep.Submitted.Sub(at) < aDay {
			today++
		}
	}
	if today > o.policy.MaxPerDay {
		c.fail("rollout", fmt.Sprintf("%s is the sweep %d within a day, and %d are allowed", add.ID, today, o.policy.MaxPerDay))
	}
}

// judges checks a verdict: there is one for each sweep, and one more when its cells
// were recorded again; and it is what comes of the two stacks' truths.
func (c *checker) judges(cmd *registry.SetVerdict, p *proposal) {
	if !p.reply.Accepted {
		return
	}
	c.books.Verdicts++
	if c.rollouts.verdicts[cmd.ID]++; c.rollouts.verdicts[cmd.ID] > 1+c.rollouts.repeats[cmd.ID] {
		c.fail("verdict", fmt.Sprintf("%s is compared for the %d. time", cmd.ID, c.rollouts.verdicts[cmd.ID]))
	}
	if p.seen.Sweeps[cmd.ID] == nil {
		return // of before a restore
	}
	about := p.seen.Sweeps[cmd.ID]
	if t := about.Rollout; t != nil && t.Trigger != nil && t.Trigger.Kind == proto.TriggerRepeat {
		about = p.seen.Sweeps[t.Trigger.Of]
		c.repeats(p.seen, p.seen.Sweeps[cmd.ID])
	}
	doc, why := c.verdictOf(p.seen, about)
	want := doc.Short()
	if why != "" || want != cmd.Verdict {
		c.fail("verdict", fmt.Sprintf("%s is said to be %+v; %s%+v", cmd.ID, cmd.Verdict, why, want))
		return
	}
	cells, _ := doc.RepeatCells()
	if about.ID == cmd.ID && want.Verdict == proto.VerdictNeedMore && c.town.order != nil && c.town.order.policy.Repeats > 0 && about.Rollout != nil && c.served(p.seen, cells) {
		c.rollouts.owed[about.ID] = true
	}
	if why := c.misjudged(p.seen, about, want); why != "" {
		c.fail("verdict", fmt.Sprintf("%s is said to be %s (%s), and %s", cmd.ID, want.Verdict, want.Summary, why))
	}
}

// repeats checks that a sweep's cells were recorded again as often as it says before
// it got its verdict, but for those that would not be recorded.
func (c *checker) repeats(v registry.View, s *registry.Sweep) {
	for _, id := range s.Cells {
		passed, failed := 0, 0
		for _, r := range v.Records[keyOf(id)].Runs {
			again := r.Kind == proto.TaskRecord && r.Index > s.Index
			passed += pick(again && r.Outcome.Verdict() == proto.VerdictPass, 1)
			failed += pick(again && r.Outcome.Verdict() != proto.VerdictPass, 1)
		}
		if want := s.Rollout.Trigger.Repeats; passed < want && failed < 3 {
			c.fail("verdict", fmt.Sprintf("%s has a verdict, and cell %s was recorded %d of %d times more", s.ID, v.Records[keyOf(id)].Cell, passed, want))
		}
	}
}

// verdictOf is the verdict that the truths of a sweep's cells come to, with as many
// recordings as counted.
func (c *checker) verdictOf(v registry.View, s *registry.Sweep) (diff.Document, string) {
	base, driver := c.baseOf(v, s)
	if base == nil {
		return diff.Document{}, "there is nothing to compare it with; "
	}
	var options diff.Options
	of := s
	if s.Rollout != nil && s.Rollout.Trigger != nil {
		of = v.Sweeps[s.Rollout.Trigger.Of]
	}
	if of.Rollout != nil && of.Rollout.Policy != nil {
		options.Margin, options.Confidence = of.Rollout.Policy.Margin, of.Rollout.Policy.Confidence
	}
	doc, err := diff.Sweeps(diff.Side{Name: string(base.ID), Report: c.truthOf(v, base), Driver: driver}, diff.Side{Name: string(s.ID), Report: c.truthOf(v, s)}, options)
	if err != nil {
		return diff.Document{}, err.Error()
	}
	return doc, ""
}

// served reports whether an agent is there for one of the cells.
func (c *checker) served(v registry.View, cells []proto.CellID) bool {
	return slices.ContainsFunc(cells, func(id proto.CellID) bool {
		cell := v.Records[keyOf(id)].Cell
		return slices.ContainsFunc(c.agents, func(a *agent) bool {
			return !a.down && a.frozen <= c.now && a.stack.GPU == cell.GPU && a.stack.Driver == cell.Driver
		})
	})
}

// baseOf is the sweep before s of the same cells on the next older driver, and that
// driver: of one name before another, then the newer one.
func (c *checker) baseOf(v registry.View, s *registry.Sweep) (base *registry.Sweep, driver string) {
	own, drivers := c.pointsOf(v, s)
	if len(drivers) != 1 {
		return nil, ""
	}
	type rank struct {
		name   bool
		driver string
		index  uint64
	}
	var best rank
	for _, t := range v.Sweeps {
		repeats := t.Rollout != nil && t.Rollout.Trigger != nil && t.Rollout.Trigger.Repeats > 0
		if t.Index >= s.Index || t.Cancelled || repeats || slices.ContainsFunc(t.Cells, func(id proto.CellID) bool { return v.Records[keyOf(id)].Settled == nil }) {
			continue
		}
		points, on := c.pointsOf(v, t)
		for d := range on {
			shared := slices.ContainsFunc(slices.Collect(maps.Keys(points)), func(p placed) bool { return p.driver == d && own[placed{drivers.any(), p.cell}] })
			r := rank{t.Name == s.Name, d, t.Index}
			if !shared || d >= drivers.any() {
				continue
			}
			if base == nil || r.name && !best.name || r.name == best.name && (r.driver > best.driver || r.driver == best.driver && r.index > best.index) {
				base, driver, best = t, d, r
			}
		}
	}
	return base, driver
}

// placed is a cell without its driver, and the driver.
type placed struct {
	driver string
	cell   proto.CellID
}

type driverSet map[string]bool

// any is one of the drivers.
func (s driverSet) any() string { return slices.Min(slices.Collect(maps.Keys(s))) }

func (c *checker) pointsOf(v registry.View, s *registry.Sweep) (map[placed]bool, driverSet) {
	points, drivers := make(map[placed]bool), make(driverSet)
	for _, id := range s.Cells {
		cell := v.Records[keyOf(id)].Cell
		driver := cell.Driver
		cell.Driver = ""
		points[placed{driver, cell.ID()}], drivers[driver] = true, true
	}
	return points, drivers
}

func keyOf(id proto.CellID) registry.Key {
	return registry.Key{Origin: proto.OriginSimulated, Cell: id}
}

// truthOf is a sweep's status as it would be by the truth: each recording that
// counted shows what such a run does. Of cells whose runs differ it is what they
// showed.
func (c *checker) truthOf(v registry.View, s *registry.Sweep) proto.Report {
	out := proto.Report{Matrix: proto.MatrixRef{Name: s.Name, ID: s.ID}, Origin: s.Origin, State: registry.SweepSettled}
	for _, id := range s.Cells {
		rec := v.Records[keyOf(id)]
		row := proto.CellReport{ID: id, GPU: rec.Cell.GPU, Driver: rec.Cell.Driver, Workload: rec.Cell.Workload, SeqLen: rec.Cell.SeqLen, Batch: rec.Cell.Batch,
			Env: rec.Cell.Env, QuotaKind: rec.Cell.QuotaKind, Step: rec.Cell.Step, Origin: s.Origin, State: rec.Settled.State, Reason: rec.Settled.Reason, Boundary: rec.Settled.Boundary}
		t := c.town.truths[rec.Key]
		m := t.metersOf(t.run(0, 0, nil))
		for _, r := range rec.Runs {
			if r.Kind != proto.TaskRecord || r.Outcome.Verdict() != proto.VerdictPass {
				continue
			}
			if t.deviates == deviateOrder {
				m = r.Meters
			}
			row.Recordings = append(row.Recordings, proto.Recording{PeakAllocated: *m.PeakAllocated, PeakReserved: *m.PeakReserved, ProcessPeak: *m.ProcessPeak,
				Context: *m.Context, CUDA: cudaName, Torch: torchVer})
		}
		out.Cells = append(out.Cells, row)
	}
	return out
}

// misjudged says what of the truth a verdict contradicts; empty for nothing. Where
// runs differ from each other, or a cell was given up, anything may be said.
func (c *checker) misjudged(v registry.View, s *registry.Sweep, said proto.SweepVerdict) string {
	most, at := proto.Bytes(0), ""
	for _, id := range s.Cells {
		after := c.town.truths[keyOf(id)]
		cell := after.cell
		cell.Driver = said.From.Driver
		before := c.town.truths[keyOf(cell.ID())]
		if before == nil {
			continue
		}
		a, b := v.Records[keyOf(cell.ID())], v.Records[keyOf(id)]
		if after.deviates == deviateOrder || before.deviates == deviateOrder || a == nil || a.Settled == nil || a.Settled.State == proto.CellFailed || b.Settled.State == proto.CellFailed {
			return ""
		}
		moved := after.beside - before.beside
		if a.Recording() == nil || b.Recording() == nil {
			moved = 0 // what the boundary does not see nobody has seen
		}
		for _, d := range []proto.Bytes{moved, b.Settled.Boundary.Boundary - a.Settled.Boundary.Boundary} {
			if max(d, -d) > most {
				most, at = max(d, -d), after.cell.String()
			}
		}
	}
	switch {
	case said.Verdict == proto.VerdictChanged && most <= said.Margin:
		return fmt.Sprintf("nothing has changed by more than %s", most)
	case said.Verdict == proto.VerdictSame && most > said.Margin:
		return fmt.Sprintf("%s has changed by %s", at, most)
	case said.Verdict == proto.VerdictChanged && !strings.HasPrefix(said.Summary, "changed: "):
		return "it does not say what"
	}
	return ""
}
